"""A crash at each step of appending transaction markers: the batch, the roll before it with index and producer
snapshot, `.txnindex`, and each sync of the flush behind it.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.machine.disk import PowerCut
from raftlog.wire.batch import BatchHeader, iterate_batches
from raftlog.wire.control import decode_control_batch
from tests.broker.store.log_world import START_MS, LogWorld, batch_of

CRASHES = 4
"""One kill at each step, and power cuts; what of the unsynced reached the platter is drawn for each."""


def data(producer_id: int, sequence: int) -> bytes:
    return batch_of([b"x"], START_MS, producer_id=producer_id, base_sequence=sequence, transactional=True)


def begun() -> LogWorld:
    """Transactions of producers 1 and 2 are open and safe; the next append rolls a segment."""
    world = LogWorld(LogConfig(segment_bytes=200, index_interval_bytes=0))
    world.append(data(1, 0))
    world.append(data(2, 0))
    world.log.storage.flush()
    world.checkpoint()
    return world


def end_both(world: LogWorld, *, first_commits: bool) -> None:
    world.end_transaction(1, commit=first_commits)
    world.append(data(1, 1))
    world.end_transaction(2, commit=not first_commits)
    world.log.storage.flush()
    world.checkpoint()


@pytest.mark.parametrize("first_commits", [True, False])
def test_a_crash_at_each_step_of_a_markers_append_leaves_what_the_log_says(first_commits: bool) -> None:
    countdown, whole = 0, False
    while not whole:
        for seed in range(CRASHES):
            world = begun()
            world.disk.countdown = countdown
            try:
                end_both(world, first_commits=first_commits)
                whole = True
            except PowerCut:
                world.disk.countdown = None
            world.log.storage.abandon()
            if seed:
                world.disk.crash(Random(countdown * CRASHES + seed))
            else:
                world.disk.kill()
            log = world.load()
            log.open()
            log.update_high_watermark(log.log_end_offset)
            assert log.log_end_offset >= (5 if whole else 2), "what was flushed is there"
            check(log, f"step {countdown}, crash {seed}")
        countdown += 1
    assert countdown > 20


def batches_of(log: PartitionLog) -> Iterator[tuple[BatchHeader, bytes]]:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = log.read_bytes(offset, 1 << 20, log.log_end_offset, min_one=True)
        for position, header in iterate_batches(data):
            yield header, data[position : position + header.size]
            offset = header.next_offset


def check(log: PartitionLog, where: str) -> None:
    """Readers of committed records are told what the batches in the log say, and the transactions can be ended."""
    first: dict[int, int] = {}
    aborted = []
    for header, batch in batches_of(log):
        if not header.is_control:
            first.setdefault(header.producer_id, header.base_offset)
            continue
        marker = decode_control_batch(batch)
        assert marker is not None
        if (begun_at := first.pop(header.producer_id, None)) is not None and not marker.committed:
            aborted.append((header.producer_id, begun_at))
    assert log.last_stable_offset == min(first.values(), default=log.log_end_offset), where
    found = log.aborted_transactions(0, log.log_end_offset)
    assert sorted((each.producer_id, each.first_offset) for each in found) == sorted(aborted), where
    assert sorted(log.opened.producers.open_transactions) == sorted(first.values()), where
