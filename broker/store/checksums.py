"""Comparing batches with their checksums before anybody gets them: what was on the disk at the start may have rotted.

No checksum is over a batch's offset. Offsets rise in a log: each batch is compared with its neighbours.
"""

from __future__ import annotations

from typing import Final

from raftlog.broker.ports import Buffer
from raftlog.broker.store.segment import Segment, VerifiedRange
from raftlog.wire.batch import HEADER_SIZE, BatchHeader, CorruptRecord, check_crc, parse_header

CHECK_BYTES: Final = 1 << 20
"""Read at once while batches are compared with their checksums."""

CHECKED_BY_A_READ: Final = 4 << 20
"""How much one read has compared at most, but for its first batch: a millisecond or two."""

CHECKED_RANGES_MAX: Final = 32
"""How many ranges that were compared are remembered: each belongs to a reader that goes on where it ends."""


def verified_bytes(segment: Segment, position: int, length: int, end_offset: int) -> int:
    """How many of these bytes, from the batch at `position` on, are known to be sound; at least one batch.

    `end_offset`: that of the segment. What is not known yet is compared. Raises OSError, LogDamaged.
    """
    wanted = min(position + length, segment.verified_from)
    known = next((each for each in segment.verified_ranges if each.start <= position <= each.end), None)
    if known is None:
        known = VerifiedRange(position, position, segment.base_offset)
        segment.verified_ranges = [*segment.verified_ranges[1 - CHECKED_RANGES_MAX :], known]
    if known.end < wanted:
        _verify_up_to(segment, known, min(wanted, known.end + CHECKED_BY_A_READ), end_offset)
    return length if known.end >= wanted else known.end - position


def verify_batch(segment: Segment, data: Buffer, at: int, position: int, header: BatchHeader) -> None:
    """Raises LogDamaged unless the batch at `at` in `data`, which lies at `position` in the segment, is as written."""
    if not check_crc(data, at, header.size):
        what = f"the batch of offset {header.base_offset} does not match its checksum"
        raise segment.damaged(position, what)


def verify_offset(segment: Segment, position: int, header: BatchHeader, expected: int, end_offset: int) -> None:
    """Raises LogDamaged unless the batch lies in [expected, end_offset): no checksum covers where it says it does."""
    if not expected <= header.base_offset < header.next_offset <= end_offset:
        what = f"a batch has the offset {header.base_offset}, which is not from {expected} up to {end_offset}"
        raise segment.damaged(position, what)


def _verify_up_to(segment: Segment, known: VerifiedRange, end: int, end_offset: int) -> None:
    """Compare more batches until one ends at `end` or later."""
    position, next_offset = known.end, known.next_offset
    while position < end:
        data = memoryview(segment.read(position, min(CHECK_BYTES, segment.size - position)))
        at = 0
        while at + HEADER_SIZE <= len(data):
            header = _header_at(segment, data, at, position + at)
            if at and at + header.size > len(data):
                break
            if header.size > len(data):
                # One batch that is larger than what is read at once.
                data = memoryview(segment.read_batch(position, header.size))
            verify_batch(segment, data, at, position + at, header)
            verify_offset(segment, position + at, header, next_offset, end_offset)
            next_offset = header.next_offset
            at += header.size
        if at == 0:
            raise segment.damaged(position, "the file ends within a batch header")
        position += at
    if position + HEADER_SIZE <= segment.size:
        # A batch that leaps shows in the one behind it.
        following = _header_at(segment, segment.read(position, HEADER_SIZE), 0, position)
        verify_offset(segment, position, following, next_offset, end_offset)
    known.end, known.next_offset = position, next_offset


def _header_at(segment: Segment, data: Buffer, at: int, position: int) -> BatchHeader:
    try:
        return parse_header(data, at)
    except CorruptRecord as error:
        raise segment.damaged(position, str(error)) from None
