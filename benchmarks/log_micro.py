"""What one append, one read and a producer snapshot of the partition log cost, without network and protocol.

Microseconds of CPU time, of the best of twenty rounds: what else runs on the machine does not count.

    python -m benchmarks.log_micro [--directory D] [--batches N] [--producers N]
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from math import inf

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.producer_snapshot import decode_snapshot, encode_snapshot
from raftlog.broker.core.log.producers import BATCHES_REMEMBERED, ProducerStates
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.store.disk import OsDisk
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.store import Store
from raftlog.wire.batch import Record, check_crc, encode_batch, parse_header
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId


class WallClock:
    """The clock of the machine."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


def batch_of(size: int, now_ms: int, *, producer_id: int = -1) -> bytearray:
    """A batch of about `size` bytes with records of 100 bytes."""
    count = max(1, size // 110)
    records = [Record(number, now_ms, None, b"x" * 100) for number in range(count)]
    ids = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0} if producer_id >= 0 else {}
    return bytearray(encode_batch(records, **ids))


ROUNDS = 20


def each(label: str, count: int, work: Callable[[int], object]) -> float:
    """Run `work` `count` times; microseconds each in the best round, printed and returned."""
    size = count // ROUNDS
    cost = inf
    for first in range(0, size * ROUNDS, size):
        started = time.thread_time()
        for number in range(first, first + size):
            work(number)
        cost = min(cost, (time.thread_time() - started) / size * 1e6)
    print(f"{label:<52} {cost:9.2f} µs")
    return cost


def open_log(directory: str, name: str) -> PartitionLog:
    path = f"{directory}/{name}-0"
    os.makedirs(path)
    return PartitionLog(Store(OsDisk(), WallClock()), name, 0, path, LogConfig())


def measure_appends(directory: str, size: int, count: int) -> PartitionLog:
    """Append `count` batches of `size` bytes; the part that is neither writing nor checking is printed too."""
    now_ms = WallClock().now_ms()
    batch = batch_of(size, now_ms)
    log = open_log(directory, f"append{size}")
    view = memoryview(batch)

    def append(_: int) -> None:
        # A client's batch begins at 0; the log wrote its own base offset over it.
        batch[:8] = bytes(8)
        result: AppendResult = log.append_as_leader(view, 0, now_ms)
        assert result.error is ErrorCode.NONE, result
        log.update_high_watermark(log.log_end_offset)

    whole = each(f"append, {len(batch)} bytes", count, append)
    header = parse_header(batch)
    checking = each("  of which the checksum", count, lambda _: check_crc(batch, 0, header.size))
    fd = os.open(f"{directory}/plain", os.O_RDWR | os.O_CREAT)
    writing = each("  of which pwrite to a growing file", count, lambda n: os.pwrite(fd, view, n * len(batch)))
    os.close(fd)
    print(f"{'  the rest':<52} {whole - checking - writing:9.2f} µs")
    return log


def measure_idempotent_appends(directory: str, count: int) -> None:
    now_ms = WallClock().now_ms()
    batch = batch_of(1000, now_ms, producer_id=1)
    records = parse_header(batch).records_count
    log = open_log(directory, "idempotent")
    batches = []
    plain = [Record(number, now_ms, None, b"x" * 100) for number in range(records)]
    for number in range(count):
        encoded = encode_batch(plain, producer_id=1, producer_epoch=0, base_sequence=number * records)
        batches.append(memoryview(bytearray(encoded)))
    each("append, idempotent producer, 1000 bytes", count, lambda n: log.append_as_leader(batches[n], 0, now_ms))


def measure_reads(log: PartitionLog, size: int, count: int) -> None:
    """Reads of the latest batch, and reads from cold positions, in a log of batches of `size` bytes."""
    end = log.log_end_offset
    per_batch = parse_header(batch_of(size, 0)).records_count
    last = end - per_batch
    each(f"read, caught up, batches of {size}", count, lambda _: log.read(last, 1 << 20, end, min_one=True))
    batches = end // per_batch
    each(
        f"read 1 MB from a cold position, batches of {size}",
        count,
        lambda n: log.read(n * 7919 % batches * per_batch, 1 << 20, end, min_one=True),
    )


def measure_snapshots(producers: int) -> None:
    """The snapshot of so many producers, written and read, with one batch each and with all that are remembered."""
    for batches in (1, BATCHES_REMEMBERED):
        states = ProducerStates()
        header = parse_header(batch_of(100, 1, producer_id=0))
        for number in range(producers * batches):
            states.record(header._replace(producer_id=ProducerId(number // batches)), number)
        label = f"{producers} producers, batches of each: {batches}; snapshot "
        each(f"{label}written", ROUNDS, lambda _, states=states: encode_snapshot(states))  # type: ignore[misc]
        data = encode_snapshot(states)
        each(f"{label}read", ROUNDS, lambda _, data=data: decode_snapshot(data))  # type: ignore[misc]
        each(f"{label}read and used", ROUNDS, lambda _, data=data: decode_snapshot(data).get(ProducerId(0)))  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--directory", help="where to write; removed afterwards (default: a temporary one)")
    parser.add_argument("--batches", type=int, default=20_000)
    parser.add_argument("--producers", type=int, default=100_000, help="in a producer snapshot")
    options = parser.parse_args()
    directory = tempfile.mkdtemp(prefix="raftlog-", dir=options.directory)
    try:
        for size in (200, 1000, 16_000):
            log = measure_appends(directory, size, options.batches)
            measure_reads(log, size, options.batches)
        measure_idempotent_appends(directory, options.batches)
        measure_snapshots(options.producers)
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
