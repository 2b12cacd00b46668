"""Variable-length integers: unsigned ones, as messages use them (KIP-482), and zigzag ones, as records do.

Seven bits a byte, lowest first. Readers raise IndexError at the end of the data; callers turn that, and Malformed or
ValueError for a number that does not fit, into an error of their own, so that the fast path carries no checks.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from raftlog.wire.errors import Malformed

Buffer: TypeAlias = bytes | bytearray | memoryview

UNSIGNED_BYTES_MAX: Final = 5
UNSIGNED_MAX: Final = 0x7FFF_FFFF
"""Unsigned varints are lengths and counts, which Kafka holds in a signed int32."""

ONE_BYTE: Final = tuple(bytes((value,)) for value in range(128))


def encode_unsigned_varint(value: int) -> bytes:
    if value < 128:
        return ONE_BYTE[value]
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def read_unsigned_varint(data: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it. Raises IndexError where the data end, Malformed above int32."""
    first = data[position]
    if first < 128:
        return first, position + 1
    return finish_unsigned_varint(data, position + 1, first)


def finish_unsigned_varint(data: Buffer, position: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, already read, announces more."""
    value = first & 127
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > UNSIGNED_MAX:
                raise Malformed(f"a varint of {value}, above {UNSIGNED_MAX}")
            return value, position
    raise Malformed(f"a varint longer than {UNSIGNED_BYTES_MAX} bytes")


def encode_varint(value: int) -> bytes:
    """`value` (64 bits, signed) in zigzag form: 1 to 10 bytes. The 32-bit form is the same for numbers that fit."""
    rest = value << 1 if value >= 0 else ((-value) << 1) - 1
    if rest < 0x80:
        return ONE_BYTE[rest]
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    return encode_unsigned_varint(rest)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A signed 32-bit number and the position after it. Raises IndexError, ValueError."""
    return _read(data, position, 32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """A signed 64-bit number and the position after it. Raises IndexError, ValueError."""
    return _read(data, position, 64)


def _read(data: bytes, position: int, bits: int) -> tuple[int, int]:
    byte = data[position]
    position += 1
    result = byte & 0x7F
    shift = 7
    while byte >= 0x80:
        if shift >= bits:
            raise ValueError(f"a variable-length number of more than {bits} bits")
        byte = data[position]
        position += 1
        result |= (byte & 0x7F) << shift
        shift += 7
    if result >> bits:
        raise ValueError(f"a variable-length number of more than {bits} bits")
    return (result >> 1) ^ -(result & 1), position
