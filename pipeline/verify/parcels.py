"""Operations on their way from one task to another: many of them as one value, those of one key together."""

from __future__ import annotations

import marshal
import pickle
import zlib
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Key, Operation, Outcome

_CODES: dict[Outcome, int] = {OK: 0, FAIL: 1, INFO: 2}
_OUTCOMES = (OK, FAIL, INFO)
_fields = attrgetter("process", "function", "input", "output", "key", "call", "returned", "error", "line")
_PLAIN = (str, int, type(None))
MARSHALLED, PICKLED = b"m", b"p"


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
    operations: Iterable[Operation], part_of: Callable[[Operation], Key] | None, count: int
) -> dict[int, bytes]:
    """The operations in `count` parcels, by what they have in common; None for their keys."""
    parcels: dict[int, list[Operation]] = {}
    numbers: dict[Key, list[Operation]] = {}
    for operation in operations:
        key = operation.key if part_of is None else part_of(operation)
        try:
            numbers[key].append(operation)
        except KeyError:
            numbers[key] = parcels.setdefault(number_of(key) % count, [])
            numbers[key].append(operation)
    return {number: pack(found) for number, found in parcels.items()}


def pack(operations: Sequence[Operation]) -> bytes:
    rows = [
        (*_fields(op), _CODES[op.outcome])
        for op in operations
    ]
    if all(type(op.key) in _PLAIN for op in operations):
        return MARSHALLED + marshal.dumps(rows)
    return PICKLED + pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)


def unpack(parcel: bytes, first_line: int = 0) -> list[Operation]:
    """The operations; their lines were counted from `first_line` on."""
    rows: list[Any] = (marshal if parcel[:1] == MARSHALLED else pickle).loads(memoryview(parcel)[1:])
    return [
        Operation(process, function, given, output, key, call, returned, _OUTCOMES[code], error, -1, line + first_line)
        for process, function, given, output, key, call, returned, error, line, code in rows
    ]
