"""Comparing batches with their checksums before anybody gets them: what was on the disk at the start may have rotted.
"""

from __future__ import annotations

from typing import Final

from raftlog.broker.ports import Buffer
from raftlog.broker.store.segment import Segment
from raftlog.wire.batch import HEADER_SIZE, BatchHeader, CorruptRecord, check_crc, parse_header

CHECK_BYTES: Final = 1 << 20
"""Read at once while batches are compared with their checksums."""

CHECKED_BY_A_READ: Final = 4 << 20
"""How much one read has compared at most, but for its first batch: a millisecond or two."""

CHECKED_RANGES_MAX: Final = 32
"""How many ranges that were compared are remembered: each belongs to a reader that goes on where it ends."""


def verified_bytes(segment: Segment, position: int, length: int) -> int:
    """How many of these bytes, from the batch at `position` on, are known to be sound; at least one batch.

    What is not known yet is compared with its checksums. Raises OSError, LogDamaged.
    """
    wanted = min(position + length, segment.verified_from)
    known = next((each for each in segment.verified_ranges if each[0] <= position <= each[1]), None)
    if known is None:
        known = [position, position]
        segment.verified_ranges = [*segment.verified_ranges[1 - CHECKED_RANGES_MAX :], known]
    if known[1] < wanted:
        known[1] = _verify_up_to(segment, known[1], min(wanted, known[1] + CHECKED_BY_A_READ))
    return length if known[1] >= wanted else known[1] - position


def verify_batch(segment: Segment, data: Buffer, at: int, position: int, header: BatchHeader) -> None:
    """Raises LogDamaged unless the batch at `at` in `data`, which lies at `position` in the segment, is as written."""
    if not check_crc(data, at, header.size):
        what = f"the batch of offset {header.base_offset} does not match its checksum"
        raise segment.damaged(position, what)


def _verify_up_to(segment: Segment, position: int, end: int) -> int:
    """Compare batches from `position` on until one ends at `end` or later; where that is."""
    while position < end:
        data = memoryview(segment.read(position, min(CHECK_BYTES, segment.size - position)))
        at = 0
        while at + HEADER_SIZE <= len(data):
            try:
                header = parse_header(data, at)
            except CorruptRecord as error:
                raise segment.damaged(position + at, str(error)) from None
            if at and at + header.size > len(data):
                break
            if header.size > len(data):
                # One batch that is larger than what is read at once.
                data = memoryview(segment.read_batch(position, header.size))
            verify_batch(segment, data, at, position + at, header)
            at += header.size
        if at == 0:
            raise segment.damaged(position, "the file ends within a batch header")
        position += at
    return position
