"""What lies in a replica's log: batches as they are compared, and records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from zlib import crc32

from raftlog.broker.runtime.partition import Partition
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.cluster.client import values_from
from raftlog.wire.batch import BatchHeader, decode_batch, iterate_batches
from raftlog.wire.records import Record

ALL_BYTES = 1 << 30


class Batch(NamedTuple):
    """A committed batch."""

    base_offset: int
    end_offset: int
    checksum: int
    max_timestamp: int
    size: int


def raw_batches_of(partition: Partition, start: int, end: int) -> Iterator[tuple[BatchHeader, bytes]]:
    """The batches of a replica's log from one offset to another, without one that begins before."""
    log = partition.log
    while start < end:
        data = log.read_bytes(start, ALL_BYTES, end, min_one=True)
        if not data:
            return
        for position, header in iterate_batches(data):
            if position + header.size > len(data) or header.base_offset >= end:
                return
            if header.base_offset >= start:
                yield header, data[position : position + header.size]
            start = max(start, header.next_offset)


def batches_of(partition: Partition, start: int, end: int) -> Iterator[Batch]:
    """The same, as they are compared."""
    for header, data in raw_batches_of(partition, start, end):
        yield batch_of(header, data)


def records_of(partition: Partition, start: int, end: int) -> list[Record]:
    """The records in them."""
    return [record for _, data in raw_batches_of(partition, start, end) for record in decode_batch(data)]


def batch_of(header: BatchHeader, data: bytes) -> Batch:
    """One of them."""
    return Batch(header.base_offset, header.next_offset, crc32(data), header.max_timestamp, header.size)


def first_from(batches: list[Batch], offset: int) -> int:
    """The place of the first batch that begins at the offset, or later."""
    low, high = 0, len(batches)
    while low < high:
        middle = (low + high) // 2
        if batches[middle].base_offset < offset:
            low = middle + 1
        else:
            high = middle
    return low


def values_of(log: PartitionLog) -> tuple[int, ...]:
    """The values in a log, from its start to its end."""
    start = at = log.log_start_offset
    values: list[int] = []
    # A read ends with the segment.
    while at < log.log_end_offset:
        values += values_from(log.read_bytes(at, ALL_BYTES, log.log_end_offset, min_one=True), at)
        assert start + len(values) > at, "a log that ends before its end"
        at = start + len(values)
    return tuple(values)
