"""Operations on their way from one task to another: many of them as one value, those of one key together."""

from __future__ import annotations

import marshal
import pickle
import zlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from raftlog.linearizability.checker.history import Key, Operation, Outcome

# Taken by one call in C for each operation, and not by ten in Python.
_fields = attrgetter(
    *("process", "function", "input", "output", "key", "call", "returned", "error", "line", "outcome._value_")
)
_key = attrgetter("key")
_OUTCOMES: dict[str, Outcome] = {outcome.value: outcome for outcome in Outcome}
_PLAIN = {str, int, type(None)}
MARSHALLED, PICKLED = b"m", b"p"
NO_REFERENCES = 2
"""A version of marshal that does not look for what is there twice: a quarter of the time."""


def number_of(key: Key) -> int:
    """The same in every process for keys that are equal."""
    if isinstance(key, str):
        return zlib.crc32(key.encode("utf-8", "surrogatepass"))
    if isinstance(key, tuple):
        number = 17
        for each in key:
            number = (number * 31 + number_of(each)) & 0xFFFF_FFFF
        return number
    return hash(key) & 0xFFFF_FFFF  # of numbers and None, which no seed changes


def sort_out(
    operations: Sequence[Operation], part_of: Callable[[Operation], Key] | None, count: int
) -> dict[int, bytes]:
    """The operations in `count` parcels, by what they have in common; None for their keys."""
    keys = list(map(_key if part_of is None else part_of, operations))
    if set(map(type, keys)) == {str}:
        numbers = [zlib.crc32(key.encode("utf-8", "surrogatepass")) for key in keys]
    else:
        numbers = list(map(number_of, keys))
    parcels: list[list[Operation]] = [[] for _ in range(count)]
    for operation, number in zip(operations, numbers, strict=True):
        parcels[number % count].append(operation)
    return {number: pack(found) for number, found in enumerate(parcels) if found}


def pack(operations: Sequence[Operation]) -> bytes:
    rows = list(map(_fields, operations))
    if set(map(type, map(_key, operations))) <= _PLAIN:
        return MARSHALLED + marshal.dumps(rows, NO_REFERENCES)
    return PICKLED + pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)


def unpack(parcel: bytes, first_line: int = 0) -> list[Operation]:
    """The operations; their lines were counted from `first_line` on."""
    rows: list[Any] = (marshal if parcel[:1] == MARSHALLED else pickle).loads(memoryview(parcel)[1:])
    return [
        Operation(process, name, given, output, key, call, returned, _OUTCOMES[outcome], error, -1, line + first_line)
        for process, name, given, output, key, call, returned, error, line, outcome in rows
    ]
