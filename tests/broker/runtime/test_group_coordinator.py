"""The group coordinator around its shards: when answers leave, how shards load, what the metadata does to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from types import CoroutineType
from typing import Any

import pytest

from raftlog.broker.config import BrokerConfig
from raftlog.broker.core.group.admin import list_groups
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.join import Caller, join
from raftlog.broker.core.group.leave import leave
from raftlog.broker.core.group.placement import GROUP_TOPIC, group_partition
from raftlog.broker.core.group.records import CommittedOffset, CoordinatorRecord, OffsetRecord
from raftlog.broker.core.group.sync import heartbeat, sync
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.group_coordinator import GroupCoordinator
from raftlog.broker.runtime.group_shard_host import GroupShardHost
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage, PartitionState, TopicImage
from raftlog.metadata.records import RemoveTopicRecord
from raftlog.wire.batch import iterate_batches, stamp_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from raftlog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.core.group.group_world import subscription
from tests.waiting import until

PARTITIONS = 4
NODE = 1
TOPIC_ID = b"topic-id-of-t..."


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
        self.refuses = ErrorCode.NONE
        self.appends = 0
        self._waiters: list[tuple[int, Callable[[ErrorCode], None]]] = []

    def append(self, records: bytes, now_ms: int) -> AppendResult:
        self.appends += 1
        if self.refuses is not ErrorCode.NONE:
            return AppendResult.refused(self.refuses, "as the test wants it", log_start_offset=0)
        batch = bytearray(records)
        ((_, header),) = iterate_batches(batch)
        base = self.log.log_end_offset
        stamp_batch(batch, header, base, self.leader_epoch)
        self.log.batches.append(bytes(batch))
        self.log.log_end_offset = base + header.last_offset_delta + 1
        if not self.holds:
            self.commit()
        return AppendResult(ErrorCode.NONE, base, self.log.log_end_offset - 1, -1, 0)

    def commit(self) -> None:
        self.log.high_watermark = self.log.log_end_offset
        waiters, self._waiters = self._waiters, []
        for _, callback in waiters:
            callback(ErrorCode.NONE)

    def wait(self, mark: Mark, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        self._waiters.append((offset, callback))


def offsets_topic(leaders: list[int], epoch: int = 0, topic_id: bytes = b"i" * 16) -> TopicImage:
    return TopicImage(
        GROUP_TOPIC,
        topic_id,
        tuple(
            PartitionState(index=i, leader=n, leader_epoch=epoch, partition_epoch=0, replicas=(n,), isr=(n,))
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
    partition = PartitionState(index=0, leader=NODE, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    return TopicImage(name, TOPIC_ID, (partition,))


class Machine:
    """A coordinator over partitions in memory. It is its metadata and its partition manager, too."""

    def __init__(self, **settings: str) -> None:
        given = {"node.id": "1", "log.dirs": "/nowhere", "group.initial.rebalance.delay.ms": "0"}
        config = BrokerConfig(given | {name.replace("_", "."): value for name, value in settings.items()})
        self.stored: dict[int, MemoryPartition] = {}
        self.image = image_of(offsets_topic([NODE] * PARTITIONS), plain_topic())
        self.listeners: list[Callable[[MetadataDelta, MetadataImage], None]] = []
        self.coordinator = GroupCoordinator(config, self, self, self, asyncio.get_running_loop())

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
        found = self.find_by_name(GROUP_TOPIC.encode(), group_partition(group_id, PARTITIONS))
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
        groups = self.coordinator
        caller = Caller("c", "/h", version, str(time.perf_counter_ns()))
        return groups.ask(
            group_id,
            lambda host: groups.park(host, lambda t: join(host.shard, request, caller, t, groups.now())),
            lambda error: JoinGroupResponse(error_code=error),
        )

    def sync(self, member_id: str, generation: int, group_id: str = "g") -> Any:
        request = SyncGroupRequest(
            group_id=group_id,
            generation_id=generation,
            member_id=member_id,
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"plan")],
        )
        groups = self.coordinator
        return groups.ask(
            group_id, lambda host: groups.park(host, lambda t: sync(host.shard, request, 0, t, groups.now())), str
        )

    def leave(self, member_id: str, group_id: str = "g") -> Any:
        groups = self.coordinator
        members = [MemberIdentity(member_id=member_id)]
        return groups.ask(
            group_id,
            lambda host: groups.park(host, lambda t: leave(host.shard, group_id, members, t, groups.now())),
            lambda error: LeaveGroupResponse(error_code=error),
        )

    def beat(self, member_id: str, generation: int, group_id: str = "g") -> Any:
        request = HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id)
        groups = self.coordinator
        return groups.ask(group_id, lambda host: heartbeat(host.shard, request, groups.now()), lambda error: error)

    def commit(self, offset: int, group_id: str = "g", partition: int = 0) -> Any:
        record = OffsetRecord(group_id, "t", partition, CommittedOffset(offset, topic_id=TOPIC_ID))
        return self.write([record], group_id)

    def write(self, records: list[CoordinatorRecord], group_id: str = "g") -> Any:
        def act(host: GroupShardHost) -> ErrorCode | Coroutine[Any, Any, ErrorCode]:
            return self.coordinator.settle(host, Decision(ErrorCode.NONE, records), lambda error: error)

        return self.coordinator.ask(group_id, act, lambda error: error)

    def offset(self, group_id: str = "g") -> Any:
        def act(host: GroupShardHost) -> int | Coroutine[Any, Any, int]:
            group = host.shard.groups.get(group_id)
            found = group.offsets.get("t", {}).get(0) if group is not None else None
            return self.coordinator.settle(host, Decision(found.offset if found else -1, []), int)

        return self.coordinator.ask(group_id, act, int)


async def settled(answer: Any) -> Any:
    return await asyncio.wait_for(answer, 5) if isinstance(answer, CoroutineType) else answer


async def turns_pass() -> None:
    """Give everything that is ready its turn."""
    for _ in range(10):
        await asyncio.sleep(0)


@pytest.fixture
async def machine() -> Any:
    made = Machine()
    made.coordinator.start()
    yield made
    made.coordinator.stop()


async def test_without_waiting_for_anybody_everything_is_answered_at_once(machine: Machine) -> None:
    joined = machine.join()
    assert joined.generation_id == 1
    assert machine.sync(joined.member_id, 1).assignment == b"plan"
    assert machine.beat(joined.member_id, 1) is ErrorCode.NONE
    assert machine.commit(5) is ErrorCode.NONE
    assert machine.offset() == 5
    assert machine.leave(joined.member_id).members[0].error_code == ErrorCode.NONE


async def test_parked_joins_are_answered_together(machine: Machine) -> None:
    first = machine.join()
    others = [asyncio.ensure_future(machine.join()) for _ in range(3)]
    await turns_pass()
    assert not any(other.done() for other in others)
    assert machine.beat(first.member_id, 1) is ErrorCode.REBALANCE_IN_PROGRESS
    again = machine.join(first.member_id)
    answers = await asyncio.gather(*others)
    assert {a.generation_id for a in answers} == {2} == {(await settled(again)).generation_id}


async def test_a_client_that_goes_away_while_it_waits_leaves_nothing_behind(machine: Machine) -> None:
    first = machine.join()
    waiting = asyncio.ensure_future(machine.join())
    await turns_pass()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not machine.coordinator._parked
    # The group still takes the lost client for a member, as Kafka does, until its time is up.
    assert (await settled(machine.join(first.member_id))).generation_id == 2


async def test_no_answer_leaves_before_what_it_rests_on_is_committed(machine: Machine) -> None:
    machine.commit(1)
    partition = machine.partition()
    partition.holds = True
    writing = asyncio.ensure_future(machine.commit(2))
    reading = asyncio.ensure_future(machine.offset())
    await turns_pass()
    assert not writing.done() and not reading.done()
    partition.commit()
    assert await writing is ErrorCode.NONE
    assert await reading == 2


async def test_an_assignment_is_given_out_when_it_is_committed(machine: Machine) -> None:
    joined = machine.join()
    partition = machine.partition()
    partition.holds = True
    syncing = asyncio.ensure_future(machine.sync(joined.member_id, 1))
    await turns_pass()
    assert not syncing.done()
    assert machine.beat(joined.member_id, 1) is ErrorCode.NONE
    partition.commit()
    assert (await syncing).assignment == b"plan"


async def test_a_commit_that_takes_too_long_is_given_up_but_not_taken_back() -> None:
    machine = Machine(offsets_commit_timeout_ms="50")
    machine.coordinator.start()
    joined = machine.join()
    partition = machine.partition()
    partition.holds = True
    syncing = machine.sync(joined.member_id, 1)
    committing = machine.commit(7, group_id="g")
    assert await settled(committing) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (await settled(syncing)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    partition.commit()
    assert machine.offset() == 7
    machine.coordinator.stop()


async def test_what_the_log_refuses_is_refused_in_words_for_the_coordinators_clients(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    machine.commit(1)
    for error, told in (
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ):
        machine.partition().refuses = error
        assert machine.commit(2) is told
    assert machine.offset() == 1
    assert caplog.messages[-1].startswith("group=g is too large to be stored")
    assert "raise max.message.bytes of the topic __consumer_offsets" in caplog.messages[-1]


async def test_sessions_end_by_the_real_clock() -> None:
    machine = Machine(group_min_session_timeout_ms="1")
    machine.coordinator.start()
    joined = machine.join()
    machine.sync(joined.member_id, 1)
    host = machine.coordinator._hosts[group_partition("g", PARTITIONS)]
    host.shard.groups["g"].members[joined.member_id].session_timeout_ms = 60
    started = time.monotonic()
    assert machine.beat(joined.member_id, 1) is ErrorCode.NONE
    await until(lambda: not host.shard.groups["g"].members)
    assert time.monotonic() - started >= 0.06
    machine.coordinator.stop()


async def test_groups_are_there_again_after_a_restart(machine: Machine) -> None:
    joined = machine.join()
    machine.sync(joined.member_id, 1)
    for group in ("g", "a", "b", "c", "d"):
        machine.commit(5, group_id=group)
    machine.coordinator.stop()
    other = Machine()
    other.stored = machine.stored
    other.coordinator.start()
    assert await settled(other.beat(joined.member_id, 1)) is ErrorCode.NONE
    assert await settled(other.offset("a")) == 5
    errors: list[ErrorCode] = []
    listed = await other.coordinator.ask_all(lambda shard: list_groups(shard, [], []), errors.append)
    assert sorted(group.group_id for group in listed) == ["a", "b", "c", "d", "g"]
    assert errors == []
    other.coordinator.stop()


async def test_shards_are_loaded_in_the_background_and_only_those_that_have_a_log(machine: Machine) -> None:
    machine.commit(5)
    other = Machine()
    other.stored = dict(machine.stored)
    other.coordinator.start()
    hosts = other.coordinator._hosts
    await until(lambda: bool(hosts) and all(host.is_loaded for host in hosts.values()))
    assert list(other.coordinator._hosts) == [group_partition("g", PARTITIONS)] == list(other.stored)
    other.coordinator.stop()


async def test_a_long_log_is_loaded_without_keeping_the_event_loop(machine: Machine) -> None:
    for start in range(0, 50_000, 1_000):
        machine.write(
            [
                OffsetRecord("g", "t", i % 5_000, CommittedOffset(i, topic_id=TOPIC_ID))
                for i in range(start, start + 1_000)
            ]
        )
    other = Machine()
    other.stored = machine.stored
    other.coordinator.start()
    turns = 0
    answer = asyncio.ensure_future(other.offset())
    while not answer.done():
        turns += 1
        await asyncio.sleep(0)
    assert await answer == 45_000
    assert turns > 20
    other.coordinator.stop()


async def test_a_log_that_cannot_be_read_is_not_served_and_the_others_are(machine: Machine) -> None:
    machine.commit(5)
    partition = machine.partition()
    partition.log.batches[0] = partition.log.batches[0][:-1] + b"\x55"
    taken = group_partition("g", PARTITIONS)
    elsewhere = next(name for name in map(str, range(99)) if group_partition(name, PARTITIONS) != taken)
    other = Machine()
    other.stored = machine.stored
    other.coordinator.start()
    assert await settled(other.commit(6)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await settled(other.commit(6, group_id=elsewhere)) is ErrorCode.NONE
    errors: list[ErrorCode] = []
    await other.coordinator.ask_all(lambda shard: list_groups(shard, [], []), errors.append)
    assert errors == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    other.coordinator.stop()


async def test_groups_of_partitions_led_elsewhere_are_refused_and_those_lost_are_sent_away(machine: Machine) -> None:
    first = machine.join()
    waiting = asyncio.ensure_future(machine.join())
    await turns_pass()
    machine.change(image_of(offsets_topic([2] * PARTITIONS, epoch=1), plain_topic()))
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert machine.beat(first.member_id, 1) is ErrorCode.NOT_COORDINATOR
    assert machine.commit(1) is ErrorCode.NOT_COORDINATOR


async def test_an_answer_that_waits_for_a_commit_hears_of_the_loss_too(machine: Machine) -> None:
    machine.commit(1)
    machine.partition().holds = True
    writing = asyncio.ensure_future(machine.commit(2))
    await turns_pass()
    machine.change(image_of(offsets_topic([2] * PARTITIONS, epoch=1), plain_topic()))
    assert await writing is ErrorCode.NOT_COORDINATOR


async def test_a_shard_is_read_anew_when_leadership_comes_back(machine: Machine) -> None:
    machine.commit(1)
    machine.change(image_of(offsets_topic([NODE] * PARTITIONS, epoch=2), plain_topic()))
    assert await settled(machine.offset()) == 1


async def test_without_the_topic_there_is_no_coordinator(machine: Machine) -> None:
    machine.commit(1)
    machine.change(image_of(plain_topic()), deleted=offsets_topic([NODE] * PARTITIONS))
    assert machine.commit(1) is ErrorCode.NOT_COORDINATOR
    assert not machine.coordinator._hosts


async def test_offsets_of_a_deleted_topic_are_removed_from_the_log(machine: Machine) -> None:
    machine.commit(5)
    machine.change(image_of(offsets_topic([NODE] * PARTITIONS), plain_topic("other")), deleted=plain_topic())
    assert machine.offset() == -1


async def test_offsets_of_a_topic_that_was_deleted_while_the_broker_was_down_are_removed(machine: Machine) -> None:
    machine.commit(5)
    other = Machine()
    other.stored = machine.stored
    other.image = image_of(offsets_topic([NODE] * PARTITIONS))
    other.coordinator.start()
    await settled(other.offset())
    host = other.coordinator._hosts[group_partition("g", PARTITIONS)]
    await until(lambda: not host.shard.groups["g"].offsets)
    assert machine.partition().log.log_end_offset == 2
    other.coordinator.stop()


async def test_expired_groups_are_removed_in_the_background() -> None:
    machine = Machine(offsets_retention_check_interval_ms="20")
    machine.coordinator.start()
    machine.write([OffsetRecord("g", "t", 0, CommittedOffset(1, expire_timestamp_ms=machine.now_ms() - 1))])
    host = machine.coordinator._hosts[group_partition("g", PARTITIONS)]
    await until(lambda: not host.shard.groups)
    machine.coordinator.stop()


async def test_a_big_removal_is_written_in_several_batches(machine: Machine) -> None:
    records: list[CoordinatorRecord] = [
        OffsetRecord("g" * 100, "t" * 200, i, CommittedOffset(i, metadata="m" * 100)) for i in range(5_000)
    ]
    assert machine.write(records) is ErrorCode.NONE
    sizes = [len(batch) for batch in machine.partition().log.batches]
    assert len(sizes) > 3 and max(sizes) < 700_000
    machine.commit(1)


async def test_a_stopped_coordinator_answers_those_who_wait_and_refuses_the_rest(machine: Machine) -> None:
    machine.join()
    waiting = asyncio.ensure_future(machine.join())
    await turns_pass()
    machine.coordinator.stop()
    assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
    assert machine.commit(1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
