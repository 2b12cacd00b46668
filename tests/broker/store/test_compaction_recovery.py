"""A compacted log has gaps between its segments, and recovery takes gaps for losses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from raftlog.broker.core.log.transactions import AbortedTransaction
from raftlog.broker.store.cleaner import LogCleaner
from raftlog.broker.store.data_directory import CHECKPOINTS, Checkpoint, DataDirectory
from raftlog.broker.store.names import RECOVERY_POINTS
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
from tests.broker.store.compaction_world import CompactedLog, copy_of, power_cuts, run_steps
from tests.broker.store.log_world import unlimited
from tests.broker.store.store_world import Host


@pytest.fixture
def host() -> Host:
    host = Host()
    host.config = replace(
        host.config, cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0.0, retention_ms=-1
    )
    return host


def write(host: Host, count: int) -> PartitionLog:
    """So many values of three keys."""
    log = host.open()
    for number in range(count):
        batch = encode_batch([Record(0, host.clock.ms, b"%d" % (number % 3), b"v" * 50)])
        assert log.append_as_leader(bytearray(batch), 0, host.clock.ms).error is ErrorCode.NONE
        log.update_high_watermark(log.log_end_offset)
    return log


def has_gaps(log: PartitionLog) -> bool:
    """Whether a segment ends before the next one begins."""
    segments = list(log.opened.segments)
    return any(one.next_offset() < other.base_offset for one, other in pairwise(segments))


@pytest.mark.parametrize("harm", ["damaged", "missing"])
async def test_a_compacted_log_survives_the_loss_of_its_recovery_point(host: Host, harm: str) -> None:
    for _ in range(3):
        write(host, 20)
        await host.tasks.flush_due_logs()
        await host.tasks.compact()
    log = write(host, 1)
    assert has_gaps(log)
    end_offset, kept = log.log_end_offset, log.read_bytes(0, 1 << 20, log.log_end_offset, min_one=True)
    await host.manager.close()
    host.kill()
    assert isinstance(host.disk, FaultyDisk)
    if harm == "damaged":
        host.disk.names[f"/a/{RECOVERY_POINTS}"].content[:] = b"0\n5\nt"
    else:
        del host.disk.names[f"/a/{RECOVERY_POINTS}"]
    host.start()
    log = host.open()
    assert log.log_end_offset == end_offset
    assert log.read_bytes(0, 1 << 20, end_offset, min_one=True) == kept


def test_a_new_log_that_is_to_be_compacted_ends_where_the_power_took_a_segment(host: Host) -> None:
    """Nothing tells how far it was safe, and nothing of it was compacted yet: the gap is a loss."""
    second = write(host, 20).opened.segments[1]
    assert second is not host.open().opened.segments.active
    host.kill()
    assert isinstance(host.disk, FaultyDisk)
    del host.disk.names[second.log.path].content[:]
    host.start()
    log = host.open()
    assert log.log_end_offset == second.base_offset
    assert log.opened.segments.active.base_offset <= second.base_offset


async def test_a_compacted_log_that_a_person_put_into_a_stopped_broker_keeps_its_records(host: Host) -> None:
    write(host, 20)
    await host.tasks.flush_due_logs()
    await host.tasks.compact()
    log = write(host, 1)
    assert has_gaps(log)
    end_offset = log.log_end_offset
    await host.manager.close()
    host.kill()
    assert isinstance(host.disk, FaultyDisk)
    host.disk.names[f"/a/{RECOVERY_POINTS}"].content[:] = b"0\n0\n"
    host.start()
    assert host.open().log_end_offset == end_offset


@pytest.mark.parametrize("before", [0, 20])
@pytest.mark.parametrize("lost", [CHECKPOINTS, (RECOVERY_POINTS,)], ids=["all", "recovery points"])
async def test_a_crash_in_the_middle_of_a_compaction_and_the_loss_of_its_checkpoints_lose_no_records(
    host: Host, lost: Sequence[str], before: int
) -> None:
    write(host, before)
    await host.tasks.flush_due_logs()
    await host.tasks.compact()
    log = write(host, 40)
    await host.tasks.flush_due_logs()
    await host.tasks.checkpoint(RECOVERY_POINTS)
    segments = list(log.opened.segments)
    steps = LogCleaner(host.manager.store, b"secret", unlimited(host.clock)).clean(log, log.recovery_point)
    while log.opened.segments[:2] == segments[:2] or not has_gaps(log):
        step = next(steps)
        if step is not None:
            step()
    end_offset, kept = log.log_end_offset, log.read_bytes(0, 1 << 20, log.log_end_offset, min_one=True)
    host.kill()
    for name in lost:
        assert isinstance(host.disk, FaultyDisk)
        host.disk.remove(f"/a/{name}")
    host.start()
    log = host.open()
    assert log.log_end_offset == end_offset
    assert log.read_bytes(0, 1 << 20, end_offset, min_one=True) == kept


async def test_a_log_that_is_truncated_before_its_compaction_begins_is_not_compacted_beyond_what_is_safe(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = write(host, 30)
    await host.tasks.flush_due_logs()
    directory = host.manager.directories[0]
    write_checkpoint = directory.write_checkpoint
    waits = True

    def write_slowly(_: DataDirectory, checkpoint: Checkpoint) -> None:
        nonlocal waits
        write_checkpoint(checkpoint)
        if checkpoint.name == RECOVERY_POINTS and waits:
            waits = False
            log.truncate_to(5)
            write(host, 30)

    monkeypatch.setattr(DataDirectory, "write_checkpoint", write_slowly)
    await host.tasks.compact()
    assert not waits
    safe_offset = directory.read_checkpoint(RECOVERY_POINTS)["t", 0]
    assert log.cleaned_offset <= safe_offset
    end_offset = log.log_end_offset
    host.kill()
    host.start()
    assert host.open().log_end_offset == end_offset


async def test_a_segment_that_takes_batches_again_after_a_truncation_knows_its_largest_time(host: Host) -> None:
    """Its end was compacted away, so nothing of it was cut, or read."""
    late = host.clock.ms + 10_000
    log = host.open()
    batch = encode_batch([Record(0, late, b"late", b"v" * 50)])
    assert log.append_as_leader(bytearray(batch), 0, host.clock.ms).error is ErrorCode.NONE
    write(host, 30)
    await host.tasks.flush_due_logs()
    await host.tasks.compact()
    assert has_gaps(log)
    await host.manager.close()
    host.kill()
    host.start()
    log = host.open()
    first, second = log.opened.segments[:2]
    assert first.next_offset() < second.base_offset
    log.truncate_to(second.base_offset - 1)
    write(host, 1)
    assert first is log.opened.segments.active
    assert first.load_largest_timestamp() == late
    assert log.offset_for_timestamp(late) is not None


def test_a_crash_between_the_names_of_a_cleaned_segment_keeps_its_transaction_index() -> None:
    base = CompactedLog()
    for number in range(12):
        base.append(("a", f"{number}"), producer_id=11, transactional=1)
        base.end_transaction(11, committed=number % 2 == 0)
    base.append(("b", "v" * 300))
    base.log.storage.flush()

    def told(world: CompactedLog) -> set[AbortedTransaction]:
        return {entry for segment in world.log.opened.segments for entry in segment.transactions.entries}

    done = base.reopened(copy_of(base.disk))
    run_steps(done.steps())
    kept = told(done)
    assert kept
    for _, world in power_cuts(base):
        world.disk.kill()
        assert kept <= told(base.reopened(world.disk))
