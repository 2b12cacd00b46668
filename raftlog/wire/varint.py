"""Zigzag variable-length integers, as records use them.

Readers work on `bytes` and raise IndexError at the end of the data and ValueError on a number that does not fit;
callers turn both into an error of their own, once per batch, so that the fast path carries no checks.
"""

from __future__ import annotations


def encode_varint(value: int) -> bytes:
    """`value` (64 bits, signed) in zigzag form: 1 to 10 bytes. The 32-bit form is the same for numbers that
    fit."""
    rest = value << 1 if value >= 0 else ((-value) << 1) - 1
    if rest < 0x80:
        return bytes((rest,))
    if rest < 0x4000:
        return bytes((rest & 0x7F | 0x80, rest >> 7))
    out = bytearray()
    while rest >= 0x80:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def varint_size(value: int) -> int:
    """How many bytes `encode_varint(value)` has."""
    rest = value << 1 if value >= 0 else ((-value) << 1) - 1
    return max(1, (rest.bit_length() + 6) // 7)


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A signed 32-bit number and the position after it."""
    return _read(data, position, 32)


def read_varlong(data: bytes, position: int) -> tuple[int, int]:
    """A signed 64-bit number and the position after it."""
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
