"""The group coordinator of a running broker: which groups it has, who asks, and when time is up.

Knows which partitions of `__consumer_offsets` are led here, keeps their shards loaded, parks requests and carries time
to the shards.

A request is answered with its response, or with a coroutine of it when it has to wait: for other members, for the
shard to be loaded, or for records to be committed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, cast

from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.errors import coordinator_error
from raftlog.broker.core.group.member import HeldBytes, Ticket
from raftlog.broker.core.group.placement import GROUP_TOPIC, group_partition
from raftlog.broker.core.group.state import Now
from raftlog.broker.core.group.timers import NEVER
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.group.effects import Decision, Effects
    from raftlog.broker.core.group.shard import GroupShard
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.group_shard_host import GroupPartition, GroupShardHost
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage, TopicImage
    from raftlog.wire.schema import Message

# The protocol of groups and its messages are imported with the first shard: a broker that has none starts without them.

log = logging.getLogger("raftlog.groups")

R = TypeVar("R")
Answer: TypeAlias = R | Coroutine[Any, Any, R]

LOAD_WAIT_SECONDS = 1.0
"""How long a request waits for its shard to be loaded before its client is told to come again."""

SLICE_SECONDS = 0.002
"""How long background work may hold the event loop at a time."""

REMEMBERED_GROUPS = 65_536
"""Of how many groups the partition is remembered rather than computed."""


class _Metadata(Protocol):
    @property
    def image(self) -> MetadataImage: ...

    def subscribe(self, listener: Callable[[MetadataDelta, MetadataImage], None]) -> None: ...


class _Partitions(Protocol):
    def find_by_name(self, name: bytes, index: int) -> GroupPartition | ErrorCode: ...

    def is_on_disk(self, name: str, index: int) -> bool: ...


class GroupCoordinator:
    """All shards of this broker.

    A shard comes into being when it is first asked for, or in the background if it has a log already; it goes when the
    broker leads its partition no more. Parked requests need no limit of their own: a member has at most two.
    """

    def __init__(
        self,
        config: Mapping[str, Any],
        metadata: _Metadata,
        partitions: _Partitions,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        """`config` has Kafka's names."""
        self.config = group_config(config)
        self._node_id: int = config["node.id"]
        self._metadata = metadata
        self._partitions = partitions
        self._clock = clock
        self._loop = loop
        self._topic: TopicImage | None = None
        self._index_of: dict[str, int] = {}
        self._hosts: dict[int, GroupShardHost] = {}
        # Partitions with a log that nobody has loaded yet.
        self._to_load: dict[int, None] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        # Partitions whose log cannot be read, until their leaders change or the broker is restarted.
        self._unreadable: set[int] = set()
        self._held = HeldBytes()
        self._parked: dict[Ticket, asyncio.Future[Message]] = {}
        self._next_ticket = 0
        self._wake: asyncio.TimerHandle | None = None
        self._wake_at_ms = NEVER
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_stopped = False

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Follow the metadata, load what is there, and let offsets expire from now on."""
        self._metadata.subscribe(self._follow)
        self._spawn(self._expire_offsets_for_ever())

    def stop(self) -> None:
        """Answer everybody who waits, and serve nobody any more."""
        self._is_stopped = True
        for task in list(self._tasks):
            task.cancel()
        if self._wake is not None:
            self._wake.cancel()
        for index in list(self._hosts):
            self._close(index)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (bug := task.exception()) is not None:
            self._loop.call_exception_handler({"message": "a task of the group coordinator", "exception": bug})

    def now(self) -> Now:
        """This instant on both clocks."""
        return Now(int(self._clock.monotonic() * 1000), self._clock.now_ms())

    # ── following the metadata ────────────────────────────────────────────────────────────────────────────

    def _follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if self._is_stopped:
            return
        topic = image.topics.get(GROUP_TOPIC)
        if topic is not self._topic:
            self._follow_topic(topic)
        names = [deleted.name for deleted in delta.deleted_topics]
        for host in list(self._hosts.values()) if names else ():
            if host.is_loaded:
                host.forget_topics(names)

    def _follow_topic(self, topic: TopicImage | None) -> None:
        before, self._topic = self._topic, topic
        if before is None or topic is None or len(before.partitions) != len(topic.partitions):
            self._index_of.clear()
        was_replaced = before is not None and (topic is None or before.topic_id != topic.topic_id)
        for index, host in list(self._hosts.items()):
            if was_replaced or self._epoch_led(index) != host.leader_epoch:
                self._close(index)
        # Another copy of a log that could not be read may be here now.
        self._unreadable.clear()
        self._to_load.clear()
        for index in range(len(topic.partitions) if topic is not None else 0):
            led = self._epoch_led(index) is not None
            if led and index not in self._hosts and self._partitions.is_on_disk(GROUP_TOPIC, index):
                self._to_load[index] = None
        if self._to_load:
            self._spawn(self._load_in_background())

    def _epoch_led(self, index: int) -> int | None:
        """The epoch in which this broker leads the partition, or None."""
        topic = self._topic
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        partition = topic.partitions[index]
        return partition.leader_epoch if partition.leader == self._node_id else None

    def _close(self, index: int) -> None:
        host = self._hosts.pop(index)
        loading = self._loading.pop(index, None)
        if loading is not None:
            loading.cancel()
        host.close()

    # ── loading ───────────────────────────────────────────────────────────────────────────────────────────

    def partition_of(self, group_id: str) -> int | None:
        """The partition of a group; None while there is no topic."""
        index = self._index_of.get(group_id)
        if index is None and self._topic is not None:
            if len(self._index_of) >= REMEMBERED_GROUPS:
                self._index_of.clear()
            index = self._index_of[group_id] = group_partition(group_id, len(self._topic.partitions))
        return index

    def _find(self, group_id: str) -> GroupShardHost | ErrorCode:
        index = self.partition_of(group_id)
        if index is None:
            return ErrorCode.NOT_COORDINATOR
        return self._hosts.get(index) or self._open(index)

    def _open(self, index: int) -> GroupShardHost | ErrorCode:
        """Begin to host a partition; one with an empty log is loaded at once."""
        if self._is_stopped or index in self._unreadable:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if self._epoch_led(index) is None:
            return ErrorCode.NOT_COORDINATOR
        partition = self._partitions.find_by_name(GROUP_TOPIC.encode(), index)
        if isinstance(partition, ErrorCode):
            return coordinator_error(partition)
        from raftlog.broker.runtime.group_shard_host import GroupShardHost

        self._to_load.pop(index, None)
        host = self._hosts[index] = GroupShardHost(
            index, self.config, partition, self.now, self._answer, held=self._held
        )
        if partition.log.log_start_offset == partition.log.log_end_offset:
            host.is_loaded = True
        else:
            self._loading[index] = self._spawn(self._load(index, host))
        return host

    async def _load(self, index: int, host: GroupShardHost) -> None:
        began = self._clock.monotonic()
        try:
            for _ in host.load():
                await asyncio.sleep(0)
        except (ValueError, LogUnavailable) as failure:
            log.error(
                "partition=%s-%d the groups in it are not served: %s. Restore this partition's directory from a"
                " replica or a copy and restart the broker",
                GROUP_TOPIC,
                index,
                failure,
            )
            self._unreadable.add(index)
            del self._loading[index], self._hosts[index]
            return
        del self._loading[index]
        self._schedule(host)
        groups, seconds = len(host.shard.groups), self._clock.monotonic() - began
        log.info("partition=%s-%d loaded groups=%d seconds=%.3f", GROUP_TOPIC, index, groups, seconds)
        await self._in_slices(host.forget_missing_topics(self._metadata.image))

    async def _load_in_background(self) -> None:
        """One after the other; a shard that somebody asks for meanwhile is loaded beside them."""
        while self._to_load:
            index = next(iter(self._to_load))
            del self._to_load[index]
            if index not in self._hosts:
                self._open(index)
            if index in self._loading:
                await asyncio.wait({self._loading[index]})

    async def _in_slices(self, steps: Iterator[None]) -> None:
        """Take the steps, giving way to the event loop every now and then."""
        end = self._clock.monotonic() + SLICE_SECONDS
        for _ in steps:
            if self._clock.monotonic() >= end:
                await asyncio.sleep(0)
                end = self._clock.monotonic() + SLICE_SECONDS

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────

    def _schedule(self, host: GroupShardHost) -> None:
        """Make sure that the shard gets its turn when it next has something to do."""
        look_ms = host.next_look_ms()
        if look_ms < self._wake_at_ms:
            if self._wake is not None:
                self._wake.cancel()
            self._wake_at_ms = look_ms
            delay = look_ms / 1000 - self._clock.monotonic()
            self._wake = self._loop.call_later(max(delay, 0.001), self._tick)

    def _tick(self) -> None:
        self._wake, self._wake_at_ms = None, NEVER
        for host in list(self._hosts.values()):
            if host.is_loaded:
                host.tick()
                self._schedule(host)

    async def _expire_offsets_for_ever(self) -> None:
        while True:
            await asyncio.sleep(self.config.offsets_retention_check_interval_ms / 1000)
            await self.expire_offsets()

    async def expire_offsets(self) -> None:
        """Remove what has expired by now, in every shard."""
        for host in list(self._hosts.values()):
            if host.is_loaded:
                await self._in_slices(host.expire_offsets())

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────

    def ask(
        self, group_id: str, act: Callable[[GroupShardHost], Answer[R]], refuse: Callable[[ErrorCode], R]
    ) -> Answer[R]:
        """Let the shard of a group act; or refuse, if that is not here, or not yet."""
        host = self._find(group_id)
        if isinstance(host, ErrorCode):
            return refuse(host)
        if not host.is_loaded:
            return self._ask_when_loaded(group_id, act, refuse)
        answer = act(host)
        self._schedule(host)
        return answer

    async def _ask_when_loaded(
        self, group_id: str, act: Callable[[GroupShardHost], Answer[R]], refuse: Callable[[ErrorCode], R]
    ) -> R:
        index = self.partition_of(group_id)
        loading = self._loading.get(index) if index is not None else None
        if loading is not None:
            await asyncio.wait({loading}, timeout=LOAD_WAIT_SECONDS)
        host = self._find(group_id)
        if isinstance(host, ErrorCode):
            return refuse(host)
        if not host.is_loaded:
            return refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        answer = act(host)
        self._schedule(host)
        return cast(R, await answer if isinstance(answer, CoroutineType) else answer)

    def park(self, host: GroupShardHost, start: Callable[[Ticket], Effects]) -> Answer[Any]:
        """Begin something that is answered by ticket, perhaps only after others have come."""
        self._next_ticket += 1
        ticket = Ticket(self._next_ticket)
        future: asyncio.Future[Message] = self._loop.create_future()
        self._parked[ticket] = future
        host.carry_out(start(ticket))
        return future.result() if future.done() else self._parked_answer(ticket, future)

    async def _parked_answer(self, ticket: Ticket, future: asyncio.Future[Message]) -> Message:
        try:
            return await future
        finally:
            # The connection may be gone; the group goes on as if the answer had been lost on the way.
            self._parked.pop(ticket, None)

    def _answer(self, ticket: Ticket, response: Message) -> None:
        future = self._parked.pop(ticket, None)
        if future is not None and not future.done():
            future.set_result(response)

    def settle(self, host: GroupShardHost, decision: Decision[R], refuse: Callable[[ErrorCode], R]) -> Answer[R]:
        """Write what was decided, and answer when all that the decision rests on is committed."""
        if decision.records:
            error = host.append(decision.records)
            if error is not ErrorCode.NONE:
                return refuse(coordinator_error(error))
        if host.is_safe:
            return decision.response
        return self._settle_when_safe(host, decision.response, refuse)

    async def _settle_when_safe(self, host: GroupShardHost, response: R, refuse: Callable[[ErrorCode], R]) -> R:
        error = await self._safe(host)
        return response if error is ErrorCode.NONE else refuse(coordinator_error(error))

    def _safe(self, host: GroupShardHost) -> asyncio.Future[ErrorCode]:
        future: asyncio.Future[ErrorCode] = self._loop.create_future()

        def tell(error: ErrorCode) -> None:
            if not future.done():
                future.set_result(error)

        host.when_safe(tell)
        self._schedule(host)
        return future

    async def ask_all(self, act: Callable[[GroupShard], Sequence[R]], refuse: Callable[[ErrorCode], None]) -> list[R]:
        """What every shard that is led here says; `refuse` is told if one of them cannot say."""
        for index in list(self._to_load):
            self._open(index)
        if self._loading:
            await asyncio.wait(set(self._loading.values()), timeout=LOAD_WAIT_SECONDS)
        found: list[R] = []
        for host in list(self._hosts.values()):
            if not host.is_loaded:
                refuse(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
                continue
            said = act(host.shard)
            error = ErrorCode.NONE if host.is_safe else await self._safe(host)
            if error is not ErrorCode.NONE:
                refuse(coordinator_error(error))
            found.extend(said)
        if self._unreadable:
            refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return found


def group_config(config: Mapping[str, Any]) -> GroupConfig:
    """The limits of groups from the broker's settings."""
    return GroupConfig(
        min_session_timeout_ms=config["group.min.session.timeout.ms"],
        max_session_timeout_ms=config["group.max.session.timeout.ms"],
        max_size=config["group.max.size"],
        initial_rebalance_delay_ms=config["group.initial.rebalance.delay.ms"],
        offset_metadata_max_bytes=config["offset.metadata.max.bytes"],
        offsets_retention_ms=config["offsets.retention.minutes"] * 60_000,
        offsets_retention_check_interval_ms=config["offsets.retention.check.interval.ms"],
        commit_timeout_ms=config["offsets.commit.timeout.ms"],
    )
