"""Finding a record by its time, through the time indexes (ListOffsets, KIP-79, KIP-734).

Only here does reading unpack a batch: the one that holds the record. A batch that is as its producer wrote it and
that nobody can unpack is no damage of ours, and must not cost its partition: the answer is where it begins. So it is
where none of the records has a time that the header claims: else a log of such batches would be unpacked as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Final, TypeAlias

from raftlog.broker.core.log.results import FoundOffset
from raftlog.broker.core.log.validation import QUICK_RECORDS_MAX, RECORDS_AT_A_TIME
from raftlog.broker.store.checksums import verify_batch
from raftlog.broker.store.log_segments import LogSegments
from raftlog.broker.store.segment import Segment
from raftlog.wire.batch import (
    CODEC_MASK,
    LOG_APPEND_TIME_BIT,
    MAX_DECOMPRESSED_BYTES,
    BatchHeader,
    CorruptRecord,
    unpack_in_pieces,
)
from raftlog.wire.records import RecordScan

BATCHES_LOOKED_AT_MAX = 50_000
"""Of how many headers at most a time is taken when no index knows it: nothing else goes on meanwhile, for 0.2 s."""

_LARGEST: Final = -3

_TIME: Final = itemgetter(1)

Key: TypeAlias = tuple[int, int]
"""The base offset of a batch, and the time that is looked for in it, or _LARGEST."""

UnpackedBatches: TypeAlias = "dict[Key, FoundOffset | None]"
"""What is in batches that were unpacked for this search."""


class NeedsUnpacking(Exception):
    """A batch has to be unpacked, which may take long: `work` does it in any thread. Then search again, with what it
    returned as `known[key]`."""

    def __init__(self, key: Key, work: Callable[[], FoundOffset | None]) -> None:
        super().__init__(key)
        self.key = key
        self.work = work


def offset_for_timestamp(
    segments: LogSegments, timestamp: int, start_offset: int, known: UnpackedBatches | None = None
) -> FoundOffset | None:
    """The first record from `start_offset` on with `timestamp` (ms) or later. Raises OSError, LogDamaged, and
    NeedsUnpacking where something is `known`, be it nothing yet.
    """
    for segment in segments[segments.number_of(start_offset) :]:
        if segment.load_largest_timestamp() < timestamp:
            continue
        if (found := _first_in(segment, timestamp, start_offset, known)) is not None:
            return found
    return None


def _first_in(segment: Segment, timestamp: int, start_offset: int, known: UnpackedBatches | None) -> FoundOffset | None:
    # What lies below the log start may be most of the segment, and is found by its offset at no cost.
    begin = max(_position_before(segment, timestamp), segment.position_of(start_offset))
    for position, header in segment.headers(begin):
        if header.max_timestamp < timestamp:
            continue
        if (found := _in_batch(segment, position, header, (timestamp, start_offset), known)) is not None:
            return found
    return None


def offset_of_max_timestamp(
    segments: LogSegments, start_offset: int, known: UnpackedBatches | None = None
) -> FoundOffset | None:
    """The first record from `start_offset` on that has the largest timestamp of these. Raises as above."""
    candidates = segments[segments.number_of(start_offset) :]
    largest = max((segment.load_largest_timestamp() for segment in candidates), default=-1)
    found = offset_for_timestamp(segments, largest, start_offset, known) if largest >= 0 else None
    if found is None and largest >= 0 and (left := _largest_left(candidates, start_offset, known)) >= 0:
        found = offset_for_timestamp(segments, left, start_offset, known)
    return found


def _largest_left(segments: Sequence[Segment], start_offset: int, known: UnpackedBatches | None) -> int:
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
                found = _in_batch(segment, position, header, (_LARGEST, start_offset), known)
                largest = max(largest, -1 if found is None else found.timestamp)
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


def _in_batch(
    segment: Segment, position: int, header: BatchHeader, wanted: tuple[int, int], known: UnpackedBatches | None
) -> FoundOffset | None:
    """The first record of a batch with a time, or the largest, from an offset on. Of those that share one time, or
    cannot be unpacked, only the first is looked at.
    """
    timestamp, start_offset = wanted
    if header.records_count == 0:
        return None  # compaction left it to remember a producer's last sequence
    has_append_time = header.attributes & LOG_APPEND_TIME_BIT
    if has_append_time and header.records_count == header.last_offset_delta + 1:
        return _first_of(header, start_offset)
    key = header.base_offset, timestamp
    if known is not None and key in known:
        return known[key]
    batch = segment.read_batch(position, header.size)
    verify_batch(segment, batch, 0, position, header)
    work = partial(_look_into, batch, header, timestamp, start_offset)
    if known is None or (not header.attributes & CODEC_MASK and header.records_count <= QUICK_RECORDS_MAX):
        return work()
    raise NeedsUnpacking(key, work)


def _first_of(header: BatchHeader, start_offset: int) -> FoundOffset:
    return FoundOffset(max(header.base_offset, start_offset), header.max_timestamp, header.partition_leader_epoch)


def _look_into(batch: bytes, header: BatchHeader, timestamp: int, start_offset: int) -> FoundOffset | None:
    epoch = header.partition_leader_epoch
    records = (
        FoundOffset(offset, time, epoch)
        for offset, time in _records(batch, header)
        if offset >= start_offset and time >= timestamp
    )
    try:
        found = next(records, None) if timestamp != _LARGEST else max(records, key=_TIME, default=None)
    except CorruptRecord:
        return _first_of(header, start_offset)
    if found is None and header.base_offset >= start_offset:
        return _first_of(header, start_offset)  # no record has the time that its header says
    return found


def _records(batch: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Offset and time of each record. Raises CorruptRecord."""
    has_append_time = header.attributes & LOG_APPEND_TIME_BIT
    scan = RecordScan(unpack_in_pieces(batch, header, MAX_DECOMPRESSED_BYTES), header.records_count)
    while scan.remaining:
        for offset_delta, timestamp_delta, *_ in scan.take(RECORDS_AT_A_TIME):
            time = header.max_timestamp if has_append_time else header.base_timestamp + timestamp_delta
            yield header.base_offset + offset_delta, time
