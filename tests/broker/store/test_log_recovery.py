"""What a log is after its broker was killed, its machine lost power, or its files were damaged."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store import checksums
from raftlog.broker.store.log_recovery import PAGE_BYTES
from raftlog.broker.store.open_log import SNAPSHOT_INTERVAL_BYTES
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.machine.disk import PowerCut
from raftlog.wire.batch import check_crc, decode_batch, iterate_batches, parse_header
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import DIRECTORY, START_MS, LogWorld, batch_of

FIRST = f"{DIRECTORY}/{0:020d}"


def values_in(log: PartitionLog) -> list[bytes]:
    """Every value from the log start to the log end, read as consumers do, each offset checked."""
    log.open()
    found = []
    offset = log.log_start_offset
    while data := log.read_bytes(offset, 300, log.log_end_offset, min_one=True):
        for position, header in iterate_batches(data):
            assert header.base_offset == offset
            found += [record.value or b"" for record in decode_batch(memoryview(data)[position:])]
            offset = header.next_offset
    assert offset == log.log_end_offset
    return found


def numbered(start: int, end: int) -> list[bytes]:
    return [b"value %d" % number for number in range(start, end)]


def fill(world: LogWorld, start: int, end: int) -> None:
    for value in numbered(start, end):
        assert world.append_values(value).error is ErrorCode.NONE


def damage(world: LogWorld, path: str, position: int) -> None:
    content = world.disk.names[path].content
    content[position] ^= 0xFF
    world.disk.names[path].sync()


# Killed ------------------------------------------------------------------------------------------


def test_a_kill_loses_nothing_that_was_written() -> None:
    world = LogWorld(LogConfig(segment_bytes=1000, index_interval_bytes=100))
    fill(world, 0, 100)
    log = world.restart_killed()
    assert values_in(log) == numbered(0, 100)
    assert log.append_as_leader(batch_of([b"next"], START_MS), 0, START_MS).base_offset == 100


def test_after_a_kill_only_what_is_above_the_recovery_point_is_read() -> None:
    world = LogWorld(LogConfig(segment_bytes=1 << 30))
    batch = batch_of([b"x" * 20_000], START_MS)
    for _ in range(500):
        world.append(batch)
    world.log.storage.flush()
    world.checkpoint()
    for _ in range(30):
        world.append(batch)
    log = world.restart_killed()
    before = world.disk.bytes_read
    log.open()
    read = world.disk.bytes_read - before
    # Every batch above; below, headers behind the last producer snapshot and the last index entry.
    assert 30 * len(batch) <= read <= 30 * len(batch) + SNAPSHOT_INTERVAL_BYTES < 500 * len(batch) / 2
    assert log.log_end_offset == 530


def test_a_clean_restart_reads_next_to_nothing_and_is_open_at_the_end() -> None:
    world = LogWorld(LogConfig(segment_bytes=50_000))
    fill(world, 0, 3000)
    log = world.restart_clean()
    before = world.disk.bytes_read
    assert log.log_end_offset == 3000
    assert world.disk.bytes_read == before, "the end of a closed log is known without reading"
    log.open()
    assert world.disk.bytes_read - before < 20_000
    assert values_in(log) == numbered(0, 3000)


def test_what_was_recovered_is_on_stable_storage_before_it_is_served() -> None:
    world = LogWorld(LogConfig(segment_bytes=1000))
    fill(world, 0, 60)
    world.restart_killed().open()
    for seed in range(5):
        world.disk.crash(Random(seed))
        assert values_in(world.load()) == numbered(0, 60)


def test_the_high_watermark_is_remembered_and_never_beyond_the_end() -> None:
    world = LogWorld()
    fill(world, 0, 10)
    world.checkpoints = (0, 0, 999)
    assert world.restart_killed().opened and world.log.high_watermark == 10
    world.checkpoints = (0, 0, 4)
    assert world.restart_killed().opened and world.log.high_watermark == 4


def test_leader_epochs_that_were_never_flushed_come_back_from_the_batches() -> None:
    world = LogWorld()
    world.append_values(b"a", epoch=3)
    world.append_values(b"b", b"c", epoch=7)
    log = world.restart_killed()
    assert list(log.opened.epochs) == [(3, 0), (7, 1)]
    assert log.end_offset_for_epoch(5) == (3, 1)


def test_unused_room_is_given_back_without_an_alarm(caplog: pytest.LogCaptureFixture) -> None:
    world = LogWorld(LogConfig(segment_bytes=10_000, preallocate=True))
    fill(world, 0, 5)
    assert len(world.disk.names[FIRST + ".log"].content) == 10_000
    log = world.restart_killed()
    assert values_in(log) == numbered(0, 5)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    fill(world, 5, 6)
    assert values_in(log) == numbered(0, 6)


# Torn and damaged above the recovery point -------------------------------------------------------


@pytest.mark.parametrize("left", [1, 11, 12, 60, 61, 70])
def test_a_torn_tail_is_cut(left: int) -> None:
    world = LogWorld()
    fill(world, 0, 5)
    whole = len(world.disk.names[FIRST + ".log"].content)
    fill(world, 5, 6)
    file = world.disk.names[FIRST + ".log"]
    del file.content[whole + left :]
    log = world.restart_killed()
    assert values_in(log) == numbered(0, 5)
    assert len(file.content) == whole
    fill(world, 5, 8)
    assert values_in(log) == numbered(0, 8)


def test_a_damaged_batch_above_the_recovery_point_ends_the_log_and_the_loss_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = LogWorld(LogConfig(segment_bytes=1000))
    fill(world, 0, 40)
    first, *later = [world.disk.names[name] for name in sorted(world.disk.names) if name.endswith(".log")]
    size = world.log.opened.segments[0].batch_size_at(0)
    lost_bytes = len(first.content) - 3 * size
    later_bytes = sum(len(file.content) for file in later)
    damage(world, FIRST + ".log", 3 * size + 65)
    log = world.restart_killed()
    assert values_in(log) == numbered(0, 3)
    told = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]
    assert len(told) == 1
    assert world.losses == 1
    for part in ("CUT at offset 3", FIRST + ".log", f"{lost_bytes} bytes", f"{later_bytes} bytes", "up to offset 39"):
        assert part in told[0], told[0]
    assert [name for name in world.disk.names if name.endswith(".log")] == [FIRST + ".log"]


def test_a_write_that_a_kill_cut_short_is_no_loss_of_records() -> None:
    world = LogWorld()
    fill(world, 0, 5)
    file = world.disk.names[FIRST + ".log"]
    whole = len(file.content)
    world.append_values(b"x" * 10_000)
    del file.content[2 * PAGE_BYTES :]
    assert values_in(world.restart_killed()) == numbered(0, 5)
    assert (len(file.content), world.losses) == (whole, 0)


@pytest.mark.parametrize("place", [0, 8, 9, 11, 16, 17, 61, 9999])
@pytest.mark.parametrize("pages", [False, True])
def test_a_last_batch_that_is_there_and_damaged_is_a_loss(place: int, pages: bool) -> None:
    world = LogWorld()
    fill(world, 0, 5)
    file = world.disk.names[FIRST + ".log"]
    whole = len(file.content)
    frame = len(batch_of([b"x" * 10_000], START_MS)) - 10_000
    world.append_values(b"x" * (3 * PAGE_BYTES - whole - frame + (0 if pages else 7)))
    assert (len(file.content) % PAGE_BYTES == 0) is pages
    damage(world, FIRST + ".log", whole + place)
    assert values_in(world.restart_killed()) == numbered(0, 5)
    # A length that lies, in a file that happens to end with a page, is all that cannot be told from a write cut short.
    assert world.losses == (0 if pages and place in (9, 11) else 1)


def test_a_segment_whose_predecessor_lost_its_end_is_cut_off_with_it() -> None:
    world = LogWorld(LogConfig(segment_bytes=1000))
    fill(world, 0, 20)
    first = world.disk.names[FIRST + ".log"]
    del first.content[-world.log.opened.segments[0].batch_size_at(0) :]
    end = world.log.opened.segments[1].base_offset - 1
    assert values_in(world.restart_killed()) == numbered(0, end)


@pytest.mark.parametrize("later_ms", [2000, -3_600_000])
def test_a_full_disk_leaves_no_piece_of_the_refused_batch(later_ms: int) -> None:
    """And it is used again when it has room, though the clock may have been set back."""
    world = LogWorld()
    fill(world, 0, 3)
    size = len(world.disk.names[FIRST + ".log"].content)
    world.disk.full = True
    refused = world.append_values(b"no room")
    assert refused.error is ErrorCode.KAFKA_STORAGE_ERROR and "No space left" in (refused.message or "")
    assert len(world.disk.names[FIRST + ".log"].content) == size
    assert world.append_values(b"no room").error is ErrorCode.KAFKA_STORAGE_ERROR
    assert values_in(world.log) == numbered(0, 3), "reading goes on"
    world.disk.full = False
    world.clock.ms += later_ms
    fill(world, 3, 5)
    assert values_in(world.log) == numbered(0, 5)
    assert world.log.storage.full_reason is None


def test_an_io_error_takes_the_log_offline_until_the_next_start() -> None:
    world = LogWorld()
    failures: list[str] = []
    world.log._store.on_failure = lambda _, reason: failures.append(reason)
    fill(world, 0, 3)
    world.disk.failing = {"write": ".log"}
    assert world.append_values(b"x").error is ErrorCode.KAFKA_STORAGE_ERROR
    world.disk.failing = {}
    assert world.append_values(b"x").error is ErrorCode.KAFKA_STORAGE_ERROR
    with pytest.raises(LogUnavailable, match="Input/output error"):
        world.log.read(0, 1000, 3, min_one=True)
    assert len(failures) == 1 and DIRECTORY in failures[0]
    assert values_in(world.restart_killed()) == numbered(0, 3)


# Damaged below the recovery point ----------------------------------------------------------------


def safe_world() -> LogWorld:
    world = LogWorld(LogConfig(segment_bytes=2000))
    fill(world, 0, 60)
    world.log.storage.flush()
    world.checkpoint()
    return world


def damaged_header(world: LogWorld) -> None:
    last = max(name for name in world.disk.names if name.endswith(".log"))
    damage(world, last, 16)


def shortened(world: LogWorld) -> None:
    last = max(name for name in world.disk.names if name.endswith(".log"))
    del world.disk.names[last].content[-10:]


def last_segment_gone(world: LogWorld) -> None:
    last = max(name for name in world.disk.names if name.endswith(".log"))
    del world.disk.names[last]


def all_gone(world: LogWorld) -> None:
    for name in [name for name in world.disk.names if name.endswith(".log")]:
        del world.disk.names[name]


@pytest.mark.parametrize("harm", [damaged_header, shortened, last_segment_gone, all_gone])
@pytest.mark.parametrize("clean", [False, True])
def test_the_loss_of_safe_records_takes_the_partition_offline_and_touches_nothing(
    harm: Callable[[LogWorld], None], clean: bool
) -> None:
    world = safe_world()
    if clean:
        world.restart_clean()
    harm(world)
    before = {name: bytes(file.content) for name, file in world.disk.names.items() if name.endswith(".log")}
    log = world.load() if clean else world.restart_killed()
    with pytest.raises(LogUnavailable) as told:
        log.open()
    assert DIRECTORY in str(told.value) and "offset" in str(told.value)
    assert "Restore" in str(told.value) and "backup" in str(told.value)
    assert log.append_as_leader(batch_of([b"x"], START_MS), 0, START_MS).error is ErrorCode.KAFKA_STORAGE_ERROR
    after = {name: bytes(file.content) for name, file in world.disk.names.items() if name.endswith(".log")}
    assert after == before


def test_damage_that_a_reader_meets_takes_the_partition_offline() -> None:
    world = LogWorld(LogConfig(index_interval_bytes=1 << 30))
    fill(world, 0, 20)
    size = world.log.opened.segments.active.batch_size_at(0)
    world.log.opened.segments.forget_positions()
    damage(world, FIRST + ".log", 5 * size + 16)
    with pytest.raises(LogUnavailable, match=f"at byte {5 * size}"):
        world.log.read(10, 1000, 20, min_one=True)
    assert world.append_values(b"x").error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("clean", [True, False])
def test_a_record_that_rotted_below_the_recovery_point_is_found_when_it_is_first_read(clean: bool) -> None:
    """Only headers are read at the start, and no client need look at checksums."""
    world = LogWorld()
    fill(world, 0, 50)
    world.log.storage.flush()
    world.checkpoint()
    size = world.log.opened.segments.active.batch_size_at(0)
    if clean:
        world.restart_clean()
    else:
        world.log.storage.abandon()
    damage(world, FIRST + ".log", 20 * size + 70)
    log = world.load() if clean else world.restart_killed()
    assert log.open() and log.log_end_offset == 50
    assert world.append_values(b"after").base_offset == 50
    assert log.read_bytes(50, 1000, 51, min_one=True), "what this process wrote is known to be sound"
    with pytest.raises(LogUnavailable, match=rf"{FIRST}\.log: at byte \d+ .*the batch of offset 20 does not match"):
        log.read(10, 1000, 50, min_one=True)
    assert world.append_values(b"x").error is ErrorCode.KAFKA_STORAGE_ERROR


@pytest.mark.parametrize("bytes_max", [1, 5_000, 1 << 20])
def test_what_was_there_before_is_compared_once_however_it_is_read(
    bytes_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[int] = []

    def check(data: memoryview, at: int, size: int) -> bool:
        compared.append(parse_header(data, at).base_offset)
        return check_crc(data, at, size)

    monkeypatch.setattr(checksums, "check_crc", check)
    monkeypatch.setattr(checksums, "CHECK_BYTES", 3_000)
    monkeypatch.setattr(checksums, "CHECKED_BY_A_READ", 20_000)
    world = LogWorld()
    for number in range(60):
        world.append_values(b"x" * (1 if number % 7 else 4_000))
    log = world.restart_clean()

    def read_through(offset: int) -> list[int]:
        found = []
        while data := log.read_bytes(offset, bytes_max, 60, min_one=True):
            found += [header.base_offset for _, header in iterate_batches(data)]
            offset = found[-1] + 1
        return found

    log.open()
    assert read_through(0) == list(range(60)) == compared
    assert read_through(30) == list(range(30, 60))
    world.append_values(b"new")
    assert read_through(0)[-1] == 59 and len(compared) == 60


# Indexes and leftovers ---------------------------------------------------------------------------


@pytest.mark.parametrize("harm", ["zeros", "cut", "gone", "garbage"])
@pytest.mark.parametrize("kind", [".index", ".timeindex"])
def test_a_lost_index_is_made_again(harm: str, kind: str) -> None:
    world = LogWorld(LogConfig(segment_bytes=8000, index_interval_bytes=200))
    fill(world, 0, 150)
    active = world.log.opened.segments.active
    active.offsets.complete()
    active.times.complete()
    world.log.storage.flush()
    world.checkpoint()
    # A crash can harm the indexes of the segment that was being written: the others are synced when they are done.
    names = sorted(name for name in world.disk.names if name.endswith(kind))
    for name in names if harm == "gone" else names[-1:]:
        content = world.disk.names[name].content
        if harm == "zeros":
            content[:] = bytes(len(content))
        elif harm == "cut":
            del content[5:]
        elif harm == "garbage":
            content.extend(b"\x7f" * 31)
        else:
            del world.disk.names[name]
    log = world.restart_killed()
    assert values_in(log) == numbered(0, 150)
    for offset in (149, 140, 131, 3):
        found = log.read(offset, 100, 150, min_one=True)
        assert found is not None
        data = found.read()
        assert next(iterate_batches(data))[1].base_offset == offset
    newest = log.offset_of_max_timestamp()
    assert newest is not None and newest.offset >= 0


def test_a_damaged_snapshot_is_passed_over_for_the_records_themselves() -> None:
    world = LogWorld(LogConfig(segment_bytes=1000))
    batches = [batch_of([b"%d" % n], START_MS, producer_id=1, base_sequence=n) for n in range(30)]
    for batch in batches:
        world.append(batch)
    world.log.storage.flush()
    world.checkpoint()
    for name in [name for name in world.disk.names if name.endswith(".snapshot")]:
        damage(world, name, 8)
    world.restart_killed()
    assert world.append(batches[29]).duplicate


def test_leftovers_of_an_interrupted_removal_are_removed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = LogWorld()
    fill(world, 0, 3)
    for suffix in (".log.deleted", ".index.deleted", ".snapshot.deleted", ".log.cleaned", ".index.cleaned"):
        world.disk.open(f"{DIRECTORY}/{77:020d}{suffix}", create=True)
    world.disk.open(f"{DIRECTORY}/{78:020d}.timeindex", create=True)
    assert values_in(world.restart_killed()) == numbered(0, 3)
    assert not [name for name in world.disk.names if f"{77:020d}" in name or f"{78:020d}" in name]
    assert [line for line in caplog.messages if "deleted" in line] == [
        f"log={DIRECTORY} removing 3 files of segments that were deleted before the stop"
    ]


# Power cuts --------------------------------------------------------------------------------------


class Life:
    """A scripted life of a log that notes what is written and what of it is safe."""

    def __init__(self) -> None:
        self.world = LogWorld(LogConfig(segment_bytes=500, index_interval_bytes=100, file_delete_delay_ms=0))
        self.written = 0
        self.safe = 0
        self.cut_to: int | None = None

    def run(self) -> None:
        world = self.world
        self.append(8)
        self.flush()
        world.checkpoint()
        self.append(9)
        self.cut_to = 13
        self.safe = min(self.safe, 13)
        world.log.truncate_to(13)
        self.written = self.safe = 13
        self.cut_to = None
        self.append(6)
        self.flush()
        world.log.delete_records_before(5)
        world.log.apply_retention(world.clock.ms)
        self.append(5)
        world.log.storage.close()
        self.safe = self.written
        world.checkpoint()
        self.append(3)

    def append(self, count: int) -> None:
        for _ in range(count):
            value = numbered(self.written, self.written + 1)
            # It may be in the log before the power goes, but not whole before it is counted.
            self.written += 1
            assert self.world.append_values(*value).error is ErrorCode.NONE

    def flush(self) -> None:
        self.world.log.storage.flush()
        self.safe = self.written


def test_a_power_cut_at_any_operation_loses_only_what_was_not_flushed() -> None:
    countdown = 0
    while True:
        for seed in range(4):
            life = Life()
            life.world.disk.countdown = countdown
            try:
                life.run()
                assert countdown > 100
                return
            except PowerCut:
                life.world.disk.countdown = None
            life.world.log.storage.abandon()
            if seed:
                life.world.disk.crash(Random(seed))
            else:
                life.world.disk.kill()
            log = life.world.load()
            log.open()
            log.check_invariants()
            assert life.safe <= log.log_end_offset <= life.written, (countdown, seed)
            if not seed and life.cut_to is None:
                assert log.log_end_offset >= life.written - 1
            assert values_in(log) == numbered(log.log_start_offset, log.log_end_offset)
            countdown += seed == 3
