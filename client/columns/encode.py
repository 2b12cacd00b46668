"""Arrow to record batches, many records at a time: the numbers by NumPy, the bytes put together by Arrow.

Nothing here needs an event loop: a table goes in, and what record batches hold comes out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from difflib import get_close_matches
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from raftlog.client.columns.scan import Bytes, Ints
from raftlog.client.core.errors import BadTable, Rejected
from raftlog.client.core.producer_batch import RECORD_OVERHEAD, PackedRecords
from raftlog.wire.batch import HEADER_SIZE
from raftlog.wire.errors import ErrorCode

COLUMNS = ("key", "value", "headers", "partition", "timestamp")
NONE = -1
"""Stands for a partition that is to be chosen."""
HEADER_OVERHEAD = 10
"""Bytes that a header has at most beside its name and value."""
NO_HEADERS = b"\x00"
_MULTIPLIER, _SEED = np.uint32(0x5BD1E995), 0x9747B28C


class Rows(NamedTuple):
    """Records to be sent. `partitions` has NONE where one is to be chosen; `timestamps` are ms since 1970.

    `headers` is a list of structs (key, value), or None where no record has any. `sizes`: bytes in a batch, at most.
    """

    keys: pa.Array
    values: pa.Array
    headers: pa.Array | None
    partitions: Ints
    timestamps: Ints
    sizes: Ints

    def part(self, first: int, end: int) -> Rows:
        if end - first == len(self.sizes):
            return self
        headers = None if self.headers is None else self.headers[first:end]
        numbers = (self.partitions[first:end], self.timestamps[first:end], self.sizes[first:end])
        return Rows(self.keys[first:end], self.values[first:end], headers, *numbers)

    def take(self, rows: Ints) -> Rows:
        chosen = pa.array(rows)
        headers = None if self.headers is None else self.headers.take(chosen)
        numbers = (self.partitions[rows], self.timestamps[rows], self.sizes[rows])
        return Rows(self.keys.take(chosen), self.values.take(chosen), headers, *numbers)


def rows_of(table: pa.Table, now_ms: int) -> list[Rows]:
    """The rows of a table, chunk by chunk; who says no timestamp gets `now_ms`. Raises BadTable."""
    _check_columns(table)
    return [_rows(batch, now_ms) for batch in table.to_batches() if batch.num_rows]


def check(chunks: Iterable[Rows], topic: str, partitions: int, bytes_max: int) -> None:
    """Raises Rejected for a partition that there is not, and for a record that no request has room for."""
    for rows in chunks:
        largest, highest = int(rows.sizes.max()), int(rows.partitions.max())
        if largest + HEADER_SIZE > bytes_max:
            reason = f"a record of {largest} bytes is larger than max_request_size ({bytes_max})"
            raise Rejected(ErrorCode.MESSAGE_TOO_LARGE, f"topic {topic!r}", reason)
        if highest >= partitions:
            reason = f"it has partitions 0 to {partitions - 1}"
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}[{highest}]", reason)


def windows(chunks: Iterable[Rows], bytes_max: int) -> Iterator[Rows]:
    """The same, some at a time: no more than `bytes_max`, or one."""
    for rows in chunks:
        firsts = [*_batch_starts(rows.sizes, bytes_max, len(rows.sizes)).tolist(), len(rows.sizes)]
        yield from (rows.part(first, end) for first, end in pairwise(firsts))


def partitions_of(rows: Rows, count: int, batch_bytes: int, choose: Callable[[int], int]) -> Ints:
    """Which of `count` partitions each row goes to.

    Rows with a key go where its hash says; those without, `batch_bytes` at a time, where `choose` says for so many.
    """
    partitions = rows.partitions
    free = partitions == NONE
    if not free.any():
        return partitions
    partitions = partitions.copy()
    keyless = np.asarray(rows.keys.is_null())
    keyed = np.flatnonzero(free & ~keyless)
    if len(keyed):
        partitions[keyed] = (murmur2(rows.keys)[keyed] & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    wandering = np.flatnonzero(free & keyless)
    if len(wandering):
        firsts = _batch_starts(rows.sizes[wandering], batch_bytes, len(wandering))
        sizes = np.add.reduceat(rows.sizes[wandering], firsts).tolist()
        chosen = np.array([choose(size) for size in sizes], np.int64)
        partitions[wandering] = np.repeat(chosen, np.diff(firsts, append=len(wandering)))
    return partitions


class Packed(NamedTuple):
    """Rows of one partition: which ones, in their order, and the payloads of batches that hold them."""

    partition: int
    rows: Ints
    batches: list[PackedRecords]


def pack(rows: Rows, partitions: Ints, batch_bytes: int, batch_records: int) -> list[Packed]:
    """All the rows, each in its partition, as the payloads of batches: what is larger is one by itself."""
    numbers, bounds = np.arange(len(partitions)), [0, len(partitions)]
    if not (partitions == partitions[0]).all():
        numbers = np.argsort(partitions, kind="stable")
        partitions, rows = partitions[numbers], rows.take(numbers)
        bounds[1:1] = (np.flatnonzero(np.diff(partitions)) + 1).tolist()
    spans = [*pairwise(bounds)]
    firsts = [first + _batch_starts(rows.sizes[first:end], batch_bytes, batch_records) for first, end in spans]
    batches = iter(_pack(rows, np.concatenate(firsts)))
    return [
        Packed(int(partitions[first]), numbers[first:end], [*islice(batches, len(each))])
        for (first, end), each in zip(spans, firsts, strict=True)
    ]


def _pack(rows: Rows, firsts: Ints) -> list[PackedRecords]:
    """The payloads of batches that begin with these rows."""
    counts = np.diff(firsts, append=len(rows.sizes))
    deltas = np.arange(len(rows.sizes)) - np.repeat(firsts, counts)
    since = rows.timestamps - np.repeat(rows.timestamps[firsts], counts)
    key_sizes, value_sizes = _sizes(rows.keys), _sizes(rows.values)
    headers = _header_bytes(rows.headers)
    bodies: Ints = 1 + varint_widths(since) + varint_widths(deltas)
    bodies += 1 if headers is None else _lengths(headers)
    for sizes in (key_sizes, value_sizes):
        bodies += varint_widths(sizes) + np.maximum(sizes, 0)
    joined = pc.binary_join_element_wise(
        varint_array([bodies, None, since, deltas, key_sizes]),
        rows.keys,
        varint_array([value_sizes]),
        rows.values,
        headers if headers is not None else pa.scalar(NO_HEADERS, pa.binary()),
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    data = memoryview(joined.buffers()[2])
    ends = np.append(_offsets(joined)[firsts], _offsets(joined)[-1]).tolist()
    newest = np.maximum.reduceat(rows.timestamps, firsts).tolist()
    return [
        PackedRecords(data[ends[at] : ends[at + 1]].tobytes(), count, first, newest[at])
        for at, (count, first) in enumerate(zip(counts.tolist(), rows.timestamps[firsts].tolist(), strict=True))
    ]


def _batch_starts(sizes: Ints, batch_bytes: int, batch_records: int) -> Ints:
    ends = np.cumsum(sizes)
    starts, before = [0], 0
    while True:
        first = starts[-1]
        end = min(int(np.searchsorted(ends, before + batch_bytes, "right")), first + batch_records)
        end = max(end, first + 1)
        if end >= len(sizes):
            return np.array(starts, np.int64)
        starts.append(end)
        before = int(ends[end - 1])


# Columns of the user's table.


def _check_columns(table: pa.Table) -> None:
    for name in table.column_names:
        if name not in COLUMNS:
            near = get_close_matches(name, COLUMNS, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(COLUMNS)}"
            raise BadTable(f"a table to send has no column {name!r}: {meant}")
    if len(set(table.column_names)) < len(table.column_names):
        raise BadTable("a column is there twice")
    if "value" not in table.column_names:
        raise BadTable("a table to send has a column 'value'")


def _rows(batch: pa.RecordBatch, now_ms: int) -> Rows:
    count = batch.num_rows
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    keys = _binary("key", columns["key"]) if "key" in columns else pa.nulls(count, pa.binary())
    values = _binary("value", columns["value"])
    headers = _headers(columns.get("headers"))
    partitions = _numbers("partition", columns.get("partition"), pa.int64(), NONE, count)
    if (partitions < NONE).any():
        raise BadTable("column 'partition' has a negative number")
    timestamps = _timestamps(columns.get("timestamp"), now_ms, count)
    sizes = np.maximum(_sizes(keys), 0) + np.maximum(_sizes(values), 0) + RECORD_OVERHEAD
    if headers is not None:
        flat = pc.list_flatten(headers)
        each = HEADER_OVERHEAD + sum(np.maximum(_sizes(flat.field(at)), 0) for at in range(2))
        ends = np.concatenate(([0], np.cumsum(each)))
        bounds = np.concatenate(([0], np.cumsum(_list_lengths(headers))))
        sizes = sizes + ends[bounds[1:]] - ends[bounds[:-1]]
    return Rows(keys, values, headers, partitions, timestamps, sizes)


def _binary(name: str, column: pa.Array) -> pa.Array:
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _binary(name, column.dictionary_decode())
    if pa.types.is_null(kind) or pa.types.is_binary(kind):
        return column.cast(pa.binary())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return column.cast(pa.string()).cast(pa.binary())
    if pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind) or pa.types.is_binary_view(kind):
        return column.cast(pa.binary())
    raise BadTable(f"column {name!r} is {kind}: bytes or text are sent, so cast it first")


def _numbers(name: str, column: pa.Array | None, kind: Any, missing: int, count: int) -> Ints:
    if column is None:
        return np.full(count, missing, np.int64)
    if not (pa.types.is_integer(column.type) or pa.types.is_null(column.type)):
        raise BadTable(f"column {name!r} is {column.type}, not whole numbers")
    return _filled(column.cast(kind), missing)


def _filled(column: pa.Array, missing: int) -> Ints:
    full = column.fill_null(missing) if column.null_count else column
    return np.asarray(full.to_numpy(zero_copy_only=False), np.int64)


def _timestamps(column: pa.Array | None, now_ms: int, count: int) -> Ints:
    if column is None or not pa.types.is_timestamp(column.type):
        return _numbers("timestamp", column, pa.int64(), now_ms, count)
    naive = pa.timestamp("ms", column.type.tz)
    return _filled(column.cast(naive, safe=False).cast(pa.int64()), now_ms)


def _headers(column: pa.Array | None) -> pa.Array | None:
    if column is None or pa.types.is_null(column.type):
        return None
    kind = column.type
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if pa.types.is_map(kind):
        pairs = pa.struct([("key", pa.string()), ("value", pa.binary())])
        items = pa.StructArray.from_arrays([column.keys, column.items], names=["key", "value"])
        bounds = pa.array(column.offsets.to_numpy())  # those of a slice begin somewhere, which goes with no mask
        column = pa.ListArray.from_arrays(bounds, items, mask=column.is_null()).cast(pa.list_(pairs))
    elif is_list and pa.types.is_null(kind.value_type):
        return None  # lists, and all of them empty
    elif not is_list or not pa.types.is_struct(kind.value_type) or kind.value_type.num_fields != 2:
        raise BadTable(f"column 'headers' is {kind}, not a list of structs of key (text) and value (bytes)")
    flat = pc.list_flatten(column)
    if flat.null_count:
        raise BadTable("column 'headers' has a header that is NULL")
    names, contents = (flat.field(at) for at in range(2))
    if names.null_count:
        raise BadTable("column 'headers' has a header without a key")
    if not _list_lengths(column).any():
        return None
    pairs = pa.StructArray.from_arrays(
        [_binary("headers", names), _binary("headers", contents)], names=["key", "value"]
    )
    bounds = np.concatenate(([0], np.cumsum(_list_lengths(column)))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(bounds), pairs)


# Bytes.


def _header_bytes(headers: pa.Array | None) -> pa.Array | None:
    """How many there are, and each of them."""
    if headers is None:
        return None
    flat = pc.list_flatten(headers)
    names, contents = flat.field(0), flat.field(1)
    each = pc.binary_join_element_wise(
        varint_array([_sizes(names)]),
        names,
        varint_array([_sizes(contents)]),
        contents,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    counts = _list_lengths(headers)
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    together = pc.binary_join(pa.ListArray.from_arrays(pa.array(bounds), each), b"")
    return pc.binary_join_element_wise(varint_array([counts]), together, b"")


def varint_widths(numbers: Ints) -> Ints:
    """Bytes that each number takes, as a signed varint."""
    raw = _zigzag(numbers)
    widths = np.ones(len(raw), np.int64)
    limit = 1 << 7
    highest = int(raw.max(initial=0))
    while limit <= highest:
        widths += raw >= np.uint64(limit)
        limit <<= 7
    return widths


def varint_array(fields: list[Ints | None]) -> pa.Array:
    """For each row its numbers as signed varints, one behind the other; a field of None is one byte 0."""
    count = len(next(each for each in fields if each is not None))
    columns: list[npt.NDArray[np.uint8]] = []
    used: list[npt.NDArray[np.bool_] | None] = []
    for numbers in fields:
        if numbers is None:
            columns.append(np.zeros(count, np.uint8))
            used.append(None)
            continue
        rest = _zigzag(numbers)
        there = None
        while True:
            more = rest >= np.uint64(0x80)
            byte = (rest & np.uint64(0x7F)).astype(np.uint8)
            columns.append(byte | more.astype(np.uint8) << np.uint8(7))
            used.append(there)
            if not more.any():
                break
            rest = rest >> np.uint64(7)
            there = more
    data = np.stack(columns, axis=1)
    if all(each is None or each.all() for each in used):
        ends = np.arange(0, count + 1, dtype=np.int32) * np.int32(len(columns))
        flat: Bytes = data.reshape(-1)
    else:
        mask = np.ones(data.shape, bool)
        for at, each in enumerate(used):
            if each is not None:
                mask[:, at] = each
        flat = data[mask]
        ends = np.concatenate(([0], np.cumsum(mask.sum(axis=1)))).astype(np.int32)
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(ends), pa.py_buffer(flat)])


def _zigzag(numbers: Ints) -> npt.NDArray[np.uint64]:
    return (numbers << 1 ^ numbers >> 63).view(np.uint64)


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]


def _lengths(column: pa.Array) -> Ints:
    if not len(column):
        return np.empty(0, np.int64)
    return np.diff(_offsets(column)).astype(np.int64)


def _sizes(column: pa.Array) -> Ints:
    """Bytes of each, -1 for null."""
    sizes = _lengths(column)
    if column.null_count:
        sizes[np.asarray(column.is_null())] = -1
    return sizes


def _list_lengths(column: pa.Array) -> Ints:
    return _filled(pc.list_value_length(column).cast(pa.int64()), 0)


# Partitions.


def murmur2(keys: pa.Array) -> npt.NDArray[np.uint32]:
    """The hash of each key, as `core.partitioner.murmur2` has it; that of a null is of no use."""
    count = len(keys)
    if not count or keys.buffers()[2] is None:
        return np.zeros(count, np.uint32)
    first, end = int(_offsets(keys)[0]), int(_offsets(keys)[-1])
    # Theirs alone: a window of a large table has the buffer of all of it.
    data = np.concatenate((np.frombuffer(keys.buffers()[2], np.uint8)[first:end], np.zeros(4, np.uint8)))
    begins = _offsets(keys)[:-1].astype(np.int64) - first
    lengths = _lengths(keys)
    hashed = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    order = np.argsort(-words, kind="stable")
    left = np.searchsorted(-words[order], -np.arange(int(words.max(initial=0))), "left")
    for at, rows_left in enumerate(left.tolist()):
        rows = order[:rows_left]
        word = _word(data, begins[rows] + 4 * at) * _MULTIPLIER
        word = (word ^ word >> np.uint32(24)) * _MULTIPLIER
        hashed[rows] = hashed[rows] * _MULTIPLIER ^ word
    tail = lengths & 3
    rows = np.flatnonzero(tail)
    masks = (np.uint32(1) << (tail[rows].astype(np.uint32) * np.uint32(8))) - np.uint32(1)
    hashed[rows] = (hashed[rows] ^ _word(data, (begins + (words << 2))[rows]) & masks) * _MULTIPLIER
    hashed = (hashed ^ hashed >> np.uint32(13)) * _MULTIPLIER
    return hashed ^ hashed >> np.uint32(15)


def _word(data: Bytes, places: Ints) -> npt.NDArray[np.uint32]:
    found = data[places].astype(np.uint32)
    for byte in range(1, 4):
        found |= data[places + byte].astype(np.uint32) << np.uint32(8 * byte)
    return found
