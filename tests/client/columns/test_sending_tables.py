"""Tables that are sent: column-wise encoding against encoding record by record, and where the rows go."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client import BadTable, Client, KafkaError
from raftlog.client.columns import encode
from raftlog.client.columns.decode import HEADER
from raftlog.client.core.errors import MissingExtra, Rejected
from raftlog.client.core.partitioner import murmur2, partition_for_key
from raftlog.client.core.producer_batch import PackedRecords, ProducerBatch, ProducerIdentity
from raftlog.wire.batch import Record, decode_batch, parse_header
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode
from tests.client.reading import read_all
from tests.effort import examples

NOW = 1_700_000_000_000
FIELDS = st.none() | st.binary(max_size=150) | st.integers(0, 300).map(bytes)
PAIRS = st.lists(st.tuples(st.text(max_size=4), FIELDS), max_size=3)
ROWS = st.lists(
    st.tuples(FIELDS, FIELDS, st.none() | PAIRS, st.none() | st.integers(0, 4), st.none() | st.integers(-1, 2**42)),
    min_size=1,
    max_size=40,
)
Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None, int | None, int | None]


def table_of(rows: list[Row]) -> pa.Table:
    headers = [None if row[2] is None else [{"key": key, "value": value} for key, value in row[2]] for row in rows]
    columns = {
        "key": pa.array([row[0] for row in rows], pa.binary()),
        "value": pa.array([row[1] for row in rows], pa.binary()),
        "headers": pa.array(headers, pa.list_(HEADER)),
        "partition": pa.array([row[3] for row in rows], pa.int32()),
        "timestamp": pa.array([row[4] for row in rows], pa.int64()),
    }
    return pa.table(columns)


def record_of(row: Row, offset: int) -> Record:
    key, value, headers, _, timestamp = row
    return Record(offset, NOW if timestamp is None else timestamp, key, value, tuple(headers or ()))


def records_in(packed: PackedRecords) -> list[Record]:
    batch = ProducerBatch(("t", 0), 0.0)
    batch.fill(packed)
    return decode_batch(batch.encode(Compression.NONE))


def one_batch(rows: encode.Rows) -> list[Record]:
    (packed,) = encode.pack(rows, np.zeros(len(rows.sizes), np.int64), 1000, 1000)
    (batch,) = packed.batches
    return records_in(batch)


@settings(max_examples=examples(40))
@given(ROWS, st.sampled_from(Compression), st.integers(1, 3000), st.integers(1, 20), st.booleans())
def test_a_batch_of_columns_holds_what_one_of_records_does(
    rows: list[Row], codec: Compression, batch_bytes: int, batch_records: int, in_slices: bool
) -> None:
    table = table_of([rows[0], *rows]).slice(1) if in_slices else table_of(rows)
    (chunk,) = encode.rows_of(table, NOW)
    (packed,) = encode.pack(chunk, np.zeros(len(rows), np.int64), batch_bytes, batch_records)
    at = 0
    for each in packed.batches:
        assert each.records_count <= batch_records and (len(each.payload) <= batch_bytes or each.records_count == 1)
        expected = [record_of(row, index) for index, row in enumerate(rows[at : at + each.records_count])]
        batch, by_record = ProducerBatch(("t", 0), 0.0), ProducerBatch(("t", 0), 0.0)
        batch.fill(each)
        for record in expected:
            by_record.append(record.key, record.value, record.headers, record.timestamp)
        for one in (batch, by_record):
            one.number(ProducerIdentity(7, 1), 3)
        wire = batch.encode(codec)
        assert wire == by_record.encode(codec)
        assert decode_batch(wire) == expected and parse_header(wire).last_sequence == 3 + each.records_count - 1
        at += each.records_count
    assert at == len(rows)


@settings(max_examples=examples(40))
@given(ROWS, st.integers(5, 9), st.integers(1, 2000))
def test_rows_go_to_the_partitions_that_records_go_to(rows: list[Row], count: int, batch_bytes: int) -> None:
    seen: dict[int, int] = {}
    for chunk in encode.rows_of(table_of(rows), NOW):
        partitions = encode.partitions_of(chunk, count, batch_bytes, lambda size: 0)
        for packed in encode.pack(chunk, partitions, batch_bytes, 7):
            numbers = packed.rows.tolist()
            assert numbers == sorted(numbers), "in their order"
            found = [record._replace(offset=0) for each in packed.batches for record in records_in(each)]
            assert found == [record_of(rows[number], 0) for number in numbers]
            seen |= dict.fromkeys(numbers, packed.partition)
    for number, (key, _, _, partition, _) in enumerate(rows):
        chosen = 0 if key is None else partition_for_key(key, count)
        assert seen[number] == (chosen if partition is None else partition)


@settings(max_examples=examples(60))
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=30))
def test_the_hashes_of_many_keys_are_those_of_each(keys: list[bytes]) -> None:
    assert encode.murmur2(pa.array([b"x", *keys], pa.binary())[1:]).tolist() == [murmur2(key) for key in keys]


@settings(max_examples=examples(40))
@given(st.lists(st.integers(1, 500), min_size=1, max_size=50), st.integers(1, 1500))
def test_a_table_is_taken_in_windows_with_a_bound(sizes: list[int], bytes_max: int) -> None:
    chunks = encode.rows_of(pa.table({"value": [bytes(size) for size in sizes]}), NOW)
    parts = list(encode.windows(chunks, bytes_max))
    assert [len(value) for part in parts for value in part.values.to_pylist()] == sizes
    assert all(part.sizes.sum() <= bytes_max or len(part.sizes) == 1 for part in parts)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["a", None]),
        pa.array(["a", None], pa.large_string()),
        pa.array([b"a", None], pa.large_binary()),
        pa.array([b"a", None], pa.binary(1)),
        pa.array(["a", None]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_text_and_bytes_of_any_kind_are_sent(column: pa.Array) -> None:
    (rows,) = encode.rows_of(pa.table({"value": column, "key": column}), NOW)
    assert rows.values.to_pylist() == rows.keys.to_pylist() == [b"a", None]


def test_timestamps_of_any_unit_and_headers_as_a_map_are_sent() -> None:
    moment = datetime(2026, 1, 2, 3, 4, 5, 678_000, UTC)
    for kind in (pa.timestamp("us", "UTC"), pa.timestamp("ns", "UTC"), pa.timestamp("ms", "UTC")):
        headers = pa.array([[("a", b"1"), ("b", None)], None], pa.map_(pa.string(), pa.binary()))
        columns = {"value": [b"x", b"y"], "timestamp": pa.array([moment, None], kind), "headers": headers}
        (rows,) = encode.rows_of(pa.table(columns), NOW)
        first, second = one_batch(rows)
        assert (first.timestamp, second.timestamp) == (round(moment.timestamp() * 1000), NOW)
        assert (first.headers, second.headers) == ((("a", b"1"), ("b", None)), ())


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"valeu": [b"x"]}, "did you mean 'value'"),
        ({"key": [b"x"]}, "has a column 'value'"),
        ({"value": [1]}, "column 'value' is int64"),
        ({"value": [b"x"], "partition": [-2]}, "negative"),
        ({"value": [b"x"], "partition": ["0"]}, "not whole numbers"),
        ({"value": [b"x"], "headers": ["a"]}, "not a list of structs"),
        ({"value": [b"x"], "headers": [[{"key": None, "value": b""}]]}, "without a key"),
        ({"value": [b"x"], "headers": pa.array([[None]], pa.list_(HEADER))}, "a header that is NULL"),
    ],
)
def test_a_table_that_is_none_of_records_is_refused_in_words(columns: dict[str, Any], reason: str) -> None:
    with pytest.raises(BadTable, match=reason):
        encode.rows_of(pa.table(columns), NOW)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_a_table_is_stored_and_read_back(client: Client, three_partitions: str, codec: str) -> None:
    count = 3000
    rows: list[Row] = [
        (
            b"%d" % (n % 50) if n % 3 else None,
            b"%d" % n if n % 7 else None,
            [("n", b"%d" % n)] if n % 2 else None,
            None,
            n,
        )
        for n in range(count)
    ]
    async with client.producer(compression=codec, batch_size=16_384) as producer:
        placed = await producer.send_arrow(three_partitions, table_of(rows))
    assert placed.num_rows == count
    found = {(r.partition, r.offset): r for r in await read_all(client, three_partitions, count)}
    assert len({partition for partition, _ in found}) == 3
    for row, where in zip(rows, placed.to_pylist(), strict=True):
        record = found[where["partition"], where["offset"]]
        assert (record.key, record.value, record.headers, record.timestamp) == (*record_of(row, 0)[2:], row[4])


async def test_a_table_in_a_transaction_is_all_there_or_not(client: Client, topic: str, name: str) -> None:
    table = pa.table({"value": [b"%d" % n for n in range(2000)]})
    async with client.producer(transactional_id=name, batch_size=4096) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.send_arrow(topic, table)
                await producer.flush()
                raise ZeroDivisionError
        async with producer.transaction() as tx:
            delivery = await tx.send_arrow(topic, table)
    assert delivery.done and delivery.placed().num_rows == 2000
    found = await read_all(client, topic, 2000)
    assert [record.value for record in found] == table["value"].to_pylist()
    assert [record.offset for record in found] == delivery.placed()["offset"].to_pylist()


async def test_batches_that_are_too_large_for_a_topic_are_cut(client: Client, name: str) -> None:
    await client.admin.create_topic(name, partitions=1, configs={"max.message.bytes": "2000"})
    values = [np.random.default_rng(n).bytes(100) for n in range(100)]
    async with client.producer() as producer:
        placed = await producer.send_arrow(name, pa.table({"value": values}))
        with pytest.raises(Rejected) as refused:
            await producer.send_arrow(name, pa.table({"value": [bytes(3000)]}))
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
    assert placed["offset"].to_pylist() == list(range(100))
    assert [record.value for record in await read_all(client, name, 100)] == values


async def test_nothing_of_a_table_is_sent_that_cannot_be_sent_whole(client: Client, topic: str) -> None:
    async with client.producer(max_request_size=10_000) as producer:
        with pytest.raises(KafkaError, match="partitions 0 to 0"):
            await producer.send_arrow(topic, pa.table({"value": [b"a", b"b"], "partition": [0, 1]}))
        with pytest.raises(KafkaError, match="max_request_size"):
            await producer.send_arrow(topic, pa.table({"value": [b"a", bytes(10_000)]}))
        assert (await producer.send_arrow(topic, pa.table({"value": pa.array([], pa.binary())}))).num_rows == 0
    assert await read_all(client, topic, 0) == []


async def test_the_table_waits_for_room(client: Client, topic: str) -> None:
    """Four windows of a table, and room for one."""
    values = [bytes(1000)] * 200
    async with client.producer(buffer_memory=50_000, batch_size=10_000) as producer:
        placed = await producer.send_arrow(topic, pa.table({"value": values}))
    assert placed["offset"].to_pylist() == list(range(200))


async def test_without_arrow_the_extra_is_named(client: Client, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "raftlog.client.columns.encode")
    async with client.producer() as producer:
        with pytest.raises(MissingExtra, match=r"raftlog\[arrow\]"):
            await producer.send_arrow(topic, None)  # type: ignore[arg-type]


def test_headers_as_a_map_may_be_those_of_a_slice() -> None:
    headers = pa.array([[("a", b"1")], None, [("b", b"2"), ("c", None)], []], pa.map_(pa.string(), pa.binary()))
    table = pa.table({"value": [b"0", b"1", b"2", b"3"], "headers": headers})
    for first, count in [(1, 3), (2, 1), (0, 2)]:
        (rows,) = encode.rows_of(table.slice(first, count), NOW)
        found = [list(record.headers) for record in one_batch(rows)]
        assert found == [each or [] for each in headers.slice(first, count).to_pylist()]
