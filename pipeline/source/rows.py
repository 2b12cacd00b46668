"""From fetched record batches to the Arrow batches that Spark takes: its columns, its types."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from raftlog.client.columns.decode import Columns, decode_slices
from raftlog.client.core.fetched import Slice

HEADER = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.field("element", HEADER)),
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The columns of `options.ddl` as Arrow has them, exactly as Spark wants it."""
    return pa.schema([pa.field(name, TYPES[name]) for name in columns])


def record_batches(slices: Sequence[Slice], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of slices, some thousands at a time. Raises DamagedRecords."""
    for columns in decode_slices(slices):
        if len(columns.offsets):
            arrays = [_column(name, slices, columns) for name in schema.names]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)


def _column(name: str, slices: Sequence[Slice], columns: Columns) -> pa.Array:
    match name:
        case "key":
            return columns.keys
        case "value":
            return columns.values
        case "topic":
            return pa.array([each.topic for each in slices], pa.string()).take(pa.array(columns.slices))
        case "partition":
            return pa.array(np.array([each.partition for each in slices], np.int32)[columns.slices])
        case "offset":
            return pa.array(columns.offsets, pa.int64())
        case "timestamp":
            return pa.array(columns.timestamps * 1000, pa.int64()).view(TYPES["timestamp"])
        case "timestampType":
            return pa.array(columns.timestamp_types, pa.int32())
        case _:
            return _headers(columns.headers, len(columns.offsets))


def _headers(headers: pa.ListArray, count: int) -> pa.ListArray:
    """Empty lists in place of nulls: those cost Spark time for each row when it hands them to Python."""
    if headers.null_count == count:
        return pa.ListArray.from_arrays(pa.array(np.zeros(count + 1, np.int32)), pa.array([], HEADER)).cast(
            TYPES["headers"]
        )
    pairs = headers.values
    values = pa.StructArray.from_arrays([pairs.field(0), pairs.field(1)], fields=list(HEADER))
    return pa.ListArray.from_arrays(headers.offsets, values).cast(TYPES["headers"])
