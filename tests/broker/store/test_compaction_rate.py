"""log.cleaner.io.max.bytes.per.second: what compaction reads and writes, and waits for."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from raftlog.broker.store import io_rate
from raftlog.broker.store.log_manager_settings import LogManagerSettings
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.wire.batch import Record, encode_batch
from raftlog.wire.errors import ErrorCode
from tests.broker.store.store_world import Host
from tests.waiting import until

BATCHES = 30


async def compacted_log(host: Host) -> PartitionLog:
    """A log of several segments with two keys, all of it on the disk."""
    host.config = replace(
        host.config, cleanup_policy=("compact",), segment_bytes=400, min_cleanable_dirty_ratio=0.0, retention_ms=-1
    )
    log = host.open()
    for number in range(BATCHES):
        batch = encode_batch([Record(0, host.clock.ms, b"%d" % (number % 2), b"v" * 50)])
        assert log.append_as_leader(bytearray(batch), 0, host.clock.ms).error is ErrorCode.NONE
        log.update_high_watermark(log.log_end_offset)
    await host.tasks.flush_due_logs()
    return log


async def test_compaction_takes_as_long_as_its_rate_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_rate, "PAUSE_MS_MAX", 1)
    host = Host()
    log = await compacted_log(host)
    size = sum(segment.size for segment in log.opened.segments)
    host.manager.reconfigure(LogManagerSettings(cleaner_io_max_bytes_per_second=100.0))
    began_ms = host.clock.ms
    compacting = asyncio.create_task(host.tasks.compact())

    def later() -> bool:
        host.clock.ms += 1000
        return compacting.done()

    await until(later, "it is compacted")
    await compacting
    assert log.cleaned_offset > 0
    # All but the active segment is read twice.
    assert host.clock.ms - began_ms > 2 * (size - 800) / 100 * 1000 * 0.8


async def test_another_rate_holds_for_a_run_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(io_rate, "PAUSE_MS_MAX", 1)
    host = Host()
    log = await compacted_log(host)
    host.manager.reconfigure(LogManagerSettings(cleaner_io_max_bytes_per_second=0.0))
    compacting = asyncio.create_task(host.tasks.compact())
    await until(lambda: host.tasks._cleaner is not None and host.tasks._cleaner.rate.bytes, "something is read")
    assert not compacting.done() and log.cleaned_offset == 0
    host.manager.reconfigure(LogManagerSettings())
    await compacting
    assert log.cleaned_offset > 0
