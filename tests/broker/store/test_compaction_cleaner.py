"""The cleaner on whole logs: what readers find afterwards, and after a crash at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store.cleaner import drive
from raftlog.broker.store.segment import Segment
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.wire.compression import Compression
from tests.broker.store.compaction_world import CONFIG, DIRECTORY, CompactedLog, copy_of, power_cuts, run_steps
from tests.broker.store.log_world import unlimited
from tests.effort import examples
from tests.waiting import until

CODECS = [Compression.NONE, Compression.GZIP, Compression.LZ4]


def busy_log(seed: int = 1, rounds: int = 60) -> CompactedLog:
    """A log of many small segments with overwritten keys, tombstones, producers and transactions."""
    random = Random(seed)
    world = CompactedLog()
    open_transactions: dict[int, int] = {}
    for _ in range(rounds):
        world.clock.ms += random.randrange(2000)
        pairs = [
            (f"k{random.randrange(9)}", None if random.random() < 0.2 else f"{random.randrange(10**6)}")
            for _ in range(random.randrange(1, 5))
        ]
        producer = random.choice([-1, -1, 1, 2, 11, 12])
        codec = random.choice(CODECS)
        if producer > 10:
            world.append(*pairs, codec=codec, producer_id=producer, transactional=1)
            open_transactions[producer] = 1
            if random.random() < 0.6:
                world.end_transaction(producer, committed=random.random() < 0.5)
                open_transactions.pop(producer)
        elif producer > 0:
            world.append(*pairs, codec=codec, producer_id=producer)
        else:
            world.append(*pairs, codec=codec)
    for producer in open_transactions:
        world.end_transaction(producer, committed=True)
    return world


def producers_of(world: CompactedLog) -> dict[int, tuple[int, int]]:
    producers = world.log.opened.producers
    return {entry.producer_id: (entry.epoch, entry.last_sequence) for entry in producers}


def leftovers(disk: FaultyDisk) -> list[str]:
    return [name for name in disk.list_directory(DIRECTORY) if name.endswith((".cleaned", ".swap", ".deleted"))]


def test_each_key_is_there_once_and_the_log_is_smaller() -> None:
    world = CompactedLog()
    for number in range(100):
        world.append((f"k{number % 5}", f"value {number}"))
    end, size = world.log.log_end_offset, world.log.storage.stored_bytes()
    assert world.compact()
    assert world.log.log_end_offset == end
    assert world.log.log_start_offset == 0
    assert world.log.storage.stored_bytes() < size / 3
    below = [record for record in world.records() if record.offset < world.log.cleaned_offset]
    assert len(below) == len({record.key for record in below}) == 5
    assert world.values() == {f"k{n}".encode(): f"value {95 + n}".encode() for n in range(5)}
    world.log.check_invariants()
    assert leftovers(world.disk) == []


def test_a_second_run_has_nothing_to_do_until_there_is_more() -> None:
    world = busy_log()
    assert world.compact()
    assert not world.compact()
    for number in range(20):
        world.append(("k", f"{number}" * 10))
    assert world.compact()


def test_segments_that_have_become_small_are_put_together() -> None:
    world = busy_log(rounds=150)
    before = len(world.log.opened.segments)
    world.compact()
    fill(world)
    world.compact()
    segments = world.log.opened.segments
    assert len(segments) < before / 2
    assert all(segment.size <= CONFIG.segment_bytes + 200 for segment in segments)


@settings(max_examples=examples(15))
@given(seed=st.integers(0, 10**6))
def test_readers_find_the_same_values_and_producers_the_same_sequences(seed: int) -> None:
    world = busy_log(seed, 40)
    original = {record.offset: record for record in world.records()}
    values, producers = world.values(), producers_of(world)
    for _ in range(3):
        world.compact()
        assert world.values() == values
        assert all(original[record.offset] == record for record in world.records())
        assert producers_of(world.reopened()) == producers
        world.log.check_invariants()
        world.clock.ms += CONFIG.delete_retention_ms
        world.append(("filler", "x" * 50))
        world.append(("filler", "x" * 50))
        values[b"filler"] = b"x" * 50
        producers = producers_of(world)
        original |= {record.offset: record for record in world.records()}


def test_every_offset_can_still_be_read_from() -> None:
    world = busy_log(3, 80)
    world.compact()
    everything = world.records()
    for start in range(world.log.log_end_offset + 1):
        assert world.records(start) == [record for record in everything if record.offset >= start]


def test_tombstones_are_gone_after_the_retention_time_and_not_before() -> None:
    world = CompactedLog()
    world.append(("gone", "1"))
    world.append(("gone", None))
    fill(world)
    world.compact()
    assert [(r.key, r.value) for r in world.records() if r.key == b"gone"] == [(b"gone", None)]
    world.clock.ms += CONFIG.delete_retention_ms - 1
    fill(world)
    world.compact()
    assert any(record.key == b"gone" for record in world.records())
    world.clock.ms += 1
    fill(world)
    world.compact()
    assert not any(record.key == b"gone" for record in world.records())


def fill(world: CompactedLog) -> None:
    """Enough of one key that what came before is no longer in the active segment."""
    for number in range(8):
        world.append(("filler", f"{number}" * 60))


def test_what_is_not_on_stable_storage_is_not_compacted() -> None:
    world = CompactedLog()
    for number in range(50):
        world.append(("k", f"{number}" * 10))
    assert world.cleaner.choose([world.log], world.clock.now_ms()) is None
    world.log.storage.flush()
    assert world.cleaner.choose([world.log], world.clock.now_ms()) is world.log


def test_an_open_transaction_holds_compaction_up() -> None:
    world = CompactedLog()
    world.append(("a", "1"))
    world.append(("a", "2"), producer_id=5, transactional=1)
    fill(world)
    assert not world.compact()
    world.end_transaction(5, committed=True)
    fill(world)
    assert world.compact()
    assert world.values()[b"a"] == b"2"


def test_only_logs_that_are_due_are_chosen_and_the_dirtiest_first() -> None:
    half, dirty, deleting = (
        CompactedLog(),
        CompactedLog(),
        CompactedLog(config=replace(CONFIG, cleanup_policy=("delete",))),
    )
    for world in (half, dirty, deleting):
        for number in range(40):
            world.append((f"k{number}", "x" * 30))
        world.log.storage.flush()
    half.compact()
    for number in range(20):
        half.append((f"m{number}", "x" * 30))
    half.log.storage.flush()
    logs = [half.log, deleting.log, dirty.log]
    now = half.clock.now_ms()
    assert half.cleaner.choose(logs, now) is dirty.log
    assert half.cleaner.choose(logs[:2], now) is half.log
    assert half.cleaner.choose(logs[1:2], now) is None
    half.log.reconfigure(replace(CONFIG, min_cleanable_dirty_ratio=0.6))
    assert half.cleaner.choose(logs[:2], now) is None
    dirty.log.storage.close()
    assert half.cleaner.choose(logs, now) is None, "a closed log is not opened for this"


def test_a_map_that_is_too_small_takes_several_runs() -> None:
    world = CompactedLog()
    for number in range(120):
        world.append((f"k{number % 40}", f"{number}" * 5))
    values = world.values()
    world.cleaner.map_bytes = 16 * 24
    runs = 0
    while world.compact():
        runs += 1
        assert world.values() == values
    assert runs > 3
    below = [record for record in world.records() if record.offset < world.log.cleaned_offset]
    assert len(below) == len({record.key for record in below})


@pytest.mark.parametrize("place", [2, 7, 8, 45, 70], ids=["far offset", "offset", "length", "producer", "record"])
def test_a_log_whose_batches_are_damaged_is_given_up_and_left_as_it_is(place: int) -> None:
    """A record that rotted must not get a checksum that is right."""
    world = busy_log()
    world.log.storage.flush()
    first = world.disk.names[f"{DIRECTORY}/{0:020d}.log"]
    first.content[place] ^= 0xFF
    before = bytes(first.content)
    run_steps(world.steps())
    assert world.log in world.cleaner.uncleanable
    assert world.cleaner.choose([world.log], world.clock.now_ms()) is None
    assert bytes(first.content) == before
    assert leftovers(world.disk) == []


# Meanwhile ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("after", [1, 3, 10, 30, 60])
def test_a_run_gives_up_when_the_log_is_truncated_below_it(after: int) -> None:
    world = busy_log()
    world.log.storage.flush()
    steps = world.steps()
    for _ in range(after):
        step = next(steps)
        if step is not None:
            step()
    end = world.log.opened.segments[2].base_offset
    world.log.truncate_to(end)
    expected = world.records()
    run_steps(steps)
    assert world.log.log_end_offset == end
    assert world.records() == expected
    assert leftovers(world.disk) == []
    assert world.log.cleaned_offset <= end


@pytest.mark.parametrize("after", [1, 10, 40])
@pytest.mark.parametrize("how", ["closed", "retention", "deleted"])
def test_a_run_gives_up_when_the_log_changes(after: int, how: str) -> None:
    world = busy_log()
    world.log.storage.flush()
    steps = world.steps()
    for _ in range(after):
        step = next(steps)
        if step is not None:
            step()
    if how == "closed":
        world.log.storage.close()
    elif how == "retention":
        world.log.delete_records_before(world.log.opened.segments[2].base_offset)
        world.log.apply_retention(world.clock.now_ms())
    else:
        world.log.storage.abandon()
        world.disk.remove_directory(DIRECTORY)
    expected = world.values() if how != "deleted" else {}
    run_steps(steps)
    if how != "deleted":
        assert world.values() == expected
    assert leftovers(world.disk) == []


@pytest.mark.parametrize("slots", range(6, 30, 2))
def test_segments_that_go_while_the_map_is_made_do_not_make_a_run_claim_more_than_it_did(slots: int) -> None:
    base = CompactedLog(config=replace(CONFIG, cleanup_policy=("compact", "delete")))
    for number in range(40):
        base.append((f"k{number % 20}", f"{number}" * 8))
    base.log.storage.flush()
    for after in range(1, 30, 2):
        world = base.reopened()
        world.cleaner.map_bytes = slots * 24
        steps = world.steps()
        for _ in range(after):
            step = next(steps, None)
            if step is not None:
                step()
        world.log.delete_records_before(world.log.opened.segments[1].base_offset)
        world.log.apply_retention(world.clock.now_ms())
        run_steps(steps)
        left = world.records(world.log.log_start_offset)
        clean = [record for record in left if record.offset < world.log.cleaned_offset]
        assert len(clean) == len({record.key for record in clean})


def test_appends_and_reads_go_on_between_the_steps() -> None:
    world = busy_log()
    world.log.storage.flush()
    added = 0
    for step in world.steps():
        if step is not None:
            step()
        if added < 200:
            world.append(("meanwhile", f"{added}"))
            added += 1
            assert world.records(world.log.log_end_offset - 1)[-1].value == f"{added - 1}".encode()
    assert world.values()[b"meanwhile"] == f"{added - 1}".encode()
    world.log.check_invariants()


def test_a_slice_that_is_being_sent_stays_readable() -> None:
    world = busy_log()
    world.log.storage.flush()
    piece = world.log.read(0, 300, world.log.log_end_offset, min_one=True)
    assert piece is not None
    before = piece.read()
    world.compact()
    assert piece.read() == before


async def test_the_event_loop_runs_on_while_the_steps_are_driven() -> None:
    world = busy_log(rounds=100)
    world.log.storage.flush()
    in_thread_count = 0

    class TickingClock:
        """Every look at the clock takes a millisecond, so that slices end."""

        time = 0.0

        def now_ms(self) -> int:
            return world.clock.now_ms()

        def monotonic(self) -> float:
            self.time += 0.001
            return self.time

    async def in_thread(work: Callable[[], None]) -> None:
        nonlocal in_thread_count
        in_thread_count += 1
        await asyncio.get_running_loop().run_in_executor(None, work)

    turns = 0

    async def count_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count_turns())
    await drive(world.steps(), clock := TickingClock(), in_thread, unlimited(clock))
    counting.cancel()
    assert turns > 20
    assert in_thread_count > 5
    assert world.log.cleaned_offset > 0


async def test_a_run_that_is_cancelled_leaves_nothing_behind() -> None:
    world = busy_log()
    world.log.storage.flush()

    async def never(work: Callable[[], None]) -> None:
        work()
        if any(name.endswith(".cleaned") for name in world.disk.names):
            await asyncio.Event().wait()

    task = asyncio.create_task(drive(world.steps(), world.clock, never, unlimited(world.clock)))
    await until(lambda: any(name.endswith(".cleaned") for name in world.disk.names), "it is in the middle")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert leftovers(world.disk) == []


# Crashes --------------------------------------------------------------------------------------------------------


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_no_keys_newest_value_is_lost_wherever_the_machine_stops(seed: int) -> None:
    base = busy_log(seed, 16)
    base.log.storage.flush()
    base.disk.sync_directory("/data")
    values, producers = base.values(), producers_of(base)
    end, recovery_point = base.log.log_end_offset, base.log.recovery_point
    for countdown, world in power_cuts(base):
        for attempt in range(3):
            disk = copy_of(world.disk)
            if attempt:
                disk.crash(Random(seed * 10_000 + countdown * 10 + attempt))
            found = world.reopened(disk, recovery_point=recovery_point)
            assert (found.log.log_end_offset, found.log.log_start_offset) == (end, 0)
            assert found.values() == values
            assert producers_of(found) == producers
            assert leftovers(found.disk) == []
            found.log.check_invariants()
            found.compact()
            assert found.values() == values


def test_a_disk_that_fails_while_segments_are_replaced_loses_nothing() -> None:
    base = busy_log(5, 30)
    base.log.storage.flush()
    values = base.values()
    names = [name for name in base.disk.list_directory(DIRECTORY) if name.endswith(".log")]
    undone = offline = 0
    for name in names[:-1]:
        for suffix in ("", ".cleaned", ".swap"):
            world = base.reopened(copy_of(base.disk))
            world.disk.failing["rename"] = name + suffix
            try:
                run_steps(world.steps())
            except LogUnavailable:
                # The old segments were on their way out.
                offline += 1
                assert world.log.offline_reason is not None
            if world.log in world.cleaner.uncleanable:
                undone += 1
                assert world.values() == values
                assert leftovers(world.disk) == []
            assert base.reopened(copy_of(world.disk)).values() == values
    assert undone > 3
    assert offline > 3


@pytest.mark.parametrize("how", ["cut", "emptied"])
def test_a_log_that_is_cut_while_its_replacement_waits_for_the_disk_stays_cut_after_a_crash(how: str) -> None:
    world = busy_log()
    world.log.storage.flush()
    steps = world.steps()
    while not any(name.endswith(".log.swap") for name in world.disk.names):
        step = next(steps)
        if step is not None:
            step()
    if how == "cut":
        world.log.truncate_to(1)
    else:
        world.log.truncate_fully_and_start_at(7)
    end = world.log.log_end_offset
    found = CompactedLog(copy_of(world.disk), world.clock, recovery_point=end)
    found.log.log_start_offset = world.log.log_start_offset
    found.log.open()
    assert found.log.log_end_offset == end
    run_steps(steps)
    assert leftovers(world.disk) == []
    assert world.log.log_end_offset == end


def test_a_full_disk_leaves_the_log_as_it_was() -> None:
    world = busy_log()
    world.log.storage.flush()
    expected = world.records()
    world.disk.full = True
    with pytest.raises(OSError, match="No space"):
        run_steps(world.steps())
    world.disk.full = False
    assert world.log.offline_reason is None
    assert world.records() == expected
    assert leftovers(world.disk) == []
    assert world.compact()


def test_a_group_that_does_not_fit_in_one_segment_is_given_two(monkeypatch: pytest.MonkeyPatch) -> None:
    world = busy_log()
    values = world.values()
    monkeypatch.setattr("raftlog.broker.store.cleaned_segments.SEGMENT_BYTES_LIMIT", 250)
    world.compact()
    assert world.values() == values
    assert all(isinstance(segment, Segment) for segment in world.log.opened.segments)
    world.log.check_invariants()
    assert world.reopened().values() == values


def test_the_transaction_index_of_a_new_segment_is_synced_with_it() -> None:
    world = CompactedLog()
    world.append(("a", "1"), producer_id=7, transactional=True)
    world.end_transaction(7, committed=False)
    while len(world.log.opened.segments) < 3:
        world.append(("b", "1"))
    assert world.compact()
    indexes = [file for name, file in world.disk.names.items() if name.endswith(".txnindex")]
    assert indexes and all(file.content and file.durable == file.content for file in indexes)
