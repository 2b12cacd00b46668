"""A compacted log has gaps between its segments, and recovery takes gaps for losses."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from raftlog.broker.store.data_directory import Checkpoint, DataDirectory
from raftlog.broker.store.names import RECOVERY_POINTS
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
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
