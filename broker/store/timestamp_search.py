"""Finding a record by its time, through the time indexes (ListOffsets, KIP-79, KIP-734).

Only here does reading unpack a batch: the one that holds the record. A batch that is as its producer wrote it and
that nobody can unpack is no damage of ours, and must not cost its partition: the answer is where it begins.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from raftlog.broker.core.log.results import FoundOffset
from raftlog.broker.store.checksums import verify_batch
from raftlog.broker.store.log_segments import LogSegments
from raftlog.broker.store.segment import Segment
from raftlog.wire.batch import (
    LOG_APPEND_TIME_BIT,
    MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    CorruptRecord,
    unpack_payload,
)
from raftlog.wire.records import RecordScan

BATCHES_LOOKED_AT_MAX = 50_000
"""Of how many headers at most a time is taken when no index knows it: nothing else goes on meanwhile, for 0.2 s."""

_RECORDS_AT_A_TIME = 4096


def offset_for_timestamp(segments: LogSegments, timestamp: int, start_offset: int) -> FoundOffset | None:
    """The first record from `start_offset` on with `timestamp` (ms) or later. Raises OSError, LogDamaged."""
    for segment in segments[segments.number_of(start_offset) :]:
        if segment.load_largest_timestamp() < timestamp:
            continue
        if (found := _first_in(segment, timestamp, start_offset)) is not None:
            return found
    return None


def _first_in(segment: Segment, timestamp: int, start_offset: int) -> FoundOffset | None:
    # What lies below the log start may be most of the segment, and is found by its offset at no cost.
    begin = max(_position_before(segment, timestamp), segment.position_of(start_offset))
    for position, header in segment.headers(begin):
        if header.max_timestamp < timestamp:
            continue
        for found in _records(segment, position, header, start_offset):
            if found.offset >= start_offset and found.timestamp >= timestamp:
                return found
    return None


def offset_of_max_timestamp(segments: LogSegments, start_offset: int) -> FoundOffset | None:
    """The first record from `start_offset` on that has the largest timestamp of these. Raises OSError, LogDamaged."""
    candidates = segments[segments.number_of(start_offset) :]
    largest = max((segment.load_largest_timestamp() for segment in candidates), default=-1)
    found = offset_for_timestamp(segments, largest, start_offset) if largest >= 0 else None
    if found is None and largest >= 0 and (left := _largest_left(candidates, start_offset)) >= 0:
        found = offset_for_timestamp(segments, left, start_offset)
    return found


def _largest_left(segments: Sequence[Segment], start_offset: int) -> int:
    """The largest timestamp among records that are still there, -1 if none is or it takes too long to find out.

    The segments remember the largest that they ever had. It may have lain below the log start, or in a batch that
    compaction has emptied.
    """
    largest, looked_at = -1, 0
    for segment in sorted(segments, key=lambda s: s.load_largest_timestamp(), reverse=True):
        if segment.load_largest_timestamp() <= largest:
            break
        for position, header in segment.headers(segment.position_of(start_offset)):
            looked_at += 1
            if looked_at > BATCHES_LOOKED_AT_MAX:
                return -1
            if header.max_timestamp <= largest or header.records_count == 0:
                continue
            if header.base_offset >= start_offset:
                largest = header.max_timestamp
            else:
                records = _records(segment, position, header, start_offset)
                largest = max([largest, *(each.timestamp for each in records if each.offset >= start_offset)])
    return largest


def _position_before(segment: Segment, timestamp: int) -> int:
    """A position before which no batch has `timestamp` or later."""
    times, offsets = segment.times, segment.offsets
    entry = times.floor(timestamp - 1)
    if entry is None:
        return 0
    # Up to the batch that ends at the entry's offset everything is earlier.
    position = offsets.floor(entry[1])
    return position[1] if position is not None else 0


def _records(segment: Segment, position: int, header: BatchHeader, start_offset: int) -> Iterator[FoundOffset]:
    """The records of a batch; of those that share one time, or cannot be unpacked, only the first from `start_offset`
    on.
    """
    epoch = header.partition_leader_epoch
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    if header.records_count == 0:
        return  # compaction left it to remember a producer's last sequence
    if append_time is not None and header.records_count == header.last_offset_delta + 1:
        yield FoundOffset(max(header.base_offset, start_offset), append_time, epoch)
        return
    batch = segment.read_batch(position, header.size)
    verify_batch(segment, batch, 0, position, header)
    try:
        scan = RecordScan(unpack_payload(batch, header, MAX_DECOMPRESSED_BYTES), header.records_count)
        while scan.remaining:
            for offset_delta, timestamp_delta, *_ in scan.take(_RECORDS_AT_A_TIME):
                time = header.base_timestamp + timestamp_delta if append_time is None else append_time
                yield FoundOffset(header.base_offset + offset_delta, time, epoch)
    except CorruptRecord:
        yield FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, epoch)
