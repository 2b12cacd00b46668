"""What compiled encoders and decoders call at run time: varints, tagged fields to skip, tables of packers.

Does not know messages or fields: a complaint is a `Malformed` with no name in it, and raftlog.wire.codec finds out from
the traceback which field was being read.

Unsigned varints are those of KIP-482: seven bits a byte, lowest first, at most five bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct as Packing
from typing import Any

from raftlog.wire.errors import NotEncodable

Buffer = bytes | bytearray | memoryview

VARINT_BYTES_MAX = 5
LENGTH_MAX = 0x7FFF_FFFF
TAGGED_FIELDS_MAX = 1000  # unknown ones in one section; each takes time and nothing else
STRING_BYTES_MAX = 0x7FFF  # also where the length is a varint
ERROR_MESSAGE_CHARACTERS_MAX = STRING_BYTES_MAX // 4  # whatever they are in UTF-8
SMALL_ARRAY = 64  # arrays with fewer elements find their reader in a table
_TABLE_COUNT_MAX = 256  # larger arrays get a packer made for the occasion
_BYTES_COPIED_MAX = 4096  # below this, copying into the output is cheaper than another buffer

ONE_BYTE = tuple(bytes((value,)) for value in range(128))


class Malformed(Exception):
    """The bytes do not follow the protocol. Says what is wrong, not where."""


def encode_varint(value: int) -> bytes:
    if value < 128:
        return ONE_BYTE[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def encode_string_length(length_and_one: int) -> bytes:
    """The varint in front of a compact string that is too long for a length of one byte."""
    if length_and_one > STRING_BYTES_MAX + 1:
        raise NotEncodable(f"a string of {length_and_one - 1} bytes; at most {STRING_BYTES_MAX} fit")
    return encode_varint(length_and_one)


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it. Raises IndexError where the data end."""
    first = data[position]
    if first < 128:
        return first, position + 1
    return finish_varint(data, position + 1, first)


def finish_varint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, already read, announces more."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > LENGTH_MAX:
                raise Malformed(f"a varint of {value}, above {LENGTH_MAX}")
            return value, position
    raise Malformed(f"a varint longer than {VARINT_BYTES_MAX} bytes")


def skip_tagged_fields(data: Buffer, position: int, end: int, first: int) -> int:
    """The position after tagged fields none of which is known. `first` is the first byte of their count."""
    count, position = (first, position) if first < 128 else finish_varint(data, position, first)
    if count > TAGGED_FIELDS_MAX:
        raise Malformed(f"{count} tagged fields, more than {TAGGED_FIELDS_MAX}")
    for _ in range(count):
        _, position = read_varint(data, position)
        size, position = read_varint(data, position)
        position += size
        if position > end:
            raise overrun(size, position - size, end)
    return position


def overrun(size: int, position: int, end: int) -> Malformed:
    return Malformed(f"a length of {size} bytes, but {max(end - position, 0)} are left")


def too_many(count: int, position: int, end: int) -> Malformed:
    if count < 0:
        return Malformed("null, which is not allowed here")
    return Malformed(f"an array of {count} elements, but {max(end - position, 0)} bytes are left")


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
                    output += encode_varint(values[taken])
                    taken += 1
            return bytes(output)

        return write


def _values_taken(packing: Packing) -> int:
    return len(packing.unpack(bytes(packing.size)))
