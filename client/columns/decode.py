"""Record batches to Arrow, whole batches at a time.

What cannot be done at once for a run of batches (damaged ones, unusual ones) is done record by record, batch after
batch, so that an error names the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from raftlog.client.columns.scan import PADDING, Bytes, Ints, Unusual, record_places, spans, varints
from raftlog.client.core.errors import DamagedRecords
from raftlog.client.core.fetched import Piece, Slice, decode_piece, in_order, verify
from raftlog.client.core.isolation import AbortedFilter
from raftlog.wire.batch import (
    LOG_APPEND_TIME_BIT,
    MAX_DECOMPRESSED_BYTES,
    CorruptRecord,
    iterate_batches,
    unpack_payload,
)
from raftlog.wire.messages.fetch import AbortedTransaction
from raftlog.wire.schema import Bytes as FetchedBytes

HEADER = pa.struct([pa.field("key", pa.string(), nullable=False), pa.field("value", pa.binary())])
SCHEMA = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("topic", pa.dictionary(pa.int32(), pa.string()), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.timestamp("ms", tz="UTC"), nullable=False),
        pa.field("timestampType", pa.int32(), nullable=False),
        pa.field("headers", pa.list_(HEADER)),
    ]
)
"""The columns of Spark's Kafka source, by its names."""
RUN_BYTES_MAX = 1024 * 1024
"""So much unpacked data is looked at together."""
HEADERS_MAX = 256
"""A record with more of them is read by itself."""


class Columns(NamedTuple):
    """Records. `slices` says of which slice each one is, by its number; `timestamps` are ms since 1970."""

    slices: Ints
    keys: pa.Array
    values: pa.Array
    offsets: Ints
    timestamps: Ints
    timestamp_types: Ints
    headers: pa.Array


def to_table(slices: Sequence[Slice]) -> pa.Table:
    """All records of these slices, in their order. Raises DamagedRecords."""
    parts: list[pa.RecordBatch] = []
    topics = list(dict.fromkeys(each.topic for each in slices))
    names = pa.array(topics, pa.string())
    topic_of = np.array([topics.index(each.topic) for each in slices], np.int32)
    partition_of = np.array([each.partition for each in slices], np.int32)
    for columns in decode_slices(slices):
        arrays = [
            columns.keys,
            columns.values,
            pa.DictionaryArray.from_arrays(pa.array(topic_of[columns.slices]), names),
            pa.array(partition_of[columns.slices]),
            pa.array(columns.offsets),
            pa.array(columns.timestamps).cast(SCHEMA.field("timestamp").type),
            pa.array(columns.timestamp_types.astype(np.int32)),
            columns.headers,
        ]
        parts.append(pa.RecordBatch.from_arrays(arrays, schema=SCHEMA))
    return pa.Table.from_batches(parts, schema=SCHEMA)


def read_batches(
    topic: str, partition: int, data: FetchedBytes, *, first: int = 0, hidden: Iterable[AbortedTransaction] = ()
) -> pa.Table:
    """What a broker sent of a partition, from offset `first` on, as a table; a batch that is cut short ends it.

    Left out are control batches and, of the transactions that the broker listed as aborted, what is `hidden` for it.
    Raises DamagedRecords.
    """
    pieces: list[Piece] = []
    view, aborted = memoryview(data), AbortedFilter(hidden)
    at, after = 0, first
    try:
        for at, header in in_order(iterate_batches(view)):
            piece = Piece(header, view[at : at + header.size], first, header.next_offset)
            after = header.next_offset
            if after <= first or aborted.hides(header, piece.data) or not header.records_count:
                continue
            verify(topic, partition, piece)
            pieces.append(piece)
    except CorruptRecord as error:
        raise DamagedRecords(topic, partition, after, str(error)) from error
    return to_table([Slice(topic, partition, pieces, after, -1)])


class _Unpacked(NamedTuple):
    """A piece of the slice with this number, and its records, no longer compressed."""

    number: int
    piece: Piece
    payload: bytes


def decode_slices(slices: Sequence[Slice]) -> Iterator[Columns]:
    """Their records, in their order; the checksums were looked at before. Raises DamagedRecords."""
    run: list[_Unpacked] = []
    size = 0
    for number, part in enumerate(slices):
        for piece in part.pieces:
            try:
                payload = unpack_payload(piece.data, piece.header, MAX_DECOMPRESSED_BYTES)
            except CorruptRecord as error:
                first, after = piece.header.base_offset, piece.header.next_offset
                raise DamagedRecords(part.topic, part.partition, first, str(error), after) from error
            if run and size + len(payload) > RUN_BYTES_MAX:
                yield from _decode_run(slices, run)
                run, size = [], 0
            run.append(_Unpacked(number, piece, payload))
            size += len(payload)
    if run:
        yield from _decode_run(slices, run)


def _decode_run(slices: Sequence[Slice], run: Sequence[_Unpacked]) -> Iterator[Columns]:
    try:
        yield _decode_at_once(run)
        return
    except Unusual:
        if len(run) == 1:
            yield _decode_one_by_one(slices[run[0].number], run[0])
            return
    for each in run:
        yield from _decode_run(slices, [each])


def _decode_at_once(run: Sequence[_Unpacked]) -> Columns:
    """Raises Unusual."""
    pieces = [each.piece for each in run]
    joined = b"".join((*(each.payload for each in run), bytes(PADDING)))
    data: Bytes = np.frombuffer(joined, np.uint8)
    size = len(joined) - PADDING
    counts = np.array([piece.header.records_count for piece in pieces], np.int64)
    if (counts < 0).any() or counts.sum() * (1 + 6) > size:
        raise Unusual
    count = int(counts.sum())
    bodies, ends = record_places(joined, size, count)
    firsts = np.concatenate(([0], np.cumsum(counts)))
    bounds = np.cumsum([len(each.payload) for each in run])
    last = firsts[1:][counts > 0] - 1
    if (ends[last] != bounds[counts > 0]).any():
        raise Unusual  # a batch has more or fewer records than it says
    stamps, positions = varints(data, bodies + 1)
    deltas, positions = varints(data, positions)
    key_from, key_to, no_key = spans(data, positions, ends)
    value_from, value_to, no_value = spans(data, key_to, ends)
    header_counts, positions = varints(data, value_to)
    _check_order(deltas, firsts, pieces)
    headers = _headers(data, header_counts, positions, ends)
    offsets = np.repeat([piece.header.base_offset for piece in pieces], counts) + deltas
    timestamps, kinds = _timestamps(pieces, counts, stamps)
    buffer = pa.py_buffer(joined)
    columns = Columns(
        np.repeat([each.number for each in run], counts),
        _binary(buffer, key_from, key_to, no_key),
        _binary(buffer, value_from, value_to, no_value),
        offsets,
        timestamps,
        kinds,
        headers,
    )
    return columns if all(piece.is_whole for piece in pieces) else _within(columns, pieces, counts)


def _check_order(deltas: Ints, firsts: Ints, pieces: Sequence[Piece]) -> None:
    rises = np.diff(deltas, prepend=-1) > 0
    begins = firsts[:-1][np.diff(firsts) > 0]
    rises[begins] = deltas[begins] >= 0
    limits = np.repeat([piece.header.last_offset_delta for piece in pieces], np.diff(firsts))
    if not rises.all() or (deltas > limits).any():
        raise Unusual


def _timestamps(pieces: Sequence[Piece], counts: Ints, stamps: Ints) -> tuple[Ints, Ints]:
    """Those of the records, or the broker's for all records of a batch."""
    bases = [piece.header.base_timestamp for piece in pieces]
    appended = [bool(piece.header.attributes & LOG_APPEND_TIME_BIT) for piece in pieces]
    if any(appended):
        by_broker = np.repeat(np.array(appended), counts)
        fixed = np.repeat(np.array([piece.header.max_timestamp for piece in pieces], np.int64), counts)
        return np.where(by_broker, fixed, np.repeat(np.array(bases, np.int64), counts) + stamps), by_broker.astype(
            np.int64
        )
    base = np.repeat(np.array(bases, np.int64), counts)
    timestamps = base + stamps
    if (((base ^ timestamps) & (stamps ^ timestamps)) < 0).any():
        raise Unusual  # more than 64 bits
    return timestamps, np.zeros(len(stamps), np.int64)


def _binary(buffer: pa.Buffer, begin: Ints, end: Ints, null: Any) -> pa.Array:
    """The bytes between `begin` and `end`, which rise: gathered by Arrow out of what lies between them, too."""
    if null.all():
        return pa.nulls(len(begin), pa.binary())
    edges = np.empty(2 * len(begin), np.int32)
    edges[0::2], edges[1::2] = begin, end
    everything = pa.Array.from_buffers(pa.binary(), len(edges) - 1, [None, pa.py_buffer(edges), buffer])
    wanted = np.arange(0, len(edges), 2)
    return everything.take(pa.array(wanted, mask=null if null.any() else None))


def _headers(data: Bytes, counts: Ints, positions: Ints, ends: Ints) -> pa.Array:
    if not counts.any():
        if (positions != ends).any():
            raise Unusual
        return pa.nulls(len(counts), SCHEMA.field("headers").type)
    if (counts < 0).any() or counts.max() > HEADERS_MAX:
        raise Unusual
    rounds: list[tuple[Ints, Ints, Ints, Ints, Ints, Any]] = []
    positions = positions.copy()
    for number in range(int(counts.max())):
        rows = np.flatnonzero(counts > number)
        name_from, name_to, no_name = spans(data, positions[rows], ends[rows])
        value_from, value_to, no_value = spans(data, name_to, ends[rows])
        if no_name.any():
            raise Unusual
        positions[rows] = value_to
        rounds.append((rows, name_from, name_to, value_from, value_to, no_value))
    if (positions != ends).any():
        raise Unusual
    order = np.argsort(np.concatenate([each[0] for each in rounds]), kind="stable")
    name_from, name_to, value_from, value_to, no_value = (
        np.concatenate([each[at] for each in rounds])[order] for at in range(1, 6)
    )
    buffer = pa.py_buffer(data)
    names = _binary(buffer, name_from, name_to, np.zeros(len(order), bool))
    try:
        text = names.cast(pa.string())
    except pa.ArrowInvalid:
        raise Unusual from None
    values = _binary(buffer, value_from, value_to, no_value)
    pairs = pa.StructArray.from_arrays([text, values], fields=list(HEADER))
    bounds = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    none = np.append(counts == 0, False)
    return pa.ListArray.from_arrays(pa.array(bounds, mask=none), pairs, type=SCHEMA.field("headers").type)


def _within(columns: Columns, pieces: Sequence[Piece], counts: Ints) -> Columns:
    """Without the records before or behind what the pieces stand for."""
    first = np.repeat([piece.first for piece in pieces], counts)
    end = np.repeat([piece.end for piece in pieces], counts)
    rows = np.flatnonzero((columns.offsets >= first) & (columns.offsets < end))
    taken = [each.take(pa.array(rows)) if isinstance(each, pa.Array) else each[rows] for each in columns]
    return Columns(*taken)


def _decode_one_by_one(part: Slice, unpacked: _Unpacked) -> Columns:
    records = decode_piece(part.topic, part.partition, unpacked.piece)
    kind = int(unpacked.piece.header.timestamp_type)
    return Columns(
        np.full(len(records), unpacked.number, np.int64),
        pa.array([record.key for record in records], pa.binary()),
        pa.array([record.value for record in records], pa.binary()),
        np.array([record.offset for record in records], np.int64),
        np.array([record.timestamp for record in records], np.int64),
        np.full(len(records), kind, np.int64),
        pa.array([_pairs(record.headers) for record in records], SCHEMA.field("headers").type),
    )


def _pairs(headers: Iterable[tuple[str, bytes | None]]) -> list[dict[str, Any]] | None:
    """A name that is no text becomes one with replacement characters: Arrow's strings are UTF-8."""
    pairs = [
        {"key": name.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), "value": value}
        for name, value in headers
    ]
    return pairs or None
