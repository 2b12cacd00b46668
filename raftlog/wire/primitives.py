"""What compiled encoders and decoders call at run time: tagged fields to skip, tables of packers.

A complaint is a `Malformed` with no name in it; raftlog.wire.codec finds out from the traceback which field was being
read.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct as Packing
from typing import Any

from raftlog.wire.errors import Malformed, NotEncodable
from raftlog.wire.varint import Buffer, encode_unsigned_varint, finish_unsigned_varint, read_unsigned_varint

TAGGED_FIELDS_MAX = 1000  # unknown ones in one section; each takes time and nothing else
STRING_BYTES_MAX = 0x7FFF  # also where the length is a varint
ERROR_MESSAGE_CHARACTERS_MAX = STRING_BYTES_MAX // 4  # whatever they are in UTF-8
SMALL_ARRAY = 64  # arrays with fewer elements find their reader in a table
_TABLE_COUNT_MAX = 256  # larger arrays get a packer made for the occasion
_BYTES_COPIED_MAX = 4096  # below this, copying into the output is cheaper than another buffer


def encode_string_length(length_and_one: int) -> bytes:
    """The varint in front of a compact string that is too long for a length of one byte."""
    if length_and_one > STRING_BYTES_MAX + 1:
        raise NotEncodable(f"a string of {length_and_one - 1} bytes; at most {STRING_BYTES_MAX} fit")
    return encode_unsigned_varint(length_and_one)


def skip_tagged_fields(
    data: Buffer, position: int, end: int, first: int, left: int = TAGGED_FIELDS_MAX
) -> tuple[int, int]:
    """The position after tagged fields none of which is known, and how many elements more the message may have.
    `first` is the first byte of their count.
    """
    count, position = (first, position) if first < 128 else finish_unsigned_varint(data, position, first)
    if count > TAGGED_FIELDS_MAX:
        raise Malformed(f"{count} tagged fields, more than {TAGGED_FIELDS_MAX}")
    left -= count
    if left < 0:
        raise too_many_together()
    for _ in range(count):
        _, position = read_unsigned_varint(data, position)
        size, position = read_unsigned_varint(data, position)
        position += size
        if position > end:
            raise overrun(size, position - size, end)
    return position, left


def overrun(size: int, position: int, end: int) -> Malformed:
    return Malformed(f"a length of {size} bytes, but {max(end - position, 0)} are left")


def too_many(count: int, position: int, end: int) -> Malformed:
    if count < 0:
        return Malformed("null, which is not allowed here")
    return Malformed(f"an array of {count} elements, but {max(end - position, 0)} bytes are left")


def too_many_together() -> Malformed:
    return Malformed("more elements, together with those before, than one message may have")


def null_or_negative(length: int) -> Malformed:
    return Malformed("null, which is not allowed here" if length == -1 else f"a length of {length}")


def byte_length(value: Any) -> int:
    """The length in bytes of a buffer, or of something that stands for bytes elsewhere and has a length."""
    try:
        return memoryview(value).nbytes
    except TypeError:
        if isinstance(value, str | list | tuple | dict):
            raise NotEncodable(f"{type(value).__name__} in place of bytes") from None
        return len(value)


def splice(parts: list[Any], output: bytearray, value: Any, size: int) -> bytearray:
    """Adds bytes to the output, and returns the buffer that takes what follows.

    Large buffers are not copied, but become parts of their own. So does an object that is no buffer: whoever
    writes the parts has to know it (a range of a file, say).
    """
    if size <= _BYTES_COPIED_MAX and isinstance(value, Buffer):
        output += value
        return output
    parts.append(output)
    parts.append(value)
    return bytearray()


Reader = Callable[[Buffer, int], tuple[Any, ...]]


def array_reader(format: str, count: int) -> Reader:
    """`unpack_from` for an array of `count` fixed-width values."""
    return Packing(f">{count}{format}").unpack_from


@cache
def small_array_readers(format: str, bias: int) -> tuple[Reader, ...]:
    """The same for all small arrays, by count as on the wire: a compact array's is one more (`bias` 1)."""
    return tuple(array_reader(format, max(count - bias, 0)) for count in range(SMALL_ARRAY))


class ArrayWriters(dict[Any, Callable[..., bytes]]):
    """`pack` for a run of fixed-width fields with arrays in it, by the counts of the arrays.

    `formats` are the formats between the arrays' elements: one more than `elements`, and each but the last
    ends in the format of the count of the array that follows. With `compact` counts that is B for a varint of
    one byte; for larger counts the packer made here is a slower one that writes the varints. The key is the
    count, or a tuple of counts if there are several arrays.
    """

    def __init__(self, formats: tuple[str, ...], elements: tuple[str, ...], compact: bool) -> None:
        self.formats = formats
        self.elements = elements
        self.compact = compact

    def __missing__(self, key: Any) -> Callable[..., bytes]:
        counts: tuple[int, ...] = key if isinstance(key, tuple) else (key,)
        if self.compact and max(counts) > 126:
            return self._write_with_varints(counts)
        text = ">" + self.formats[0]
        for count, element, following in zip(counts, self.elements, self.formats[1:], strict=True):
            text += f"{count}{element}{following}"
        writer = Packing(text).pack
        if sum(counts) <= _TABLE_COUNT_MAX and len(self) < _TABLE_COUNT_MAX:
            self[key] = writer
        return writer

    def _write_with_varints(self, counts: tuple[int, ...]) -> Callable[..., bytes]:
        pieces: list[tuple[Packing, bool]] = []  # what to pack, and whether a varint comes after it
        text = ">" + self.formats[0].removesuffix("B")
        for count, element, following in zip(counts, self.elements, self.formats[1:], strict=True):
            pieces.append((Packing(text), True))
            is_last = len(pieces) == len(self.elements)
            text = f">{count}{element}{following if is_last else following.removesuffix('B')}"
        pieces.append((Packing(text), False))

        def write(*values: Any) -> bytes:
            output = bytearray()
            taken = 0
            for packing, has_varint in pieces:
                width = _values_taken(packing)
                output += packing.pack(*values[taken : taken + width])
                taken += width
                if has_varint:
                    output += encode_unsigned_varint(values[taken])
                    taken += 1
            return bytes(output)

        return write


def _values_taken(packing: Packing) -> int:
    return len(packing.unpack(bytes(packing.size)))
