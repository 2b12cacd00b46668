"""A group coordinator over partitions in memory, and the requests that handlers make of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import CoroutineType, SimpleNamespace
from typing import Any, TypeVar, cast

from raftlog.broker.api import list_groups
from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.coordinator.shared import GROUP_TOPIC, coordinator_partition
from raftlog.broker.core.group.caller import Caller
from raftlog.broker.core.group.effects import Decision, Effects
from raftlog.broker.core.group.join import join
from raftlog.broker.core.group.leave import leave
from raftlog.broker.core.group.records import CommittedOffset, CoordinatorRecord, OffsetRecord
from raftlog.broker.core.group.sync import heartbeat, sync
from raftlog.broker.core.log.producers import TransactionEnd
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.core.log.verification import VerificationGuard
from raftlog.broker.runtime.delayed_operation import DelayedOperation, Mark, OffsetWait
from raftlog.broker.runtime.group_coordinator import GroupCoordinator
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.broker.runtime.timer_wheel import TimerWheel
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.metadata.records import RemoveTopicRecord
from raftlog.wire.batch import iterate_batches, stamp_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from raftlog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from raftlog.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.api.turns_world import all_turns
from tests.broker.core.group.group_world import subscription

PARTITIONS = 4
NODE = 1
TOPIC_ID = b"topic-id-of-t..."


M = TypeVar("M")


@asynccontextmanager
async def running(machine: M) -> AsyncIterator[M]:
    """A machine whose coordinator runs, and is sound when the test is over."""
    made: Any = machine
    made.coordinator.start()
    yield machine
    made.check()
    made.coordinator.stop()
    assert not made.coordinator.hosts


class MemoryLog:
    """A log whose records are committed when the test says so."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.log_start_offset = 0
        self.high_watermark = 0
        self.log_end_offset = 0

    def read_bytes(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool) -> bytes:
        found = b""
        for batch in self.batches:
            (_, header), *_ = iterate_batches(batch)
            if offset <= header.last_offset and header.base_offset < end_offset:
                if found and len(found) + len(batch) > max_bytes:
                    break
                found += batch
        return found


class MemoryPartition:
    """A partition in memory; `holds` keeps the high watermark where it is."""

    def __init__(self, leader_epoch: int = 0) -> None:
        self.leader_epoch = leader_epoch
        self.log = MemoryLog()
        self.holds = False
        self.leads_for_certain = True
        self.refuses = ErrorCode.NONE
        self.appends = 0
        self._waiters: dict[OffsetWait, None] = {}

    def append(
        self, records: bytes, now_ms: int, *, guard: VerificationGuard | None = None, transaction_version: int = 0
    ) -> AppendResult:
        self.appends += 1
        if self.refuses is not ErrorCode.NONE:
            return AppendResult.refused(self.refuses, "as the test wants it", log_start_offset=0)
        base = self.log.log_end_offset
        for at, header in iterate_batches(records):
            batch = bytearray(records[at : at + header.size])
            stamp_batch(batch, header, self.log.log_end_offset, self.leader_epoch)
            self.log.batches.append(bytes(batch))
            self.log.log_end_offset += header.last_offset_delta + 1
        if not self.holds:
            self.commit()
        return AppendResult(ErrorCode.NONE, base, self.log.log_end_offset - 1, -1, 0)

    def append_marker(self, end: TransactionEnd, now_ms: int) -> AppendResult:
        raise AssertionError("no transaction ends here")

    def commit(self) -> None:
        self.log.high_watermark = self.log.log_end_offset
        waiters, self._waiters = self._waiters, {}
        for waiter in waiters:
            waiter.try_complete(Mark.HIGH_WATERMARK)

    def lose_uncommitted(self) -> None:
        """Another leader had less of the log, and nobody has more now."""
        self.log.batches = [
            batch for batch in self.log.batches if next(iterate_batches(batch))[1].base_offset < self.log.high_watermark
        ]
        self.log.log_end_offset = self.log.high_watermark
        self._waiters.clear()

    def wait(self, mark: Mark, offset: int, callback: Callable[[ErrorCode], None]) -> OffsetWait:
        operation = OffsetWait(offset, lambda *_: ErrorCode.NONE, callback)
        self._waiters[operation] = None
        return operation

    def unwatch(self, mark: Mark, operation: DelayedOperation) -> None:
        self._waiters.pop(cast(OffsetWait, operation), None)


def offsets_topic(leaders: list[int], epoch: int = 0, topic_id: bytes = b"i" * 16) -> TopicImage:
    return TopicImage(
        GROUP_TOPIC,
        topic_id,
        tuple(
            PartitionState(partition_id=i, leader=n, leader_epoch=epoch, partition_epoch=0, replicas=(n,), isr=(n,))
            for i, n in enumerate(leaders)
        ),
        internal=True,
    )


def image_of(*topics: TopicImage) -> MetadataImage:
    base = MetadataImage()
    return MetadataImage(
        topics=base.topics.with_changes({t.name: t for t in topics}),
        topics_by_id=base.topics_by_id.with_changes({t.topic_id: t for t in topics}),
    )


def plain_topic(name: str = "t") -> TopicImage:
    partition = PartitionState(partition_id=0, leader=NODE, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    return TopicImage(name, TOPIC_ID, (partition,))


class Machine:
    """A coordinator over partitions in memory. It is its metadata and its partition manager, too."""

    def __init__(self, **settings: str) -> None:
        given = {"node.id": "1", "log.dirs": "/nowhere", "group.initial.rebalance.delay.ms": "0"}
        config = BrokerConfig(given | {name.replace("_", "."): value for name, value in settings.items()})
        self.stored: dict[int, MemoryPartition] = {}
        self.image = image_of(offsets_topic([NODE] * PARTITIONS), plain_topic())
        self.listeners: list[Callable[[MetadataDelta, MetadataImage], None]] = []
        loop = asyncio.get_running_loop()
        self.coordinator = GroupCoordinator(
            config, metadata=self, partitions=self, clock=self, loop=loop, timers=TimerWheel(loop)
        )

    def subscribe(self, listener: Callable[[MetadataDelta, MetadataImage], None]) -> None:
        self.listeners.append(listener)
        listener(MetadataDelta(MetadataImage()), self.image)

    def change(self, image: MetadataImage, deleted: TopicImage | None = None) -> None:
        delta = MetadataDelta(self.image)
        if deleted is not None:
            delta.replay(RemoveTopicRecord(deleted.topic_id))
        delta.apply(2)
        self.image = image
        for listener in self.listeners:
            listener(delta, image)

    def find_by_name(self, name: bytes, index: int) -> MemoryPartition | ErrorCode:
        assert name == GROUP_TOPIC.encode()
        return self.stored.setdefault(index, MemoryPartition())

    def is_on_disk(self, name: str, index: int) -> bool:
        return index in self.stored

    @staticmethod
    def now_ms() -> int:
        return time.time_ns() // 1_000_000

    @staticmethod
    def monotonic() -> float:
        return time.monotonic()

    def partition(self, group_id: str = "g") -> MemoryPartition:
        found = self.find_by_name(GROUP_TOPIC.encode(), coordinator_partition(group_id, PARTITIONS))
        assert isinstance(found, MemoryPartition)
        return found

    # --- requests, as the handlers make them

    def join(self, member_id: str = "", group_id: str = "g", version: int = 3) -> Any:
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=6_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription("t"))],
        )
        caller = Caller("c", "/h", version, str(time.perf_counter_ns()))
        return self.take(
            group_id,
            lambda host: partial(join, host.shard, request, caller),
            lambda error: JoinGroupResponse(error_code=error),
        )

    def take(
        self, group_id: str, event: Callable[[GroupHost], Callable[..., Effects]], refusal: Callable[[ErrorCode], Any]
    ) -> Any:
        return self.ask(group_id, lambda host, respond: host.take(event(host), respond), refusal)

    def ask(
        self,
        group_id: str,
        operation: Callable[[GroupHost, Callable[[Any], None]], None],
        refusal: Callable[[ErrorCode], Any] = lambda error: error,
    ) -> Any:
        """The answer, or if it is not there yet, a coroutine of it. An answer that comes twice raises."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def respond(response: Any) -> None:
            if not answer.cancelled():
                answer.set_result(response)

        def refuse(error: ErrorCode) -> None:
            respond(refusal(error))

        self.coordinator.run(group_id, lambda host: operation(host, respond), refuse)
        return answer.result() if answer.done() else later(answer)

    def sync(self, member_id: str, generation: int, group_id: str = "g") -> Any:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"plan")],
        )
        return self.take(group_id, lambda host: partial(sync, host.shard, request, 0), str)

    def leave(self, member_id: str, group_id: str = "g") -> Any:
        members = [MemberIdentity(member_id=member_id)]
        return self.take(
            group_id,
            lambda host: partial(leave, host.shard, group_id, members),
            lambda error: LeaveGroupResponse(error_code=error),
        )

    def beat(self, member_id: str, generation: int, group_id: str = "g") -> Any:
        request = HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id)
        return self.ask(group_id, lambda host, respond: respond(heartbeat(host.shard, request, host.now())))

    def commit(self, offset: int, group_id: str = "g", partition: int = 0) -> Any:
        record = OffsetRecord(group_id, "t", partition, CommittedOffset(offset, topic_id=TOPIC_ID))
        return self.write([record], group_id)

    def write(self, records: list[CoordinatorRecord], group_id: str = "g") -> Any:
        return self.decide(group_id, lambda host: Decision(ErrorCode.NONE, records))

    def decide(self, group_id: str, decide: Callable[[GroupHost], Decision[Any]]) -> Any:
        def operation(host: GroupHost, respond: Callable[[Any], None]) -> None:
            host.commit(decide(host), respond, respond)

        return self.ask(group_id, operation)

    def offset(self, group_id: str = "g") -> Any:
        def find(host: GroupHost) -> Decision[int]:
            group = host.shard.groups.get(group_id)
            found = group.offsets.of_topic("t").get(0) if group is not None else None
            return Decision(found.offset if found else -1, [])

        return self.decide(group_id, find)

    async def list(self) -> ListGroupsResponse:
        """As the handler does it."""
        answer: asyncio.Future[ListGroupsResponse] = asyncio.get_running_loop().create_future()
        services = SimpleNamespace(groups=self.coordinator)
        context: Any = SimpleNamespace(services=services, respond=answer.set_result, in_turns=all_turns)
        list_groups.handle(context, ListGroupsRequest())
        return await asyncio.wait_for(answer, 5)

    def check(self) -> None:
        self.coordinator.check_invariants()


async def later(answer: asyncio.Future[Any]) -> Any:
    return await answer


async def settled(answer: Any) -> Any:
    return await asyncio.wait_for(answer, 5) if isinstance(answer, CoroutineType) else answer


async def turns_pass() -> None:
    """Give everything that is ready its turn."""
    for _ in range(10):
        await asyncio.sleep(0)
