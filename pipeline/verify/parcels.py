"""Operations on their way from one task to another: many of them as one value, those of one key together."""

from __future__ import annotations

import marshal
import pickle
import zlib
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from raftlog.linearizability.checker.history import Key, Operation, Outcome
from raftlog.pipeline.verify.columns import as_batch, operations_of

# Taken by one call in C for each operation, and not by ten in Python.
_fields = attrgetter(
    *("process", "function", "input", "output", "key", "call", "returned", "error", "line", "outcome._value_")
)
_key = attrgetter("key")
_OUTCOMES: dict[str, Outcome] = {outcome.value: outcome for outcome in Outcome}
_PLAIN = {str, int, type(None)}
MARSHALLED, PICKLED, COLUMNS = b"m", b"p", b"c"
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
    return 0 if key is None else hash(key) & 0xFFFF_FFFF  # of numbers, which no seed changes


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


def sort_out_columns(rows: pa.RecordBatch, count: int) -> dict[int, bytes]:
    """The same for columns, by their keys."""
    keys = rows.column("key").dictionary_encode(null_encoding="encode")
    numbers = np.array([number_of(key) % count for key in keys.dictionary.to_pylist()], np.int32)
    parcel_of = numbers[keys.indices.to_numpy()] if len(keys) else numbers
    order = np.argsort(parcel_of.astype(np.int16) if count < 1 << 15 else parcel_of, kind="stable")
    sorted_out = rows.take(pa.array(order))
    sizes = np.bincount(parcel_of, minlength=count)
    ends = np.cumsum(sizes)
    return {
        number: COLUMNS + _written(sorted_out.slice(ends[number] - sizes[number], sizes[number]))
        for number in np.flatnonzero(sizes).tolist()
    }


def _written(rows: pa.RecordBatch) -> bytes:
    """Columns of nulls have no type: there are other ones to be put together with."""
    columns = {
        name: pa.nulls(rows.num_rows) if column.null_count == rows.num_rows else column
        for name, column in zip(rows.schema.names, rows.columns, strict=True)
    }
    table = pa.table({**columns, "function": columns["function"].dictionary_encode()})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


def read_rows(parcel: bytes, first_line: int = 0) -> pa.Table | None:
    """The columns in a parcel, None if there are none."""
    if parcel[:1] != COLUMNS:
        return None
    with pa.ipc.open_stream(memoryview(parcel)[1:]) as stream:
        table: pa.Table = stream.read_all()
    for name in ("function", "line"):
        column = table[name]
        whole = column.cast(pa.string()) if name == "function" else pc.add(column, first_line)
        table = table.set_column(table.schema.get_field_index(name), name, whole)
    return table


def pack(operations: Sequence[Operation]) -> bytes:
    rows = list(map(_fields, operations))
    if set(map(type, map(_key, operations))) <= _PLAIN:
        return MARSHALLED + marshal.dumps(rows, NO_REFERENCES)
    return PICKLED + pickle.dumps(rows, pickle.HIGHEST_PROTOCOL)


def unpack(parcel: bytes, first_line: int = 0) -> list[Operation]:
    """The operations; their lines were counted from `first_line` on."""
    columns = read_rows(parcel, first_line)
    if columns is not None:
        return operations_of(as_batch(columns))
    rows: list[Any] = (marshal if parcel[:1] == MARSHALLED else pickle).loads(memoryview(parcel)[1:])
    return [
        Operation(process, name, given, output, key, call, returned, _OUTCOMES[outcome], error, -1, line + first_line)
        for process, name, given, output, key, call, returned, error, line, outcome in rows
    ]
