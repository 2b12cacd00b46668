"""The metadata controller of a running broker: commands in, committed changes out, listeners told.

Where this node leads: decide on the newest image (with what is proposed but not committed), propose, replay, tell the
listeners, answer; where it does not, let the leader do so and wait until its change has arrived here.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from raftlog.metadata.codec import decode_records, encode_records
from raftlog.metadata.commands import (
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
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.feature_levels import SUPPORTED_FEATURES
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import Record
from raftlog.metadata.snapshot import decode_snapshot, encode_snapshot, snapshot_records
from raftlog.metadata.topic_names import INTERNAL_TOPICS
from raftlog.raft.seam import MetadataLog, NotLeader, ProposalFailed, QuorumStatus
from raftlog.wire.errors import ErrorCode, InvariantViolation

if TYPE_CHECKING:
    from raftlog.broker.runtime.forwarding import Forwarding
    from raftlog.metadata.cluster_commands import IsrProposal, PartitionsAltered

log = logging.getLogger("raftlog.controller")

R = TypeVar("R")
Listener = Callable[[MetadataDelta, MetadataImage], None]

REPLAYED_PARTITIONS_MAX = 50_000
"""A start that replays more partition states than this after the snapshot (some 0.2 s) makes a new one for the next
start. The log itself goes by bytes, and a crash of a broker that leads ten thousand partitions leaves a record of
ten bytes.
"""

FEATURES = {name: highest for name, (_, highest) in SUPPORTED_FEATURES.items()}
"""The features of a new cluster and their levels (KIP-584)."""


COMMAND_SECONDS_MAX = 15.0
"""For how long a command is tried again while the quorum changes its leader."""

RETRY_SECONDS = 0.02

CATCH_UP_SECONDS_MAX = 5.0
"""For how long an answer from the leader waits for its change to arrive here, so that who asked sees what it did."""


class _Pending(NamedTuple):
    """A change that is proposed and not yet committed."""

    entry_index: int
    entry: bytes
    delta: MetadataDelta
    image: MetadataImage


class InternalTopic(NamedTuple):
    """One of the broker's own topics. `cap_replication`: with fewer brokers than replicas, take all brokers."""

    topic: NewTopic
    cap_replication: bool


class Controller:
    """The one place in a broker that changes metadata.

    Invariants: `image` only ever moves forward; listeners see every change once and in order; an answer is given
    after the listeners have seen the change that it is about.
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
        self._listeners: list[Listener] = []
        self._image = MetadataImage()
        self._pending: deque[_Pending] = deque()
        self._pending_term = -1
        self._starting: MetadataDelta | None = None
        self._started = False
        self._restored_partitions = 0
        self._wants_snapshot = False
        self._broker_epoch = -1
        self._next_producer_id = 0
        self._end_of_producer_ids = 0
        self._producer_ids = asyncio.Lock()
        self._catching_up: list[tuple[int, asyncio.Future[None]]] = []
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
        return self._image

    @property
    def controller_id(self) -> int:
        """The node that decides on metadata, or -1 when none is known."""
        return self._log.leader_id

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, or -1 before it."""
        return self._broker_epoch

    # -- life -------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Read the metadata log; the listeners are told all of it at once. Raises JournalDamaged."""
        self._starting = MetadataDelta(MetadataImage())
        # Replay makes objects by the ten thousand and no cycles: looking for some would take as long again.
        collecting = gc.isenabled()
        gc.disable()
        try:
            await self._log.start(self._restore, self._replay, self._snapshot)
        finally:
            if collecting:
                gc.enable()
        delta, self._starting = self._starting, None
        self._wants_snapshot = delta.partitions_replayed - self._restored_partitions > REPLAYED_PARTITIONS_MAX
        self._started = True
        self._publish(delta, delta.apply(self._log.committed_index))

    async def close(self) -> None:
        """Let go of the log."""
        await self._log.close()

    def _leadership_changed(self, leads: bool) -> None:
        if not leads:
            # Decided and not committed: their proposals fail, and what follows is decided by another node.
            self._pending.clear()

    async def initialize(self, cluster_id: str) -> str:
        """Give a new cluster its id; the answer is the cluster's id, which may be an older one."""
        answer = await self.execute(InitializeCluster(cluster_id, FEATURES))
        return answer.cluster_id or self._image.cluster_id

    async def register(self, command: RegisterBroker) -> BrokerRegistered:
        """Register this broker and remember its epoch."""
        answer = await self.execute(command)
        if answer.error is ErrorCode.NONE:
            self._broker_epoch = answer.broker_epoch
        if self._wants_snapshot:
            self._wants_snapshot = False
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
        self._listeners.append(listener)
        if self._started:
            delta = MetadataDelta(MetadataImage())
            for record in snapshot_records(self._image):
                delta.replay(record)
            delta.apply(self._image.version)
            listener(delta, self._image)

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
        decision = decide(self._newest(), command, self._environment)
        if decision.records:
            await self._propose(decision.records)
        elif self._pending and not command.liveness_only:
            # The answer rests on changes that are not yet committed, and must not be given before they are.
            await self._log.propose(())
        return decision.response

    async def _execute_there(self, forwarding: Forwarding, command: Command[R], timeout_seconds: float) -> R:
        answered = await forwarding.command(command, timeout_seconds)
        if not command.liveness_only:
            await self.caught_up_to(answered.log_index)
        return cast(R, answered.answer)

    async def caught_up_to(self, index: int) -> None:
        """Wait until this node has replayed a log entry, or for CATCH_UP_SECONDS_MAX."""
        if self._image.version >= index:
            return
        arrived: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._catching_up.append((index, arrived))
        await asyncio.wait([arrived], timeout=CATCH_UP_SECONDS_MAX)
        if not arrived.done():
            arrived.cancel()

    async def alter_partitions(self, proposals: Sequence[IsrProposal]) -> PartitionsAltered:
        """Propose ISR changes of partitions that this broker leads; results in the order of `proposals`."""
        from raftlog.metadata.cluster_commands import AlterPartitions

        return await self.execute(AlterPartitions(self._log.node_id, self._broker_epoch, tuple(proposals)))

    def _newest(self) -> MetadataImage:
        last = self._pending[-1] if self._pending else None
        if last is not None and (last.entry_index != self._log.last_index or self._pending_term != self._log.term):
            # What was proposed is not going to be committed: the disk failed, or another node leads now.
            self._pending.clear()
            last = None
        return last.image if last is not None else self._image

    async def _propose(self, records: Sequence[Record]) -> None:
        delta = MetadataDelta(self._newest())
        for record in records:
            delta.replay(record)
        if delta.anomalies:
            raise InvariantViolation(f"a decision contradicts the metadata: {'; '.join(delta.anomalies)}")
        index = self._log.last_index + 1
        entry = encode_records(records)
        self._pending_term = self._log.term
        self._pending.append(_Pending(index, entry, delta, delta.apply(index)))
        await self._log.propose((entry,))

    # -- what the log calls -------------------------------------------------------------------------

    def _restore(self, index: int, chunks: Iterable[bytes]) -> None:
        if self._starting is None:
            self._restore_running(decode_snapshot(chunks, index))
            return
        for chunk in chunks:
            for record in decode_records(chunk):
                self._starting.replay(record)
        self._restored_partitions = self._starting.partitions_replayed

    def _restore_running(self, newer: MetadataImage) -> None:
        """This node was too far behind for entries, and is given the state as a whole: listeners see it as one change
        from what they know.
        """
        from raftlog.metadata.difference import records_between

        self._pending.clear()
        delta = MetadataDelta(self._image)
        for record in records_between(self._image, newer):
            delta.replay(record)
        log.info("metadata taken over from a snapshot up to entry %d", newer.version)
        self._publish(delta, delta.apply(newer.version))

    def _replay(self, index: int, entry: bytes) -> None:
        if self._starting is not None:
            for record in decode_records(entry):
                self._starting.replay(record)
            return
        if self._pending:
            first = self._pending[0]
            # The bytes are compared: after a change of leaders another entry may stand in this place.
            if first.entry_index == index and first.entry == entry:
                self._pending.popleft()
                self._publish(first.delta, first.image)
                return
            self._pending.clear()
        delta = MetadataDelta(self._image)
        for record in decode_records(entry):
            delta.replay(record)
        self._publish(delta, delta.apply(index))

    def _snapshot(self) -> tuple[int, Iterable[bytes]]:
        return self._image.version, encode_snapshot(self._image)

    def _publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        for anomaly in delta.anomalies:
            log.error("metadata log entry %d: %s (passed over)", image.version, anomaly)
        self._image = image
        for listener in self._listeners:
            listener(delta, image)
        if self._catching_up:
            waiting, self._catching_up = self._catching_up, []
            for index, arrived in waiting:
                if image.version < index:
                    self._catching_up.append((index, arrived))
                elif not arrived.done():
                    arrived.set_result(None)

    # -- what brokers need of it ----------------------------------------------------------------------

    async def next_producer_id(self, broker_id: int) -> tuple[ErrorCode, int]:
        """A producer id that nobody was ever given, or an error."""
        while self._next_producer_id >= self._end_of_producer_ids:
            error = await self._fetch_producer_ids(broker_id)
            if error is not ErrorCode.NONE:
                return error, -1
        given = self._next_producer_id
        self._next_producer_id += 1
        return ErrorCode.NONE, given

    async def _fetch_producer_ids(self, broker_id: int) -> ErrorCode:
        async with self._producer_ids:  # a thousand producers that arrive at once need one block, not a thousand
            if self._next_producer_id < self._end_of_producer_ids:
                return ErrorCode.NONE
            block = await self.execute(AllocateProducerIds(broker_id, self._broker_epoch))
            self._next_producer_id, self._end_of_producer_ids = block.first, block.first + block.size
            return block.error

    async def create_automatically(self, names: Iterable[str]) -> tuple[TopicResult, ...]:
        """Create topics that clients asked for, with the default settings; those that exist are no error."""
        ordinary: list[NewTopic] = []
        results: list[TopicResult] = []
        for name in names:
            if name not in INTERNAL_TOPICS:
                ordinary.append(NewTopic(name))
            elif name in self._internal_topics:
                results.append(await self.ensure_internal_topic(name))
            else:
                results.append(TopicResult(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
        if ordinary:
            results.extend((await self.execute(CreateTopics(tuple(ordinary), internal=True))).results)
        return tuple(results)

    async def ensure_internal_topic(self, name: str) -> TopicResult:
        """Create one of the broker's own topics, with its own settings, unless it is there.

        The result has an error when there are too few brokers for the replication factor that was configured.
        """
        existing = self._image.topics.get(name)
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
