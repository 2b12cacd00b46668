"""Finding a record by its time, through the time indexes (ListOffsets, KIP-79, KIP-734).

Knows how indexes, batch headers and records narrow the search. Refuses to know which records a reader may see: the
caller compares what is found with the high watermark or the last stable offset.

Only here does reading unpack a batch: the one that holds the record. A batch that is as its producer wrote it and
that nobody can unpack is no damage of ours, and must not cost its partition: the answer is where it begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raftlog.broker.core.log.results import FoundOffset
from raftlog.broker.store.checking import compare_batch
from raftlog.wire.batch import (
    LOG_APPEND_TIME_BIT,
    MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    CorruptRecord,
    unpack_payload,
)
from raftlog.wire.records import RecordScan

if TYPE_CHECKING:
    from raftlog.broker.store.open_log import OpenLog
    from raftlog.broker.store.segment import Segment

_RECORDS_AT_A_TIME = 4096


def offset_for_timestamp(opened: OpenLog, timestamp: int, start_offset: int) -> FoundOffset | None:
    """The first record from `start_offset` on with `timestamp` (ms) or later. Raises OSError, LogDamaged."""
    for segment in opened.segments[opened.number_of(start_offset) :]:
        if segment.load_largest_timestamp() < timestamp:
            continue
        for position, header in segment.headers(_position_before(segment, timestamp)):
            if header.max_timestamp < timestamp or header.last_offset < start_offset:
                continue
            found = _first_record(segment, position, header, timestamp, start_offset)
            if found is not None:
                return found
    return None


def offset_of_max_timestamp(opened: OpenLog, start_offset: int) -> FoundOffset | None:
    """The first record that has the largest timestamp of the log. Raises OSError, LogDamaged."""
    candidates = opened.segments[opened.number_of(start_offset) :]
    largest = max((segment.load_largest_timestamp() for segment in candidates), default=-1)
    return offset_for_timestamp(opened, largest, start_offset) if largest >= 0 else None


def _position_before(segment: Segment, timestamp: int) -> int:
    """A position before which no batch has `timestamp` or later."""
    times, offsets = segment.times, segment.offsets
    entry = times.floor(timestamp - 1)
    if entry is None:
        return 0
    # Up to the batch that ends at the entry's offset everything is earlier.
    position = offsets.floor(entry[1])
    return position[1] if position is not None else 0


def _first_record(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> FoundOffset | None:
    epoch = header.partition_leader_epoch
    if header.attributes & LOG_APPEND_TIME_BIT:
        return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, epoch)
    if header.records_count == 0:
        return None  # compaction left it to remember a producer's last sequence
    batch = segment.read_batch(position, header.size)
    compare_batch(segment, batch, 0, position, header)
    try:
        scan = RecordScan(unpack_payload(batch, header, MAX_DECOMPRESSED_BYTES), header.records_count)
        while scan.remaining:
            for offset_delta, timestamp_delta, *_ in scan.take(_RECORDS_AT_A_TIME):
                offset, time = header.base_offset + offset_delta, header.base_timestamp + timestamp_delta
                if time >= timestamp and offset >= start_offset:
                    return FoundOffset(offset, time, epoch)
    except CorruptRecord:
        return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, epoch)
    return None
