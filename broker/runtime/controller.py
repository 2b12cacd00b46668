"""The metadata controller of a running broker: has commands carried out, here or by the node that leads.

Where this node leads: decide on the newest image (with what is proposed but not committed), propose, answer when it is
replayed; where it does not, let the leader do so and wait until its change has arrived here.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from raftlog.broker.runtime.metadata_loader import Listener, MetadataLoader
from raftlog.broker.runtime.pending_changes import PendingChanges
from raftlog.metadata.codec import encode_records
from raftlog.metadata.commands import (
    NO_EPOCH,
    AllocateProducerIds,
    BrokerRegistered,
    Command,
    CreateTopics,
    InitializeCluster,
    NewTopic,
    RegisterBroker,
    TopicResult,
)
from raftlog.metadata.controller import Environment, decide
from raftlog.metadata.feature_levels import SUPPORTED_FEATURES
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.topic_control import MAX_PARTITIONS_PER_REQUEST
from raftlog.metadata.topic_names import INTERNAL_TOPICS
from raftlog.raft.seam import ENTRY_BYTES_MAX, MetadataLog, NotLeader, ProposalFailed, QuorumStatus
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerEpoch, BrokerId

if TYPE_CHECKING:
    from raftlog.broker.runtime.forwarding import Forwarding
    from raftlog.metadata.cluster_commands import AlteredPartition, IsrProposal, PartitionsAltered

log = logging.getLogger("raftlog.controller")

Q = TypeVar("Q")
R = TypeVar("R")

FEATURES = {name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()}
"""The features of a new cluster and their levels (KIP-584)."""

COMMAND_SECONDS_MAX = 12.0
"""For how long a command is tried again while the quorum changes its leader. Shorter than the 15 s that our own client
waits, which is to hear why nothing came of it."""

RETRY_SECONDS = 0.02

CHANGES_TOGETHER = 100
"""Topics or partitions of one command: some milliseconds."""

PARTS_UNDER_WAY_MAX = 4
"""Commands of requests for more that wait to be committed at the same time."""


class InternalTopic(NamedTuple):
    """One of the broker's own topics. `cap_replication`: with fewer brokers than replicas, take all brokers."""

    topic: NewTopic
    cap_replication: bool


class Controller:
    """The one place in a broker that changes metadata.

    Invariant: an answer is given after the listeners have seen the change that it is about.
    """

    def __init__(
        self,
        metadata_log: MetadataLog,
        environment: Environment,
        internal_topics: Mapping[str, InternalTopic] | None = None,
        *,
        alone: bool = True,
    ) -> None:
        """`internal_topics`: how `ensure_internal_topic` makes each topic that it knows. `alone`: the log is on this
        node and nowhere else, so this node always leads and nobody asks.
        """
        self._log = metadata_log
        self._environment = environment
        self._internal_topics = internal_topics or {}
        self._pending = PendingChanges(metadata_log)
        self._loader = MetadataLoader(metadata_log, self._pending)
        self._broker_epoch = NO_EPOCH
        self._next_producer_id = 0
        self._end_of_producer_ids = 0
        self._producer_ids = asyncio.Lock()
        self._parts_under_way = asyncio.Semaphore(PARTS_UNDER_WAY_MAX)
        # Looks at a command before this node, leading, decides it: what the leader hears of brokers comes in here.
        self.before_deciding: Callable[[Command[Any]], Command[Any]] | None = None
        self._forwarding: Forwarding | None = None
        if not alone:
            # Imported here: a broker alone starts without what only several brokers need.
            from raftlog.broker.runtime.forwarding import Forwarding

            self._forwarding = Forwarding(metadata_log, self._execute_here)
            metadata_log.on_leadership(self._leadership_changed)

    @property
    def log(self) -> MetadataLog:
        """The log behind it, for those who follow leadership and peers."""
        return self._log

    @property
    def image(self) -> MetadataImage:
        """The committed metadata."""
        return self._loader.image

    @property
    def controller_id(self) -> BrokerId:
        """The node that decides on metadata, or -1 when none is known."""
        return BrokerId(self._log.leader_id)

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """The epoch of this broker's registration, or -1 before it."""
        return self._broker_epoch

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the metadata log; the listeners are told all of it at once. Raises JournalDamaged."""
        await self._loader.start()

    async def close(self) -> None:
        """Let go of the log."""
        await self._log.close()

    def _leadership_changed(self, leads: bool) -> None:
        if not leads:
            self._pending.clear()

    async def initialize(self, cluster_id: str) -> str:
        """Give a new cluster its id; the answer is the cluster's id, which may be an older one."""
        answer = await self.execute(InitializeCluster(cluster_id, FEATURES))
        return answer.cluster_id or self.image.cluster_id

    async def register(self, command: RegisterBroker) -> BrokerRegistered:
        """Register this broker and remember its epoch."""
        answer = await self.execute(command)
        if answer.error is ErrorCode.NONE:
            self._broker_epoch = answer.broker_epoch
        if self._loader.wants_snapshot:
            self._loader.wants_snapshot = False
            await self._take_snapshot()
        return answer

    async def _take_snapshot(self) -> None:
        try:
            index = await self._log.take_snapshot()
        except ProposalFailed as error:
            log.error("no metadata snapshot was taken, the next start will be as slow: %s", error)
        else:
            log.info("metadata snapshot up to entry %d", index)

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with every change from now on, and at once with all there is when the log has been read."""
        self._loader.subscribe(listener)

    # -- commands ----------------------------------------------------------------------------------

    async def execute(self, command: Command[R], timeout_seconds: float = COMMAND_SECONDS_MAX) -> R:
        """Carry out a command, here or at the node that leads. Failures to commit are error codes in the answer, as
        everything else is: NOT_CONTROLLER when no leader was found in time, REQUEST_TIMED_OUT when nobody knows
        whether it was carried out, KAFKA_STORAGE_ERROR when the leader's disk failed.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        while True:
            try:
                if self._forwarding is None or self._log.is_leader:
                    return await self._execute_here(command)
                return await self._execute_there(self._forwarding, command, deadline - loop.time())
            except NotLeader as error:
                failure: ProposalFailed = error
            except ProposalFailed as error:
                failure = error
                if self._forwarding is None or (error.outcome_unknown and not command.repeatable):
                    break
            if loop.time() + RETRY_SECONDS >= deadline:
                break
            await asyncio.sleep(RETRY_SECONDS)
        return self._refused(command, failure)

    async def execute_in_parts(
        self,
        changes: Sequence[Q],
        command: Callable[[tuple[Q, ...]], Command[R]],
        timeout_seconds: float,
        *,
        under_way_max: int = PARTS_UNDER_WAY_MAX,
    ) -> AsyncIterator[R]:
        """Carry out changes that succeed or fail each on its own, CHANGES_TOGETHER in a command: the commands' answers,
        in order. Others have their turn between, also those who ask for as much. While `under_way_max` commands wait
        to be committed, or PARTS_UNDER_WAY_MAX of all requests, no other one begins.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_seconds
        if len(changes) <= CHANGES_TOGETHER:
            if changes:
                yield await self.execute(command(tuple(changes)), timeout_seconds)
            return
        under_way: deque[asyncio.Task[R]] = deque()
        try:
            for start in range(0, len(changes), CHANGES_TOGETHER):
                if len(under_way) == under_way_max:
                    yield await under_way.popleft()
                together = command(tuple(changes[start : start + CHANGES_TOGETHER]))
                await self._parts_under_way.acquire()
                part = loop.create_task(self.execute(together, max(0.0, deadline - loop.time())))
                part.add_done_callback(lambda _: self._parts_under_way.release())
                under_way.append(part)
                await asyncio.sleep(0)  # in this turn it is decided
            while under_way:
                yield await under_way.popleft()
        finally:
            for task in under_way:
                task.cancel()

    async def execute_as_leader(self, command: Command[R]) -> R:
        """Carry out what this node has found out as the leader, or nothing: its successor judges for itself."""
        try:
            return await self._execute_here(command)
        except ProposalFailed as failure:
            return self._refused(command, failure)

    def _refused(self, command: Command[R], failure: ProposalFailed) -> R:
        if isinstance(failure, NotLeader):
            return command.refused(ErrorCode.NOT_CONTROLLER, str(failure))
        log.error("metadata not changed: %s", failure)
        # A node that leads on after a failure has a disk that failed; else somebody else may have carried it out.
        code = ErrorCode.KAFKA_STORAGE_ERROR if self._log.is_leader else ErrorCode.REQUEST_TIMED_OUT
        return command.refused(code, str(failure))

    async def _execute_here(self, command: Command[R]) -> R:
        """Decide and commit on this node. Raises NotLeader, ProposalFailed."""
        if self._forwarding is not None and not self._log.is_leader:
            raise NotLeader(self._log.leader_id)
        if self.before_deciding is not None:
            command = self.before_deciding(command)
        decision = decide(self._pending.newest(self.image), command, self._environment)
        if decision.records:
            entry = encode_records(decision.records)
            if len(entry) > ENTRY_BYTES_MAX:
                text = f"this would be {len(entry)} bytes of metadata, and at most {ENTRY_BYTES_MAX} change at once"
                return command.refused(ErrorCode.POLICY_VIOLATION, text)
            self._pending.add(self.image, decision.records, entry)
            await self._log.propose((entry,))
        elif self._pending and not command.liveness_only:
            # The answer rests on changes that are not yet committed, and must not be given before they are.
            await self._log.propose(())
        return decision.response

    async def _execute_there(self, forwarding: Forwarding, command: Command[R], timeout_seconds: float) -> R:
        answered = await forwarding.command(command, timeout_seconds)
        if not command.liveness_only:
            await self._loader.caught_up_to(answered.log_index)
        return cast(R, answered.answer)

    async def alter_partitions(self, proposals: Sequence[IsrProposal]) -> PartitionsAltered:
        """Propose ISR changes of partitions that this broker leads; results in the order of `proposals`."""
        from raftlog.metadata.cluster_commands import AlterPartitions

        command = AlterPartitions(BrokerId(self._log.node_id), self._broker_epoch, tuple(proposals))
        answer = await self.execute(command)
        return answer._replace(results=tuple(map(self._once_replayed, answer.results)))

    def _once_replayed(self, altered: AlteredPartition) -> AlteredPartition:
        """An ISR counts when this node has replayed it: `min.insync.replicas` may have been raised before it, and by a
        lower one the leader would commit alone what eligible leaders have not (KIP-966).
        """
        topic, state = self.image.topics_by_id.get(altered.topic_id), altered.state
        if altered.error is not ErrorCode.NONE or topic is None or state is None:
            return altered
        known = topic.partitions[altered.partition_id].partition_epoch
        return altered if known >= state.partition_epoch else altered._replace(error=ErrorCode.REQUEST_TIMED_OUT)

    # -- what brokers need of it ----------------------------------------------------------------------

    async def next_producer_id(self, broker_id: BrokerId) -> tuple[ErrorCode, int]:
        """A producer id that nobody was ever given, or an error."""
        while self._next_producer_id >= self._end_of_producer_ids:
            error = await self._fetch_producer_ids(broker_id)
            if error is not ErrorCode.NONE:
                return error, -1
        given = self._next_producer_id
        self._next_producer_id += 1
        return ErrorCode.NONE, given

    async def _fetch_producer_ids(self, broker_id: BrokerId) -> ErrorCode:
        async with self._producer_ids:  # a thousand producers that arrive at once need one block, not a thousand
            if self._next_producer_id < self._end_of_producer_ids:
                return ErrorCode.NONE
            block = await self.execute(AllocateProducerIds(broker_id, self._broker_epoch))
            self._next_producer_id, self._end_of_producer_ids = block.first, block.first + block.size
            return block.error

    async def create_automatically(self, names: Iterable[str]) -> tuple[TopicResult, ...]:
        """Create topics that clients asked for, with the default settings; those that exist are no error."""
        ordinary: list[str] = []
        results: list[TopicResult] = []
        for name in names:
            if name not in INTERNAL_TOPICS:
                ordinary.append(name)
            elif name in self._internal_topics:
                results.append(await self.ensure_internal_topic(name))
            else:
                results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        made = 0
        found: list[TopicResult] = []

        def command(together: tuple[str, ...]) -> CreateTopics:
            return CreateTopics(tuple(map(NewTopic, together)), internal=True)

        async for answer in self.execute_in_parts(ordinary, command, COMMAND_SECONDS_MAX, under_way_max=1):
            found += answer.results
            made += sum(result.num_partitions for result in answer.results if result.error is ErrorCode.NONE)
            if made >= MAX_PARTITIONS_PER_REQUEST:
                break
        await asyncio.sleep(0)
        refused = [TopicResult(name, ErrorCode.POLICY_VIOLATION) for name in ordinary[len(found) :]]
        await asyncio.sleep(0)
        return *results, *found, *refused

    async def ensure_internal_topic(self, name: str) -> TopicResult:
        """Create one of the broker's own topics, with its own settings, unless it is there.

        The result has an error when there are too few brokers for the replication factor that was configured.
        """
        existing = self._loader.image.topics.get(name)
        if existing is not None:
            factor = len(existing.partitions[0].replicas)
            return TopicResult(name, ErrorCode.NONE, None, existing.topic_id, len(existing.partitions), factor)
        topic, cap_replication = self._internal_topics[name]
        answer = await self.execute(CreateTopics((topic,), internal=True, cap_replication=cap_replication))
        return answer.results[0]

    # -- the quorum behind it: asked and changed through its leader -----------------------------------

    @property
    def forwarding(self) -> Forwarding | None:
        """The way to the quorum's leader; None for a broker alone."""
        return self._forwarding

    async def quorum_status(self) -> QuorumStatus:
        """The quorum as its leader sees it. Raises NotLeader, ProposalFailed."""
        return self._log.status() if self._forwarding is None else await self._forwarding.quorum_status()

    async def add_voter(self, node_id: int, host: str, port: int) -> None:
        """Give an observer a vote, once it has caught up. Raises NotLeader, ProposalFailed."""
        await (self._forwarding or self._log).add_voter(node_id, host, port)

    async def remove_voter(self, node_id: int) -> None:
        """Take a node's vote. Raises NotLeader, ProposalFailed."""
        await (self._forwarding or self._log).remove_voter(node_id)

    async def transfer_leadership(self, to: int) -> None:
        """Make another voter the leader. Raises NotLeader, ProposalFailed."""
        await (self._forwarding or self._log).transfer_leadership(to)
