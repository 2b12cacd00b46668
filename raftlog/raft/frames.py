"""Checksummed frames: how the journal and its snapshots put values into a file, and what a reader makes of
the bytes.

A frame is `"RLJ1" | length: u32 | crc32c(length and body): u32 | body`, little-endian, and a body is a msgpack array of
items.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, NamedTuple, cast

import msgpack

from raftlog.wire.checksum import crc32c

MAGIC = b"RLJ1"
_HEADER = Struct("<4sII")
_LENGTH = Struct("<I")
HEADER_SIZE = _HEADER.size
MAX_FRAME_BODY = 256 * 1024 * 1024
"""A frame holds one batch of proposals; a length beyond this is damage, not data."""


class Frame(NamedTuple):
    """An intact frame: where it begins, where the next one does, and its items."""

    position: int
    end: int
    items: Sequence[Any]


class Damage(NamedTuple):
    """Bytes that are no frame: where they begin, what is wrong, and where an intact frame follows (None:
    nowhere).
    """

    position: int
    what: str
    next_intact: int | None


def encode_frame(items: Sequence[Any]) -> bytes:
    """One frame holding these msgpack-able items. Raises ValueError when they exceed MAX_FRAME_BODY."""
    body = cast(bytes, msgpack.packb(items))
    if len(body) > MAX_FRAME_BODY:
        raise ValueError(f"{len(body)} bytes in one journal frame, and at most {MAX_FRAME_BODY} are allowed")
    return _HEADER.pack(MAGIC, len(body), _checksum(body)) + body


def _checksum(body: bytes | memoryview) -> int:
    return crc32c(body, crc32c(_LENGTH.pack(len(body))))


def read_frames(data: bytes) -> Iterator[Frame | Damage]:
    """Every frame of a file in order; ends after the first Damage."""
    position = 0
    while position < len(data):
        found = _frame_at(data, position)
        if isinstance(found, str):
            yield Damage(position, found, _next_intact(data, position + 1))
            return
        yield found
        position = found.end


def _frame_at(data: bytes, position: int) -> Frame | str:
    if len(data) - position < HEADER_SIZE:
        return "an incomplete frame header"
    magic, length, checksum = _HEADER.unpack_from(data, position)
    if magic != MAGIC:
        return "no frame begins here"
    start = position + HEADER_SIZE
    if length > MAX_FRAME_BODY:
        return f"a frame of {length} bytes, which is more than any frame has"
    if length > len(data) - start:
        return f"a frame of {length} bytes of which {len(data) - start} are there"
    body = memoryview(data)[start : start + length]
    if _checksum(body) != checksum:
        return "a checksum that does not match"
    try:
        items = msgpack.unpackb(body, use_list=False)
    except (ValueError, msgpack.exceptions.UnpackException):
        return "a frame whose contents cannot be read"
    return Frame(position, start + length, items)


def _next_intact(data: bytes, position: int) -> int | None:
    while (position := data.find(MAGIC, position)) >= 0:
        if not isinstance(_frame_at(data, position), str):
            return position
        position += 1
    return None
