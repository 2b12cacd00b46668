"""Entries of the offset index and the time index, and the search in them (Kafka's own form).

An offset index entry (8 bytes) says: the batch at `position` ends with offset `base + relative`. A time index entry
(12 bytes) says: `timestamp` is the greatest up to the batch that ends with `base + relative`. Both are sparse.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
Entry: TypeAlias = tuple[int, int]

OFFSET_ENTRY: Final = Struct(">ii")
"""(relative last offset, position)"""
TIME_ENTRY: Final = Struct(">qi")
"""(timestamp, relative last offset)"""

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
"""Offsets of one segment must fit an int32 beside its base offset; the segment rolls before they do not."""


def floor_entry(entries: Buffer, layout: Struct, key: int, end: int | None = None) -> int:
    """Number of the last entry whose key is `key` or less; -1 if there is none. `end`: only so many entries."""
    low, high = 0, len(entries) // layout.size if end is None else end
    size, unpack = layout.size, layout.unpack_from
    while low < high:
        middle = (low + high) >> 1
        if unpack(entries, middle * size)[0] <= key:
            low = middle + 1
        else:
            high = middle
    return low - 1


def valid_prefix(entries: Buffer, layout: Struct, *, key_end: int, value_end: int) -> int:
    """How many entries from the start can be trusted: keys and values rise strictly and lie below the ends.

    After a crash an index may have pages that were never written (zeros); what comes behind is cut.
    """
    last_key, last_value = -1, -1
    for number, (key, value) in enumerate(
        layout.iter_unpack(memoryview(entries)[: len(entries) // layout.size * layout.size])
    ):
        if not (last_key < key < key_end and last_value < value < value_end):
            return number
        last_key, last_value = key, value
    return len(entries) // layout.size
