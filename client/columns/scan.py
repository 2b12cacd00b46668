"""Finds the records and fields of many batches at once, with NumPy: no Python for a single record.

A record begins where the one before ends, which is known only from its length: a chain. It is followed for all records
together: every place where a record could begin (a length, then the attributes byte, which is 0) knows its successor,
and successors of successors are looked up in rounds, each of which doubles how many records are known.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Ints: TypeAlias = npt.NDArray[np.int64]
Bytes: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int32]

PADDING = 16
"""Zero bytes behind the data, so that a number that is cut short reads as something, and is refused by its place."""
LENGTH_BYTES_MAX = 5
MIN_BODY = 6
VARLONG_BYTES_MAX = 10


class Unusual(Exception):
    """The bytes are damaged, or written in a way that only the scan record by record understands."""


def record_starts(data: Bytes, size: int, count: int) -> tuple[Ints, Ints]:
    """Where the bodies (attributes) of `count` records that fill `data[:size]` begin, and where they end."""
    if count == 0:
        if size:
            raise Unusual
        return np.empty(0, np.int64), np.empty(0, np.int64)
    starts, bodies, ends = _candidates(data, size)
    dead = len(starts)
    # A set without initialization: what is read at a place counts only if that entry points back to the place.
    index = np.empty(size + 1, np.int32)
    index[starts] = np.arange(dead, dtype=np.int32)
    starts = np.append(starts, size)
    successor = np.append(index[ends], dead)
    successor[(successor < 0) | (successor > dead)] = dead
    successor[:-1][starts[successor[:-1]] != ends] = dead
    first = index[:1]
    if not 0 <= first[0] < dead or starts[first[0]] != 0:
        raise Unusual
    orbit = first.copy()
    while len(orbit) < count:
        orbit = np.concatenate((orbit, successor[orbit]))
        successor = successor[successor]
    orbit = orbit[:count]
    if (orbit == dead).any() or ends[orbit[-1]] != size:
        raise Unusual
    return bodies[orbit].astype(np.int64), ends[orbit].astype(np.int64)


def _candidates(data: Bytes, size: int) -> tuple[Places, Places, Places]:
    """Every place where a record could begin: its length, its body, its end. Nobody writes a length that ends in 0."""
    mask = data[1:size] == 0
    mask &= data[: size - 1] - np.uint8(1) < 0x7F
    rest = np.flatnonzero(mask).astype(np.int32) + 1
    starts, bodies, ends = [], [], []
    for width in range(1, LENGTH_BYTES_MAX + 1):
        first = rest - width
        raw = data[first].astype(np.int64) & 0x7F
        for byte in range(1, width):
            raw |= (data[first + byte].astype(np.int64) & 0x7F) << (7 * byte)
        end = rest + (raw >> 1)
        fits = np.flatnonzero((raw >= 2 * MIN_BODY) & (raw & 1 == 0) & (end <= size))
        starts.append(first[fits])
        bodies.append(rest[fits])
        ends.append(end[fits].astype(np.int32))
        rest = rest[rest > width]
        rest = rest[data[rest - width - 1] >= 0x80]
        if not len(rest):
            break
    return np.concatenate(starts), np.concatenate(bodies), np.concatenate(ends)


def varints(data: Bytes, positions: Ints, limit: int) -> tuple[Ints, Ints]:
    """The signed numbers at these positions, and the positions behind them."""
    first = data[np.minimum(positions, limit)]
    raw = (first & 0x7F).astype(np.int64)
    positions = positions + 1
    more = np.flatnonzero(first & 0x80)
    for byte in range(1, VARLONG_BYTES_MAX):
        if not len(more):
            return (raw >> 1 & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1), positions
        following = data[np.minimum(positions[more], limit)]
        raw[more] |= (following & 0x7F).astype(np.int64) << (7 * byte)
        positions[more] += 1
        more = more[following >= 0x80]
    if len(more):
        raise Unusual
    return (raw >> 1 & 0x7FFF_FFFF_FFFF_FFFF) ^ -(raw & 1), positions


def spans(data: Bytes, positions: Ints, ends: Ints, limit: int) -> tuple[Ints, Ints, npt.NDArray[np.bool_]]:
    """Byte fields with a length before them: where each begins and ends, and which are null."""
    lengths, begin = varints(data, positions, limit)
    null = lengths < 0
    if null.any():
        if (lengths < -1).any():
            raise Unusual
        lengths = np.maximum(lengths, 0)
    stop = begin + lengths
    if (stop > ends).any():
        raise Unusual
    return begin, stop, null
