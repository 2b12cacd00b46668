"""Appending to and reading from a partition log, and how its segments come and go."""

from __future__ import annotations

import errno
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import AppendOrigin, LogUnavailable, OffsetOutOfRange
from raftlog.broker.store.disk import OsDisk
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.store import Store
from raftlog.wire.batch import Record, check_crc, decode_batch, encode_batch, iterate_batches, parse_header
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import DIRECTORY, START_MS, FakeClock, LogWorld, batch_of

NONE = ErrorCode.NONE


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.opened.segments]


# Appending ---------------------------------------------------------------------------------------


def test_offset_and_epoch_are_written_into_the_clients_own_buffer_and_the_checksum_stays_right() -> None:
    world = LogWorld()
    world.append_values(b"a", b"b")
    buffer = bytearray(batch_of([b"c"], START_MS))
    result = world.log.append_as_leader(memoryview(buffer), 5, START_MS)
    header = parse_header(buffer)
    assert (result.base_offset, header.base_offset, header.partition_leader_epoch) == (2, 2, 5)
    assert check_crc(buffer, 0, header.size)
    assert world.log.read_bytes(2, 1000, 3, min_one=True) == buffer


def test_a_read_only_buffer_is_copied() -> None:
    world = LogWorld()
    batch = batch_of([b"a"], START_MS)
    world.append(batch)
    assert world.append(batch).base_offset == 1
    assert parse_header(batch).base_offset == 0


def test_with_log_append_time_the_broker_stamps_the_batch() -> None:
    world = LogWorld(LogConfig(message_timestamp_type="LogAppendTime"))
    result = world.log.append_as_leader(batch_of([b"a", b"b"], 1000), 0, START_MS)
    assert result.log_append_time_ms == START_MS
    found = decode_batch(world.log.read_bytes(0, 1000, 2, min_one=True))
    assert [record.timestamp for record in found] == [START_MS, START_MS]
    assert world.log.offset_for_timestamp(START_MS) == (0, START_MS, 0)


def test_a_refused_batch_changes_nothing() -> None:
    world = LogWorld(LogConfig(max_message_bytes=200))
    world.append_values(b"a")
    assert world.append_values(b"x" * 300).error is ErrorCode.MESSAGE_TOO_LARGE
    broken = bytearray(batch_of([b"a"], START_MS))
    broken[-1] ^= 1
    assert world.append(bytes(broken)).error is ErrorCode.CORRUPT_MESSAGE
    assert world.log.log_end_offset == 1
    world.log.check_invariants()


def test_new_settings_hold_from_the_next_append_on() -> None:
    world = LogWorld(LogConfig(segment_bytes=1 << 20))
    world.append_values(b"x" * 300)
    world.log.reconfigure(LogConfig(max_message_bytes=100))
    assert world.append_values(b"x" * 300).error is ErrorCode.MESSAGE_TOO_LARGE
    world.log.reconfigure(LogConfig(segment_bytes=400))
    assert world.append_values(b"x" * 300).error is NONE
    assert bases(world.log) == [0, 1]


def test_a_coordinator_may_append_several_batches_at_once() -> None:
    world = LogWorld()
    world.append_values(b"a")
    several = batch_of([b"b", b"c"], START_MS) + batch_of([b"d"], START_MS)
    assert world.append(several).error is ErrorCode.INVALID_RECORD
    result = world.append(several, origin=AppendOrigin.COORDINATOR)
    assert (result.error, result.base_offset, result.last_offset) == (NONE, 1, 3)
    headers = [header for _, header in iterate_batches(world.log.read_bytes(0, 1000, 4, min_one=True))]
    assert [header.base_offset for header in headers] == [0, 1, 3]


def test_a_follower_takes_what_its_leader_sent_and_nothing_else() -> None:
    leader, follower = LogWorld(), LogWorld()
    leader.append_values(b"a", epoch=2)
    leader.append_values(b"b", b"c", epoch=4)
    sent = leader.log.read_bytes(0, 1000, 3, min_one=True)
    assert follower.log.append_as_follower(sent, leader_epoch=3).last_offset == 0
    rest = leader.log.read_bytes(1, 1000, 3, min_one=True)
    assert follower.log.append_as_follower(rest).last_offset == 2
    assert follower.log.read_bytes(0, 1000, 3, min_one=True) == sent
    assert list(follower.log.opened.epochs) == [(2, 0), (4, 1)]
    assert follower.log.append_as_follower(rest).error is ErrorCode.OFFSET_OUT_OF_RANGE
    broken = bytearray(rest)
    broken[-1] ^= 1
    assert follower.log.append_as_follower(bytes(broken)).error is ErrorCode.CORRUPT_MESSAGE
    assert follower.log.append_as_follower(b"").error is NONE


def test_an_empty_follower_begins_within_a_batch_where_its_leader_does() -> None:
    """The leader's records were deleted up to the middle of a batch; a batch is sent whole."""
    leader, follower = LogWorld(), LogWorld()
    leader.append_values(b"a")
    leader.append_values(b"b", b"c", b"d", epoch=3)
    leader.log.delete_records_before(2)
    follower.log.truncate_fully_and_start_at(2)
    sent = leader.log.read_bytes(2, 1000, 4, min_one=True)

    assert follower.log.append_as_follower(sent).last_offset == 3

    assert (follower.log.log_start_offset, follower.log.high_watermark, follower.log.log_end_offset) == (2, 2, 4)
    follower.log.check_invariants()
    follower.log.update_high_watermark(4)
    assert follower.log.read_bytes(2, 1000, 4, min_one=True) == sent
    assert list(follower.log.opened.epochs) == [(3, 2)]
    follower.restart_killed().open()
    assert follower.log.read_bytes(2, 1000, 4, min_one=True) == sent
    follower.log.check_invariants()


def test_an_empty_follower_that_takes_nothing_of_such_a_batch_begins_where_it_was_to_begin() -> None:
    leader, follower = LogWorld(), LogWorld()
    leader.append_values(b"b", b"c", epoch=3)
    follower.log.truncate_fully_and_start_at(1)

    follower.log.append_as_follower(leader.log.read_bytes(0, 1000, 2, min_one=True), leader_epoch=2)

    assert (follower.log.log_start_offset, follower.log.log_end_offset) == (1, 1)
    follower.log.check_invariants()


def test_a_follower_with_records_takes_no_batch_that_begins_among_them() -> None:
    leader, follower = LogWorld(), LogWorld()
    leader.append_values(b"a", b"b")
    follower.append_values(b"a")
    sent = leader.log.read_bytes(0, 1000, 2, min_one=True)
    assert follower.log.append_as_follower(sent).error is ErrorCode.OFFSET_OUT_OF_RANGE
    assert follower.log.log_end_offset == 1


def test_flush_messages_asks_for_a_flush_before_the_acknowledgement() -> None:
    world = LogWorld(LogConfig(flush_messages=3))
    world.append_values(b"a", b"b")
    assert not world.log.flush_due
    world.append_values(b"c")
    assert world.log.flush_due
    world.log.storage.flush()
    assert not world.log.flush_due and world.log.recovery_point == 3


def test_what_was_appended_during_a_flush_is_not_called_safe() -> None:
    world = LogWorld()
    world.append_values(b"a")
    ticket = world.log.storage.begin_flush()
    assert ticket is not None
    world.append_values(b"b")
    ticket.sync()
    world.log.storage.end_flush(ticket)
    assert world.log.recovery_point == 1


def test_a_flush_that_a_truncation_overtook_says_nothing() -> None:
    world = LogWorld()
    world.append_values(b"a")
    world.append_values(b"b")
    ticket = world.log.storage.begin_flush()
    assert ticket is not None
    ticket.sync()
    world.log.truncate_to(1)
    world.append_values(b"c")
    world.log.storage.end_flush(ticket)
    assert world.log.recovery_point == 1


def test_an_epoch_is_known_from_its_first_moment_and_kept_from_its_first_record_on() -> None:
    world = LogWorld()
    world.append_values(b"a", epoch=0)
    world.log.assign_epoch(3)
    assert world.log.end_offset_for_epoch(3) == (3, 1) and world.log.end_offset_for_epoch(0) == (0, 1)
    world.restart_clean().open()
    assert list(world.log.opened.epochs) == [(0, 0)]
    world.log.assign_epoch(4)
    world.append_values(b"b", epoch=4)
    world.restart_clean().open()
    assert list(world.log.opened.epochs) == [(0, 0), (4, 1)]


def test_a_log_that_was_only_opened_is_closed_without_a_write() -> None:
    world = LogWorld()
    world.append_values(b"a")
    world.restart_clean().open()
    world.log.assign_epoch(9)
    size = world.log.storage.stored_bytes()
    before = world.disk.operations
    assert world.log.storage.begin_close() is None
    assert world.disk.operations == before and world.log.storage.clean and not world.log.is_open
    assert world.log.storage.stored_bytes() == size


def test_a_flush_that_ends_after_its_log_was_removed_writes_nothing_under_its_name() -> None:
    world = LogWorld()
    world.append_values(b"a")
    ticket = world.log.storage.begin_flush()
    assert ticket is not None
    world.log.storage.abandon()
    world.disk.remove_directory(DIRECTORY)
    ticket.sync()
    assert not [name for name in world.disk.names if name.startswith(DIRECTORY + "/")]


# Rolling -----------------------------------------------------------------------------------------


def test_a_segment_rolls_before_it_grows_beyond_segment_bytes() -> None:
    world = LogWorld(LogConfig(segment_bytes=1000))
    for _ in range(20):
        world.append_values(b"x" * 100)
    assert all(segment.size <= 1000 for segment in world.log.opened.segments)
    assert len(bases(world.log)) == 4


def test_a_segment_rolls_by_the_time_of_its_records_less_the_jitter() -> None:
    world = LogWorld(LogConfig(segment_ms=1000))
    for step in (0, 1000, 1):
        world.clock.ms += step
        world.append_values(b"x")
    assert bases(world.log) == [0, 2]
    jittered = LogWorld(LogConfig(segment_ms=1000, segment_jitter_ms=1000))
    jitter = 1000 - next(ms for ms in range(1, 1001) if rolls_after(jittered.config, ms))
    assert 0 <= jitter < 1000


def rolls_after(config: LogConfig, waited_ms: int) -> bool:
    world = LogWorld(config)
    world.append_values(b"x")
    world.clock.ms += waited_ms + 1
    world.append_values(b"x")
    return len(bases(world.log)) == 2


def test_a_segment_rolls_when_its_index_is_full() -> None:
    world = LogWorld(LogConfig(segment_index_bytes=36, index_interval_bytes=0))
    for _ in range(10):
        world.append_values(b"x")
        world.clock.ms += 10
    assert bases(world.log) == [0, 4, 8]


def test_a_segment_rolls_when_offsets_would_not_fit_beside_its_base() -> None:
    world = LogWorld()
    world.append_values(b"a")
    far = bytearray(batch_of([b"b"], START_MS))
    far[:8] = (2**31 + 5).to_bytes(8, "big")
    assert world.log.append_as_follower(bytes(far)).error is NONE
    assert bases(world.log) == [0, 2**31 + 5]
    assert parse_header(world.log.read_bytes(1, 1000, 2**31 + 6, min_one=True)).base_offset == 2**31 + 5


def test_room_is_reserved_for_a_new_segment_and_given_back() -> None:
    world = LogWorld(LogConfig(segment_bytes=1000, preallocate=True))
    world.append_values(b"x" * 600)
    file = world.disk.names[f"{DIRECTORY}/{0:020d}.log"]
    assert len(file.content) == 1000
    world.append_values(b"x" * 600)
    assert len(file.content) == world.log.opened.segments[0].size
    last = world.disk.names[f"{DIRECTORY}/{1:020d}.log"]
    world.log.storage.close()
    assert len(last.content) < 1000


# Reading -----------------------------------------------------------------------------------------


@pytest.fixture
def ten() -> LogWorld:
    """Ten batches of two records, in three segments."""
    world = LogWorld(LogConfig(segment_bytes=500))
    for number in range(10):
        world.append_values(b"%d" % number * 20, b"x" * 20)
    assert len(bases(world.log)) == 3
    return world


def first_base(log: PartitionLog, offset: int, max_bytes: int, end_offset: int) -> int:
    return parse_header(log.read_bytes(offset, max_bytes, end_offset, min_one=True)).base_offset


def test_a_read_begins_with_the_batch_that_holds_the_offset(ten: LogWorld) -> None:
    for offset in range(20):
        assert first_base(ten.log, offset, 1000, 20) == offset // 2 * 2


def test_a_read_ends_below_the_bound_and_within_one_segment(ten: LogWorld) -> None:
    size = ten.log.opened.segments[0].batch_size_at(0)
    assert len(ten.log.read_bytes(0, 10_000, 4, min_one=True)) == 2 * size
    assert len(ten.log.read_bytes(0, 10_000, 20, min_one=True)) == ten.log.opened.segments[0].size
    assert ten.log.read(4, 1000, 4, min_one=True) is None
    assert ten.log.read(20, 1000, 20, min_one=True) is None


def test_the_first_batch_is_whole_or_not_there(ten: LogWorld) -> None:
    size = ten.log.opened.segments[0].batch_size_at(0)
    assert len(ten.log.read_bytes(0, 10, 20, min_one=True)) == size
    assert ten.log.read(0, size - 1, 20, min_one=False) is None
    assert len(ten.log.read_bytes(0, size, 20, min_one=False)) == size
    assert len(ten.log.read_bytes(0, size + 50, 20, min_one=False)) == size + 50


def test_an_offset_outside_of_the_log_is_out_of_range(ten: LogWorld) -> None:
    ten.log.delete_records_before(5)
    for offset in (-1, 4, 21):
        with pytest.raises(OffsetOutOfRange):
            ten.log.read(offset, 1000, 20, min_one=True)
    assert first_base(ten.log, 5, 1000, 20) == 4


def test_a_consumer_that_keeps_up_is_served_without_a_search(ten: LogWorld) -> None:
    log = ten.log
    log.read(0, 10_000, 20, min_one=True)
    for _ in range(100):
        ten.append_values(b"new")
        before = ten.disk.bytes_read
        found = log.read(log.log_end_offset - 1, 10_000, log.log_end_offset, min_one=True)
        assert found is not None and ten.disk.bytes_read == before


def test_a_reader_that_was_held_at_a_bound_goes_on_there_without_a_search() -> None:
    world = LogWorld()
    for _ in range(200):
        world.append_values(b"x")
    world.log.opened.segments.forget_positions()
    world.log.read(0, 100_000, 50, min_one=True)
    before = world.disk.bytes_read
    assert first_base(world.log, 50, 100, 200) == 50
    assert world.disk.bytes_read - before < 200


@pytest.fixture
def on_disk(tmp_path: Path) -> Iterator[PartitionLog]:
    """A log in real files."""
    directory = tmp_path / "t-0"
    directory.mkdir()
    config = LogConfig(segment_bytes=1000, retention_ms=1000, file_delete_delay_ms=0)
    log = PartitionLog(Store(OsDisk(), FakeClock()), "t", 0, str(directory), config)
    yield log
    log.storage.abandon()


def test_a_slice_stays_readable_when_its_segment_is_removed(on_disk: PartitionLog) -> None:
    log = on_disk
    batches = [batch_of([b"%d" % number * 100], START_MS) for number in range(30)]
    for batch in batches:
        log.append_as_leader(batch, 0, START_MS)
    log.update_high_watermark(30)
    found = log.read(0, 10_000, 30, min_one=True)
    assert found is not None
    fd = found.fileno()
    assert log.apply_retention(START_MS + 5000) > 1
    log.storage.abandon()
    gc.collect()
    data = os.pread(fd, found.length, found.position)
    assert [record.value for record in decode_batch(data)] == [b"0" * 100]
    del found
    with pytest.raises(OSError) as closed:
        os.fstat(fd)
    assert closed.value.errno == errno.EBADF


def test_open_files_stay_under_their_limit(tmp_path: Path) -> None:
    store = Store(OsDisk(), FakeClock(), open_files_max=8)
    logs = []
    for number in range(20):
        directory = tmp_path / f"t-{number}"
        directory.mkdir()
        logs.append(PartitionLog(store, "t", number, str(directory), LogConfig()))
    for turn in range(3):
        for log in logs:
            assert log.append_as_leader(batch_of([b"x"], START_MS), 0, START_MS).base_offset == turn
            assert len(store.files) <= 8
    for log in logs:
        assert len(log.read_bytes(0, 10_000, 3, min_one=True)) > 150
        log.storage.close()
    assert len(store.files) == 0


# Times -------------------------------------------------------------------------------------------


def test_the_first_record_of_a_time_is_found_in_any_batch_of_any_segment() -> None:
    world = LogWorld(LogConfig(segment_bytes=800, index_interval_bytes=0))
    for number in range(20):
        records = [Record(n, START_MS + 100 * number + 10 * n, None, b"x") for n in range(3)]
        world.append(encode_batch(records))
    assert len(bases(world.log)) > 2
    for restart in (lambda: world.log, world.restart_clean, world.restart_killed):
        log = restart()
        for number in range(20):
            for n in range(3):
                time = START_MS + 100 * number + 10 * n
                assert log.offset_for_timestamp(time) == (3 * number + n, time, 0)
                assert log.offset_for_timestamp(time - 9) == (3 * number + n, time, 0)
        assert log.offset_for_timestamp(START_MS + 1921) is None
        assert log.offset_of_max_timestamp() == (59, START_MS + 1920, 0)


def test_times_may_run_backwards() -> None:
    world = LogWorld(LogConfig(segment_bytes=300, index_interval_bytes=0))
    for time in (50, 90, 20, 70, 10):
        world.append(encode_batch([Record(0, START_MS + time, None, b"x" * 60)]))
    log = world.log
    assert log.offset_of_max_timestamp() == (1, START_MS + 90, 0)
    assert [log.offset_for_timestamp(START_MS + time).offset for time in (10, 60, 90)] == [0, 1, 1]  # type: ignore[union-attr]
    log.delete_records_before(2)
    assert log.offset_for_timestamp(START_MS + 60) == (3, START_MS + 70, 0)
    assert log.offset_of_max_timestamp() == (3, START_MS + 70, 0)


def test_an_empty_log_has_no_times() -> None:
    world = LogWorld()
    assert world.log.offset_for_timestamp(0) is None and world.log.offset_of_max_timestamp() is None


# Removing ----------------------------------------------------------------------------------------


def test_records_are_deleted_at_once_and_their_files_with_the_next_retention(ten: LogWorld) -> None:
    log = ten.log
    log.delete_records_before(11)
    assert (log.log_start_offset, len(bases(log))) == (11, 3)
    log.delete_records_before(3)
    assert log.log_start_offset == 11
    with pytest.raises(OffsetOutOfRange):
        log.delete_records_before(21)
    assert log.apply_retention(ten.clock.ms) == 1
    assert log.log_start_offset == 11
    log.check_invariants()


def test_a_log_whose_records_are_all_too_old_goes_on_in_an_empty_segment() -> None:
    world = LogWorld(LogConfig(segment_bytes=500, retention_ms=1000))
    for _ in range(10):
        world.append_values(b"x" * 100)
    assert world.log.apply_retention(world.clock.ms + 1000) == 0
    count = len(bases(world.log))
    assert world.log.apply_retention(world.clock.ms + 2000) == count
    assert (world.log.log_start_offset, world.log.log_end_offset, bases(world.log)) == (10, 10, [10])
    assert world.append_values(b"y").base_offset == 10
    assert world.restart_killed().opened.segments[0].base_offset == 10
    assert (world.log.log_start_offset, world.log.log_end_offset) == (10, 11)


def test_truncation_takes_back_records_epochs_and_producers() -> None:
    world = LogWorld(LogConfig(segment_bytes=400))
    for number in range(12):
        batch = batch_of([b"x"], START_MS, producer_id=5, base_sequence=number)
        world.append(batch, epoch=number // 4)
    world.log.truncate_to(5)
    log = world.log
    assert (log.log_end_offset, log.high_watermark, log.latest_epoch) == (5, 5, 1)
    assert world.append(batch_of([b"x"], START_MS, producer_id=5, base_sequence=5)).base_offset == 5
    assert world.append(batch_of([b"x"], START_MS, producer_id=5, base_sequence=9)).error is not NONE
    log.truncate_fully_and_start_at(100)
    assert (log.log_start_offset, log.log_end_offset, log.latest_epoch) == (100, 100, -1)
    assert world.append_values(b"z").base_offset == 100
    log.check_invariants()


def test_a_log_that_is_offline_says_why_to_everybody() -> None:
    world = LogWorld()
    world.append_values(b"x")
    world.log.fail(OSError(errno.EIO, "the disk is gone"))
    for attempt in (world.log.storage.flush, lambda: world.log.opened, lambda: world.log.offset_for_timestamp(0)):
        with pytest.raises(LogUnavailable, match="the disk is gone"):
            attempt()
    assert world.append_values(b"x").message is not None


@pytest.mark.parametrize("batches", [1, 3, 400, 600])
def test_no_time_index_lies_there_without_an_offset_index(batches: int) -> None:
    """Kafka's tools open the offset index of every time index that they read."""
    world = LogWorld(LogConfig(index_interval_bytes=0, segment_bytes=1 << 20))
    for _ in range(batches):
        world.clock.ms += 1
        world.append_values(b"a")
        names = world.disk.list_directory(DIRECTORY)
        assert {f"{0:020d}.index" in names, f"{0:020d}.timeindex" in names} != {False, True}
    log = world.restart_clean()
    names = world.disk.list_directory(DIRECTORY)
    assert (f"{0:020d}.timeindex" in names) == (f"{0:020d}.index" in names) == (batches > 2)
    assert log.offset_for_timestamp(world.clock.ms) == (batches - 1, world.clock.ms, 0)
    assert log.offset_of_max_timestamp() == (batches - 1, world.clock.ms, 0)
