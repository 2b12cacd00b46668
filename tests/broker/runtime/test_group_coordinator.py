"""The group coordinator around its shards: when answers leave, how shards load, what the metadata does to them."""

from __future__ import annotations

import asyncio
import gc
import time
from itertools import count
from typing import Any

import pytest

from raftlog.broker.core.coordinator.loading import RECORDS_A_STEP
from raftlog.broker.core.coordinator.shared import coordinator_partition
from raftlog.broker.core.group.member import Member
from raftlog.broker.core.group.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetRecord,
    TopicOffsets,
)
from raftlog.broker.runtime import coordinator_runtime
from raftlog.broker.runtime.coordinator_runtime import SLICE_SECONDS
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from tests.broker.runtime.coordinator_world import (
    NODE,
    PARTITIONS,
    TOPIC_ID,
    Machine,
    image_of,
    offsets_topic,
    plain_topic,
    running,
    settled,
    turns_pass,
)
from tests.waiting import until


@pytest.fixture
async def machine() -> Any:
    async with running(Machine()) as made:
        yield made


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
    # The group still takes the lost client for a member, as Kafka does, until its time is up.
    assert (await settled(machine.join(first.member_id))).generation_id == 2
    (host,) = machine.coordinator.hosts.values()
    assert not host._unanswered


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
    host = machine.coordinator.hosts[coordinator_partition("g", PARTITIONS)]
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
    listed = await other.list()
    assert sorted(group.group_id for group in listed.groups) == ["a", "b", "c", "d", "g"]
    assert listed.error_code == ErrorCode.NONE
    other.coordinator.stop()


async def test_shards_are_loaded_in_the_background_and_only_those_that_have_a_log(machine: Machine) -> None:
    machine.commit(5)
    other = Machine()
    other.stored = dict(machine.stored)
    other.coordinator.start()
    hosts = other.coordinator.hosts
    await until(lambda: bool(hosts) and all(host.is_loaded for host in hosts.values()))
    assert list(other.coordinator.hosts) == [coordinator_partition("g", PARTITIONS)] == list(other.stored)
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
    # Each step takes as long as loading may keep the event loop.
    other.monotonic = count(0, SLICE_SECONDS).__next__
    other.coordinator.start()
    turns = 0
    answer = asyncio.ensure_future(other.offset())
    while not answer.done():
        turns += 1
        await asyncio.sleep(0)
    assert await answer == 45_000
    assert turns > 50_000 / RECORDS_A_STEP
    other.coordinator.stop()


async def test_a_commit_of_many_partitions_is_one_batch_and_there_again_after_a_restart(machine: Machine) -> None:
    offsets = {i: CommittedOffset(i * 2, commit_timestamp_ms=7, topic_id=TOPIC_ID) for i in range(300)}
    written = machine.partition().log
    machine.write([OffsetRecord("g", "t", 0, CommittedOffset(1)), TopicOffsets("g", "u", offsets)])
    assert written.log_end_offset == 301 and len(written.batches) == 1
    other = Machine()
    other.stored = machine.stored
    other.coordinator.start()
    await other.offset()
    (host,) = other.coordinator.hosts.values()
    assert host.shard.groups["g"].offsets.by_topic["u"] == offsets
    other.check()
    other.coordinator.stop()


async def test_a_shard_that_was_loaded_goes_without_the_garbage_collector(machine: Machine) -> None:
    # While it is loaded the collector rests, and afterwards it never looks at it.
    def members() -> int:
        return sum(isinstance(each, Member) for each in gc.get_objects())

    stored = MemberMetadata("m", None, "c", "h", 1_000, 1_000, b"", b"")
    machine.write([GroupRecord("g", GroupMetadata("consumer", 1, "range", "m", 0, (stored,)))])
    other = Machine()
    other.stored = machine.stored
    other.coordinator.start()
    await other.offset()
    gc.collect()
    gc.disable()
    try:
        before = members()
        other.coordinator.stop()
        await turns_pass()
        assert members() == before - 1
    finally:
        gc.enable()


async def test_what_came_while_the_shard_was_loading_is_answered_when_it_is_committed_and_not_before(
    machine: Machine,
) -> None:
    machine.commit(5)
    other = Machine()
    other.stored = machine.stored
    other.partition().holds = True
    other.coordinator.start()
    writing = asyncio.ensure_future(other.commit(6))
    (host,) = other.coordinator.hosts.values()
    assert not host.is_loaded
    await until(lambda: host.is_loaded)
    await turns_pass()
    assert not writing.done()
    other.partition().commit()
    assert await writing is ErrorCode.NONE
    other.coordinator.stop()


async def test_members_have_a_whole_session_from_when_their_shard_can_be_asked(machine: Machine) -> None:
    """However long it took to load: nobody could hear of them meanwhile."""
    group_ids = [name for name in map(str, range(20)) if coordinator_partition(name, PARTITIONS) == 0]
    for group_id in group_ids:
        joined = machine.join(group_id=group_id)
        assert machine.sync(joined.member_id, joined.generation_id, group_id).error_code == ErrorCode.NONE
    loaded, seconds = Machine(), 0.0
    loaded.monotonic = lambda: seconds  # type: ignore[method-assign]
    host = loaded.coordinator.make_host(0, machine.partition(group_ids[0]))
    for _ in host.load():
        seconds += 7
    for later, is_there in ((0, True), (5.9, True), (0.2, False)):
        seconds += later
        host.tick()
        groups = host.shard.groups.values()
        assert [bool(group.members_count) for group in groups] == [is_there] * len(group_ids)
        host.check_invariants()


async def test_who_waits_for_a_shard_that_does_not_come_to_be_loaded_is_told_to_come_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.commit(5)
    monkeypatch.setattr(coordinator_runtime, "LOAD_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(GroupHost, "load", lambda self: iter(lambda: None, 1))
    other = Machine()
    other.stored = machine.stored
    other.coordinator.start()
    assert await settled(other.commit(6)) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (await other.list()).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    other.coordinator.stop()


async def test_a_log_that_cannot_be_read_is_not_served_and_the_others_are(machine: Machine) -> None:
    machine.commit(5)
    partition = machine.partition()
    partition.log.batches[0] = partition.log.batches[0][:-1] + b"\x55"
    taken = coordinator_partition("g", PARTITIONS)
    elsewhere = next(name for name in map(str, range(99)) if coordinator_partition(name, PARTITIONS) != taken)
    other = Machine()
    other.stored = machine.stored
    other.coordinator.start()
    assert await settled(other.commit(6)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await settled(other.commit(6, group_id=elsewhere)) is ErrorCode.NONE
    assert (await other.list()).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
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
    assert not machine.coordinator.hosts


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
    host = other.coordinator.hosts[coordinator_partition("g", PARTITIONS)]
    await until(lambda: not host.shard.groups["g"].offsets)
    assert machine.partition().log.log_end_offset == 2
    other.coordinator.stop()


async def test_expired_groups_are_removed_in_the_background() -> None:
    machine = Machine(offsets_retention_check_interval_ms="20")
    machine.coordinator.start()
    machine.write([OffsetRecord("g", "t", 0, CommittedOffset(1, expire_timestamp_ms=machine.now_ms() - 1))])
    host = machine.coordinator.hosts[coordinator_partition("g", PARTITIONS)]
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
