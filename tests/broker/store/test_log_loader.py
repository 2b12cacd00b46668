"""Opening a log, and cutting it: what is below the recovery point is not dropped, and what was does not come back."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.linearizability.simulator.machine.disk import PowerCut
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import DIRECTORY, START_MS, LogWorld, batch_of


def rolled_world() -> LogWorld:
    """Three segments, and the recovery point at the end of the second, as after each roll."""
    world = LogWorld(LogConfig(segment_bytes=1000))
    for sequence in range(30):
        batch = batch_of([b"x"], START_MS, producer_id=3, base_sequence=sequence)
        assert world.append(batch).error is ErrorCode.NONE
    pending = world.log.storage.begin_flush(rolled_only=True)
    assert pending is not None
    world.log.storage.complete_flush(pending)
    world.checkpoint()
    segments = world.log.opened.segments
    assert len(segments) == 3 and world.log.recovery_point == segments[2].base_offset
    return world


@pytest.mark.parametrize("byte, bit", [(0, 0x01), (0, 0x80), (5, 0x01), (8, 0x01), (23, 0x01)])
def test_a_safe_batch_that_is_damaged_before_the_last_segment_is_not_cut_off(byte: int, bit: int) -> None:
    """No checksum protects its offset and its length."""
    world = rolled_world()
    world.disk.names[world.log.opened.segments[1].log.path].content[byte] ^= bit
    before = {name: bytes(file.content) for name, file in world.disk.names.items() if name.endswith(".log")}
    with pytest.raises(LogUnavailable, match="offset"):
        world.restart_killed().open()
    after = {name: bytes(file.content) for name, file in world.disk.names.items() if name.endswith(".log")}
    assert (after, world.losses) == (before, 0)


def test_a_kill_loses_nothing_behind_a_segment_of_which_compaction_left_nothing() -> None:
    world = rolled_world()
    emptied = world.log.opened.segments[1]
    for path in emptied.paths:
        if path in world.disk.names:
            world.disk.names[path].content.clear()
    start = world.log.recovery_point
    log = world.restart_killed()
    log.open()
    assert (log.log_end_offset, world.losses) == (30, 0)
    assert log.read_bytes(start, 100, 30, min_one=True)
    log.check_invariants()


def test_a_snapshot_of_producers_whose_records_were_lost_does_not_come_back() -> None:
    """It would answer a new batch as a retry of one that is gone."""
    for seed in range(40):
        world = LogWorld()
        for sequence in range(4):
            world.append(batch_of([b"old"], START_MS, producer_id=3, base_sequence=sequence))
            if sequence == 1:
                world.log.storage.flush()
                world.checkpoint()
        # The power goes: of the last two batches only their snapshot had reached the disk.
        opened = world.log.opened
        opened.take_snapshot(4)
        world.disk.sync(world.disk.open(opened.snapshots.path(4)))
        world.disk.sync_directory(DIRECTORY)
        world.log.storage.abandon()
        world.disk.names[f"{DIRECTORY}/{0:020d}.log"].pending.clear()
        world.disk.crash(Random(seed))
        world.load().open()
        assert world.log.log_end_offset == 2
        for number in range(4):
            world.append(batch_of([b"new"], START_MS, producer_id=4, base_sequence=number))
        world.log.storage.flush()
        world.checkpoint()
        world.log.storage.abandon()
        world.disk.crash(Random(seed))
        world.load().open()
        assert world.log.log_end_offset == 6
        world.log.check_invariants()
        entries = world.log.opened.producers
        offsets = {entry.producer_id: [batch.last_offset for batch in entry.batches] for entry in entries}
        assert offsets == {3: [0, 1], 4: [2, 3, 4, 5]}, f"seed {seed}"


@pytest.mark.parametrize("damaged", [(1,), (1, 2)])
def test_a_damaged_snapshot_that_nobody_needed_since_is_passed_over_when_the_log_is_truncated(
    damaged: tuple[int, ...],
) -> None:
    """A power failure may leave an older one empty; the newest was read at the start, and the log is cut below it."""
    world = LogWorld(LogConfig(segment_bytes=1000))
    batches = [batch_of([b"%d" % n], START_MS, producer_id=1, base_sequence=n) for n in range(80)]
    for batch in batches:
        assert world.append(batch).error is ErrorCode.NONE
    world.log.storage.flush()
    world.checkpoint()
    offsets = world.log.opened.snapshots.offsets
    assert len(offsets) >= 4
    for number in damaged:
        world.disk.names[world.log.opened.snapshots.path(offsets[number])].content.clear()
    log = world.restart_killed()
    end = offsets[max(damaged)] + 5
    log.truncate_to(end)
    assert log.log_end_offset == end and log.offline_reason is None
    assert world.append(batches[end - 1]).duplicate
    assert world.append(batches[end]).base_offset == end
    log.check_invariants()


@pytest.mark.parametrize("offset", [1000, 3])
@pytest.mark.parametrize("start", [0, 5])
def test_a_crash_while_a_log_begins_anew_is_no_loss_of_safe_records(offset: int, start: int) -> None:
    """A follower's records had all expired at its leader, and it was about to drop them itself."""
    countdown, whole = 0, False
    while not whole:
        for seed in range(4):
            world = LogWorld(LogConfig(segment_bytes=300, index_interval_bytes=100))
            for number in range(10):
                world.append_values(b"%d" % number)
            world.log.storage.flush()
            world.log.delete_records_before(start)
            world.log.cleaned_offset = 8
            world.checkpoint()
            world.disk.countdown = countdown
            try:
                world.log.truncate_fully_and_start_at(offset)
                whole = True
            except PowerCut:
                world.disk.countdown = None
            world.log.storage.abandon()
            if seed:
                world.disk.crash(Random(countdown * 4 + seed))
            else:
                world.disk.kill()
            log = world.load()
            log.open()
            log.check_invariants()
            assert log.log_end_offset == offset or (not whole and min(start, offset) <= log.log_end_offset <= 10)
        countdown += 1
    assert countdown > 10


def test_what_a_log_that_begins_anew_gets_does_not_count_as_compacted_after_a_crash() -> None:
    world = rolled_world()
    world.log.cleaned_offset = 20
    noted = []
    world.log._store.before_truncation = lambda *_: noted.append(world.log.cleaned_offset)
    world.log.truncate_fully_and_start_at(5)
    assert noted == [5]


def test_the_greatest_time_is_known_though_a_crash_took_the_time_index_alone() -> None:
    for left in range(10):
        world = LogWorld(LogConfig(index_interval_bytes=0))
        for number in range(10):
            world.append(batch_of([b"x"], START_MS + (1000 if number == 4 else number)))
        active = world.log.opened.segments.active
        active.offsets.complete()
        active.times.complete()
        world.log.storage.flush()
        world.checkpoint()
        del world.disk.names[f"{DIRECTORY}/{0:020d}.timeindex"].content[12 * left :]
        log = world.restart_killed()
        found = log.offset_for_timestamp(START_MS + 500)
        assert found is not None and (found.offset, found.timestamp) == (4, START_MS + 1000)
        assert log.offset_of_max_timestamp() == found


@pytest.mark.parametrize("number", [0, 1])
def test_a_log_file_that_is_missing_beside_its_index_after_a_clean_stop_is_a_loss(number: int) -> None:
    """Without it the log would begin later, or have a gap; and the followers of who leads with that give theirs up."""
    world = LogWorld(LogConfig(segment_bytes=2000))
    for _ in range(60):
        world.append_values(b"value")
    log = world.restart_clean()
    del world.disk.names[sorted(name for name in world.disk.names if name.endswith(".log"))[number]]
    before = set(world.disk.names)
    with pytest.raises(LogUnavailable, match=r"\.index has no log file.* Restore it from a replica or a backup"):
        log.open()
    assert set(world.disk.names) == before
