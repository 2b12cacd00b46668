"""Finds the records and fields of many batches at once.

A record begins where the one before ends, which is known only from its length. That chain is followed length by length:
with NumPy every byte that could begin a record would have to be looked at, which takes longer. A stretch of records of
one length is found at once. The fields of the records are found with NumPy, for all together.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from raftlog.wire.errors import Malformed
from raftlog.wire.varint import finish_unsigned_varint

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]

PADDING = 16
"""Zero bytes behind the data, so that a number that is cut short reads as something, and is refused by its place."""
MIN_BODY = 6
EQUAL_LENGTHS = 8
"""After so many equal lengths in a row it is looked for a stretch of them."""
STRETCH_MIN = 32
"""So many records are looked at together, and each time that all had the same length, twice as many."""
VARLONG_BYTES_MAX = 10


class Unusual(Exception):
    """The bytes are damaged, or written in a way that only the scan record by record understands."""


def record_places(joined: bytes, size: int, count: int) -> tuple[Ints, Ints]:
    """Where the bodies (attributes) of `count` records that fill `joined[:size]` begin, and where they end.

    Behind those are PADDING zero bytes. Raises Unusual.
    """
    try:
        starts = _starts(joined, size, count)
    except (IndexError, Malformed):
        raise Unusual from None
    data = np.frombuffer(joined, np.uint8)
    lengths, bodies = varints(data, starts[:-1])
    ends = starts[1:]
    if (bodies + lengths != ends).any() or (lengths < MIN_BODY).any() or data.take(bodies).any():
        raise Unusual
    return bodies, ends


def _starts(joined: bytes, size: int, count: int) -> Ints:
    """Where records begin, and at last where the last one ends."""
    starts = np.empty(count + 1, np.int64)
    found = at = 0
    while found < count:
        several, length, after = _until_lengths_repeat(joined, at, count - found)
        starts[found : found + len(several)] = several
        found += len(several)
        step = after - several[-1]
        stretch = _stretch(joined, after, step, length, count - found)
        at = after + stretch * step
        starts[found : found + stretch] = np.arange(after, at, step)
        found += stretch
    if at != size:
        raise Unusual
    starts[count] = size
    return starts


def _until_lengths_repeat(joined: bytes, at: int, most: int) -> tuple[list[int], bytes, int]:
    """Where records begin, the bytes of the last one's length, and where the one behind it begins."""
    starts: list[int] = []
    before = repeats = body = 0
    for _ in range(most):
        starts.append(at)
        raw, body = joined[at], at + 1
        if raw > 0x7F and joined[body] > 0x7F:
            raw, body = finish_unsigned_varint(joined, body, raw)
        elif raw > 0x7F:  # most are such: a call for each would cost half as much again
            raw += (joined[body] - 1) << 7
            body += 1
        at = body + (raw >> 1)
        if raw != before:
            before, repeats = raw, 0
        elif (repeats := repeats + 1) == EQUAL_LENGTHS:
            break
    return starts, joined[starts[-1] : body], at


def _stretch(joined: bytes, at: int, step: int, length: bytes, most: int) -> int:
    """How many records from `at` on, `most` at the most, have a length of these bytes and take `step` bytes."""
    found, look = 0, STRETCH_MIN
    while True:
        number = min(look, most - found)
        first, end = at + found * step, at + (found + number) * step
        for place, byte in enumerate(length):
            column = joined[first + place : end : step]
            number = min(number, len(column) - len(column.lstrip(bytes((byte,)))))
        found += number
        if number < look:
            return found
        look *= 2


def varints(data: Bytes, positions: Ints) -> tuple[Ints, Ints]:
    """The signed numbers at these positions, and the positions behind them. What lies behind the data is not read."""
    first = data.take(positions, mode="clip")
    raw = (first & 0x7F).astype(np.int64)
    positions = positions + 1
    more = np.flatnonzero(first >= 0x80)
    for byte in range(1, VARLONG_BYTES_MAX):
        if not len(more):
            break
        following = data.take(positions.take(more), mode="clip")
        raw[more] |= (following & 0x7F).astype(np.int64) << (7 * byte)
        positions[more] += 1
        more = more[following >= 0x80]
    if len(more):
        raise Unusual
    return (raw >> 1 & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1), positions


def spans(data: Bytes, positions: Ints, ends: Ints) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Byte fields with a length before them: where each begins and ends, and which are null."""
    lengths, begin = varints(data, positions)
    null = lengths < 0
    if null.any():
        if (lengths < -1).any():
            raise Unusual
        lengths = np.maximum(lengths, 0)
    stop = begin + lengths
    if (stop > ends).any():
        raise Unusual
    return begin, stop, null
