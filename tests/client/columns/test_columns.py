"""Column-wise decoding against decoding record by record: every codec, nulls, headers, damaged and strange batches."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client import Client, Outgoing
from raftlog.client.columns.decode import SCHEMA, read_batches, to_table
from raftlog.client.columns.scan import PADDING, record_places
from raftlog.client.core.errors import DamagedRecords
from raftlog.client.core.fetched import Piece, Slice
from raftlog.wire.batch import (
    CRC_OFFSET,
    HEADER_SIZE,
    CorruptRecord,
    Record,
    TimestampType,
    assemble_batch,
    encode_batch,
    iterate_batches,
    parse_header,
)
from raftlog.wire.compression import Compression
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.messages.fetch import AbortedTransaction
from raftlog.wire.varint import read_varint
from tests.effort import examples

FIELDS = st.none() | st.binary(max_size=200) | st.integers(0, 300).map(bytes)
HEADERS = st.lists(st.tuples(st.text(max_size=5), FIELDS), max_size=4).map(tuple)
ROWS = st.tuples(st.integers(1, 3), st.integers(0, 2**41), FIELDS, FIELDS, HEADERS | st.just(()))
SIZED = st.tuples(st.integers(0, 9), st.integers(0, 200) | st.integers(8_150, 8_210), st.integers(1, 150))
"""Key and value of how many bytes, and of how many records: such stretches are found at once."""


def of_equal_sizes(stretches: list[tuple[int, int, int]]) -> list[tuple[int, int, bytes | None, bytes | None, object]]:
    return [(1, 7, bytes(key), b"v" * value, ()) for key, value, count in stretches for _ in range(count)]


RECORDS = st.lists(ROWS, min_size=1, max_size=30) | st.lists(SIZED, min_size=1, max_size=4).map(of_equal_sizes)


def batch_of(rows: list[tuple[int, int, bytes | None, bytes | None, object]], base: int, **options: object) -> bytes:
    """Offsets rise from `base` by the first number of each row."""
    records, offset = [], base - 1
    for step, timestamp, key, value, headers in rows:
        offset += step
        records.append(Record(offset, timestamp, key, value, headers))  # type: ignore[arg-type]
    return encode_batch(records, base_offset=base, **options)  # type: ignore[arg-type]


def pieces_of(data: bytes) -> list[Piece]:
    found = []
    for at, header in iterate_batches(data):
        found.append(Piece(header, data[at : at + header.size], header.base_offset, header.next_offset))
    return found


def check_same(pieces: list[Piece]) -> None:
    """Both ways come to the same records, or to the same error: of one partition, and of one for each piece."""
    check_slices([Slice("t", 3, pieces, pieces[-1].end, 0)])
    check_slices([Slice("tu"[at % 2], at, [piece], piece.end, 0) for at, piece in enumerate(pieces)])


def check_slices(slices: list[Slice]) -> None:
    try:
        expected = [record for part in slices for record in part.records()]
    except DamagedRecords as error:
        with pytest.raises(DamagedRecords) as damaged:
            to_table(slices)
        found = damaged.value
        assert (found.topic, found.partition, found.offset) == (error.topic, error.partition, error.offset)
        return
    table = to_table(slices)
    assert table.schema == SCHEMA and table.num_rows == len(expected)
    for name in ("key", "value", "topic", "partition", "offset"):
        assert table[name].to_pylist() == [getattr(record, name) for record in expected], name
    stamps = table["timestamp"].cast("int64").to_pylist()
    assert stamps == [record.timestamp for record in expected]
    headers = [tuple((each["key"], each["value"]) for each in row or ()) for row in table["headers"].to_pylist()]
    assert headers == [tuple((as_utf8(name), value) for name, value in record.headers) for record in expected]
    assert table["timestampType"].to_pylist() == [int(record.timestamp_type) for record in expected]


def as_utf8(name: str) -> str:
    """Arrow's strings are UTF-8: what is none is replaced."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


@settings(max_examples=examples(40))
@given(st.lists(RECORDS, min_size=1, max_size=4), st.sampled_from(Compression), st.sampled_from(TimestampType))
def test_any_batches_read_the_same(
    batches: list[list[tuple[int, int, bytes | None, bytes | None, object]]], codec: Compression, kind: TimestampType
) -> None:
    data, base = b"", 10
    for rows in batches:
        data += batch_of(rows, base, compression=codec, timestamp_type=kind)
        base = list(iterate_batches(data))[-1][1].next_offset
    check_same(pieces_of(data))


@settings(max_examples=examples(40))
@given(RECORDS)
def test_the_places_of_records_are_found_all_at_once(
    rows: list[tuple[int, int, bytes | None, bytes | None, object]],
) -> None:
    payload = batch_of(rows, 5)[HEADER_SIZE:]
    bodies, ends = record_places(payload + bytes(PADDING), len(payload), len(rows))
    at = 0
    for body, end in zip(bodies.tolist(), ends.tolist(), strict=True):
        length, expected = read_varint(payload, at)
        assert (body, end) == (expected, expected + length)
        at = end
    assert at == len(payload)


@settings(max_examples=examples(40))
@given(RECORDS, st.data())
def test_a_part_of_a_batch_reads_the_same(
    rows: list[tuple[int, int, bytes | None, bytes | None, object]], data: st.DataObject
) -> None:
    (piece,) = pieces_of(batch_of(rows, 5))
    first = data.draw(st.integers(piece.first, piece.end))
    end = data.draw(st.integers(first, piece.end))
    check_same([piece._replace(first=first, end=end)])


@settings(max_examples=examples(40))
@given(RECORDS, st.data())
def test_damaged_batches_are_told_with_their_place(
    rows: list[tuple[int, int, bytes | None, bytes | None, object]], data: st.DataObject
) -> None:
    """The checksum is right: whoever wrote this lies, or does not know how."""
    good = batch_of([(1, 0, b"k", b"v", ())] * 3, 0)
    bad = bytearray(batch_of(rows, 3))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(HEADER_SIZE, len(bad) - 1))
        bad[at] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        struct.pack_into(">i", bad, HEADER_SIZE - 4, data.draw(st.integers(-5, 50)))
    header = parse_header(bytes(bad))
    mended = assemble_batch(header, bytes(bad[HEADER_SIZE:]))
    pieces = [*pieces_of(good), *pieces_of(mended)]
    check_same(pieces)


@pytest.mark.parametrize("byte", [0x00, 0x01, 0x7F, 0x80, 0xFF])
@pytest.mark.parametrize("count", [1, 9, 40_000])
def test_bytes_that_are_no_records_are_told_with_their_place(byte: int, count: int) -> None:
    header = parse_header(batch_of([(1, 0, None, b"v", ())], 3))._replace(records_count=count)
    check_same(pieces_of(assemble_batch(header, bytes([byte]) * 300_000)))


def test_a_payload_that_is_no_compressed_data_is_told_with_its_place() -> None:
    packed = bytearray(batch_of([(1, 0, None, b"x" * 100, ())] * 20, 40, compression=Compression.ZSTD))
    packed[HEADER_SIZE + 10 :] = bytes(len(packed) - HEADER_SIZE - 10)
    with pytest.raises(DamagedRecords, match=r"t\[3\]: the batch at offset 40 is damaged"):
        to_table([Slice("t", 3, pieces_of(bytes(packed)), 60, 0)])
    assert CRC_OFFSET and issubclass(CorruptRecord, ValueError)


def test_fetched_bytes_are_read_without_a_consumer() -> None:
    rows: list[tuple[int, int, bytes | None, bytes | None, object]] = [(1, 5, b"k", b"%d" % n, ()) for n in range(10)]
    aborted = batch_of(rows, 10, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    marker = encode_transaction_marker(
        TransactionMarker(False, 0), producer_id=7, producer_epoch=0, timestamp=5, base_offset=20
    )
    data = batch_of(rows, 0) + aborted + marker + batch_of(rows, 21)
    listed = [AbortedTransaction(producer_id=7, first_offset=10)]
    table = read_batches("t", 3, data + data[:50], first=4, hidden=listed)
    assert table["offset"].to_pylist() == [*range(4, 10), *range(21, 31)]
    assert read_batches("t", 3, data, first=4)["offset"].to_pylist() == [*range(4, 20), *range(21, 31)]
    damaged = bytearray(data)
    damaged[-1] ^= 1
    with pytest.raises(DamagedRecords, match=r"t\[3\]: the batch at offset 21 is damaged: the checksum"):
        read_batches("t", 3, damaged)
    twice = batch_of(rows, 0) + batch_of(rows, 9)
    with pytest.raises(DamagedRecords, match=r"t\[3\]: the batch at offset 10 is damaged: one that begins at 9"):
        read_batches("t", 3, twice)


async def test_a_consumer_gives_tables(client: Client, topic: str) -> None:
    async with client.producer(compression="lz4") as producer:
        records = [Outgoing(b"%d" % n, key=b"k" if n % 2 else None, headers=[("n", b"%d" % n)]) for n in range(500)]
        await producer.send_batch(topic, records)
    numbers: list[bytes] = []
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        while len(numbers) < 500:
            batch = await consumer.poll(150, timeout=20)
            table = batch.arrow()
            assert table.num_rows == len(batch) and table.schema == SCHEMA
            assert set(table["topic"].to_pylist()) == {topic}
            numbers += table["value"].to_pylist()
    assert numbers == [b"%d" % number for number in range(500)]
