"""Record batches: what is written is read, and nothing that lies is believed."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.wire import batch as batches
from raftlog.wire.batch import (
    ATTRIBUTES_OFFSET,
    HEADER_SIZE,
    BatchHeader,
    CorruptRecord,
    Record,
    TimestampType,
    UnsupportedMagic,
    assemble_batch,
    check_crc,
    decode_batch,
    encode_batch,
    iterate_batches,
    parse_header,
    stamp_batch,
)
from raftlog.wire.checksum import crc32c
from raftlog.wire.compression import Compression, compress
from raftlog.wire.control import (
    ControlType,
    TransactionMarker,
    control_type,
    decode_control_batch,
    encode_transaction_marker,
    parse_transaction_marker,
)
from raftlog.wire.records import RecordBase, RecordScan, decode_records, encode_records, rebase_records, scan_records
from raftlog.wire.varint import encode_varint, read_varint, read_varlong
from tests.effort import examples

optional_bytes = st.none() | st.binary(max_size=80)
header_names = st.text(max_size=10) | st.binary(max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
timestamps = st.integers(-1, 2**45)


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    offset = draw(st.integers(0, 2**40))
    records = []
    for _ in range(draw(st.integers(1, 8))):
        headers = draw(st.lists(st.tuples(header_names, optional_bytes), max_size=3))
        records.append(Record(offset, draw(timestamps), draw(optional_bytes), draw(optional_bytes), tuple(headers)))
        offset += draw(st.integers(1, 1000))
    return records


@settings(max_examples=examples(150))
@given(
    records=record_lists(),
    codec=st.sampled_from(Compression),
    back=st.integers(0, 5),
    producer=st.tuples(st.integers(-1, 2**62), st.integers(-1, 2**15 - 1), st.integers(-1, 2**31 - 1)),
    transactional=st.booleans(),
    control=st.booleans(),
)
def test_what_is_written_comes_back(
    records: list[Record],
    codec: Compression,
    back: int,
    producer: tuple[int, int, int],
    transactional: bool,
    control: bool,
) -> None:
    base_offset = max(0, records[0].offset - back)
    batch = encode_batch(
        records,
        base_offset=base_offset,
        compression=codec,
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=producer[2],
        partition_leader_epoch=7,
        transactional=transactional,
        control=control,
    )
    header = parse_header(batch)
    assert decode_batch(batch) == records
    assert header.size == len(batch)
    assert (header.base_offset, header.last_offset) == (base_offset, records[-1].offset)
    assert header.next_offset == records[-1].offset + 1
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == producer
    assert (header.is_transactional, header.is_control, header.codec) == (transactional, control, codec)
    assert header.max_timestamp == max(record.timestamp for record in records)
    assert header.records_count == len(records)
    assert header.partition_leader_epoch == 7
    assert check_crc(batch, 0, header.size)


def test_log_append_time_is_the_time_of_every_record() -> None:
    records = [Record(0, 5, b"a", b"b"), Record(1, 9, b"c", b"d")]
    batch = encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME)
    assert parse_header(batch).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in decode_batch(batch)] == [9, 9]


def test_sequences_wrap_to_zero() -> None:
    records = [Record(offset, 0, None, b"x") for offset in range(4)]
    header = parse_header(encode_batch(records, producer_id=1, producer_epoch=0, base_sequence=2**31 - 2))
    assert header.last_sequence == 1


def test_a_leader_stamps_offset_and_epoch_without_touching_the_checksum() -> None:
    batch = bytearray(encode_batch([Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"v")]))
    stamp_batch(memoryview(batch), parse_header(batch), 500, 12)
    header = parse_header(batch)
    assert (header.base_offset, header.partition_leader_epoch) == (500, 12)
    assert [record.offset for record in decode_batch(batch)] == [500, 501]


@pytest.mark.parametrize("codec", list(Compression))
def test_any_changed_byte_behind_the_checksum_is_noticed(codec: Compression) -> None:
    batch = encode_batch([Record(0, 1, b"key", b"value")], compression=codec)
    for position in range(batches.CRC_OFFSET, len(batch)):
        changed = bytearray(batch)
        changed[position] ^= 0x10
        with pytest.raises(CorruptRecord):
            decode_batch(changed)


@pytest.mark.parametrize("codec", list(Compression))
def test_every_truncation_is_corrupt(codec: Compression) -> None:
    batch = encode_batch([Record(0, 1, b"key", b"value"), Record(1, 1, b"key", b"value")], compression=codec)
    for size in range(len(batch)):
        with pytest.raises(CorruptRecord):
            decode_batch(batch[:size])


def test_an_old_format_is_named_for_what_it_is() -> None:
    message_v1 = struct.pack(">qiIbbqii", 0, 22, 0, 1, 0, 0, -1, -1)
    with pytest.raises(UnsupportedMagic) as caught:
        parse_header(message_v1)
    assert caught.value.magic == 1
    with pytest.raises(UnsupportedMagic):
        list(iterate_batches(message_v1))
    future = bytearray(encode_batch([Record(0, 1, None, b"v")]))
    future[batches.MAGIC_OFFSET] = 0xFF
    with pytest.raises(UnsupportedMagic) as caught:
        parse_header(future)
    assert caught.value.magic == -1


def with_header(batch: bytes, **changes: int) -> bytes:
    """The batch with header fields changed and the checksum right again."""
    header = parse_header(batch)
    return assemble_batch(header._replace(**changes), batch[HEADER_SIZE:])


@pytest.mark.parametrize("codec", list(Compression))
@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_lying_record_count_is_corrupt(codec: Compression, count: int) -> None:
    batch = encode_batch([Record(0, 1, b"k", b"v"), Record(1, 1, b"k", b"v")], compression=codec)
    with pytest.raises(CorruptRecord):
        decode_batch(with_header(batch, records_count=count))


def test_a_record_beyond_the_last_offset_of_its_batch_is_corrupt() -> None:
    batch = encode_batch([Record(0, 1, b"k", b"v"), Record(5, 1, b"k", b"v")])
    with pytest.raises(CorruptRecord, match="ends at 4"):
        decode_batch(with_header(batch, last_offset_delta=4))


@pytest.mark.parametrize("codec_id", [5, 6, 7])
def test_an_undefined_codec_is_corrupt(codec_id: int) -> None:
    batch = encode_batch([Record(0, 1, b"k", b"v")])
    with pytest.raises(CorruptRecord, match="codec"):
        decode_batch(with_header(batch, attributes=codec_id))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 14, 48])
def test_a_length_below_a_header_is_corrupt(length: int) -> None:
    batch = bytearray(encode_batch([Record(0, 1, b"k", b"v")]))
    struct.pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptRecord):
        parse_header(batch)
    with pytest.raises(CorruptRecord):
        list(iterate_batches(batch))


def test_a_bomb_in_a_batch_is_corrupt() -> None:
    batch = encode_batch([Record(0, 1, b"k", b"v")])
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD):
        bomb = assemble_batch(parse_header(batch)._replace(attributes=codec), compress(codec, bytes(20 << 20)))
        with pytest.raises(CorruptRecord):
            decode_batch(bomb, max_bytes=1 << 20)


def payload_of(*bodies: bytes) -> bytes:
    return b"".join(encode_varint(len(body)) + body for body in bodies)


GOOD_BODY = b"\x00\x00\x00\x02k\x02v\x00"


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (payload_of(b"\x00\x00\x00\x01\x01"), "do not fit"),
        (payload_of(b"\x00\x00\x00\x01\x01\x02"), "a header|IndexError|index|headers"),
        (b"\x7f" + payload_of(GOOD_BODY), "bytes long"),
        (payload_of(GOOD_BODY) + b"\x00", "after the last"),
        (payload_of(b"\x00\x00\x00\x20k\x02v\x00"), "field of 16"),
        (payload_of(b"\x00\x00\x00\x03k\x02v\x00"), "field of -2"),
        (payload_of(b"\x00\x00\x00\x02k\x02v\x00\x00"), "too many"),
        (payload_of(b"\x00\x00\x00\x02k\x02v\x02\x01\x01"), "without a name"),
        (payload_of(b"\x00\x00\x00\x02k\x02v\x01\x00"), "-1 headers"),
        (payload_of(b"\x00\x00\x00\x02k\x02v\xfe\xff\xff\xff\x0f\x00"), "headers where"),
        (payload_of(b"\x00\x00\x01\x02k\x02v\x00"), "offset delta -1"),
        (payload_of(b"\x00\x00\xff\xff\xff\xff\xff\x01\x02k\x02v\x00"), "more than 32 bits"),
        (payload_of(b"\x00" + b"\xff" * 9 + b"\x7f\x00\x02k\x02v\x00"), "more than 64 bits"),
        (b"\xff\xff\xff\xff\xff\xff\xff\xff", "more than 32 bits"),
    ],
)
def test_each_malformed_record_is_refused_with_its_reason(payload: bytes, reason: str) -> None:
    header = parse_header(encode_batch([Record(0, 1, None, None)]))
    with pytest.raises(CorruptRecord, match=reason):
        decode_batch(assemble_batch(header._replace(records_count=1), payload))


@settings(max_examples=examples(300))
@given(payload=st.binary(max_size=60), count=st.integers(-2, 9), codec_id=st.integers(0, 7))
def test_random_bytes_are_records_or_corrupt(payload: bytes, count: int, codec_id: int) -> None:
    header = parse_header(encode_batch([Record(0, 1, None, None)]))
    batch = assemble_batch(header._replace(records_count=count, attributes=codec_id, last_offset_delta=99), payload)
    try:
        records = decode_batch(batch)
    except CorruptRecord:
        return
    assert len(records) == count


def test_offsets_that_do_not_rise_are_neither_written_nor_read() -> None:
    with pytest.raises(ValueError, match="rise"):
        encode_batch([Record(3, 1, None, b"a"), Record(3, 1, None, b"b")])
    with pytest.raises(ValueError, match="rise"):
        encode_batch([Record(3, 1, None, b"a")], base_offset=4)
    with pytest.raises(ValueError, match="at least one"):
        encode_batch([])
    twice = encode_records([Record(0, 0, None, b"a")], 0, 0) * 2
    header = parse_header(encode_batch([Record(0, 0, None, b"a")]))
    with pytest.raises(CorruptRecord, match="offset delta 0 after 0"):
        decode_batch(assemble_batch(header._replace(records_count=2, last_offset_delta=1), twice))


def test_iteration_ends_quietly_at_a_batch_that_is_cut_short() -> None:
    one = encode_batch([Record(0, 1, b"k", b"v")])
    two = encode_batch([Record(1, 1, b"k", b"v" * 50), Record(2, 1, None, None)], base_offset=1)
    for end in range(len(one), len(one) + len(two)):
        found = list(iterate_batches((one + two)[:end]))
        assert [position for position, _ in found] == [0]
    assert [(position, header.base_offset) for position, header in iterate_batches(one + two)] == [
        (0, 0),
        (len(one), 1),
    ]


def test_an_empty_batch_that_compaction_left_has_no_records() -> None:
    header = parse_header(encode_batch([Record(0, 1, b"k", b"v")], producer_id=5, producer_epoch=1))
    batch = assemble_batch(header._replace(records_count=0, attributes=Compression.GZIP), b"")
    assert decode_batch(batch) == []


@settings(max_examples=examples(80))
@given(records=record_lists(), data=st.data(), shift=st.integers(-(2**50), 2**50))
def test_records_moved_as_spans_are_the_same_records(records: list[Record], data: st.DataObject, shift: int) -> None:
    base = records[0].offset
    payload = encode_records(records, base, records[0].timestamp)
    spans = scan_records(payload, len(records))
    assert [(key, value_start < 0, base + delta) for delta, _, key, value_start, *_ in spans] == [
        (record.key, record.value is None, record.offset) for record in records
    ]
    chosen = data.draw(st.lists(st.sampled_from(range(len(records))), unique=True, min_size=1).map(sorted))
    moved = rebase_records(payload, [spans[index] for index in chosen], shift)
    header = parse_header(encode_batch(records, base_offset=base))._replace(
        base_timestamp=records[0].timestamp - shift, records_count=len(chosen)
    )
    assert decode_batch(assemble_batch(header, moved)) == [records[index] for index in chosen]


@settings(max_examples=examples(100))
@given(payload=st.binary(max_size=60), count=st.integers(-2, 9))
def test_spans_of_random_bytes_are_corrupt_or_within_them(payload: bytes, count: int) -> None:
    try:
        spans = scan_records(payload, count)
    except CorruptRecord:
        return
    assert all(0 <= start < tail < value_end < end <= len(payload) for *_, value_end, start, tail, end in spans)


@settings(max_examples=examples(40))
@given(records=record_lists(), limit=st.integers(1, 4))
def test_a_walk_in_pieces_finds_what_one_at_once_finds(records: list[Record], limit: int) -> None:
    payload = encode_records(records, records[0].offset, records[0].timestamp)
    scan = RecordScan(payload, len(records))
    pieces = []
    while scan.remaining:
        pieces += scan.take(limit)
    assert pieces == scan_records(payload, len(records))


@settings(max_examples=examples(200))
@given(payload=st.binary(max_size=40), count=st.integers(0, 5), good=record_lists(), at=st.integers(0, 400))
def test_a_walk_refuses_what_decoding_refuses_but_for_headers(
    payload: bytes, count: int, good: list[Record], at: int
) -> None:
    whole = encode_records(good, good[0].offset, good[0].timestamp)
    at %= len(whole)
    for data, records_count in ((payload, count), (whole[:at] + payload + whole[at + len(payload) :], len(good))):
        try:
            decoded = decode_records(data, RecordBase(records_count, 0, 0))
        except CorruptRecord:
            continue
        assert [(r.offset, r.timestamp, r.key) for r in decoded] == [s[:3] for s in scan_records(data, records_count)]


def test_transaction_markers_say_what_they_end() -> None:
    for committed in (False, True):
        marker = TransactionMarker(committed, 3)
        batch = encode_transaction_marker(
            marker, producer_id=9, producer_epoch=2, timestamp=77, base_offset=41, partition_leader_epoch=6
        )
        header = parse_header(batch)
        assert header.is_control
        assert header.is_transactional
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, -1)
        assert (header.base_offset, header.partition_leader_epoch, header.max_timestamp) == (41, 6, 77)
        assert decode_control_batch(batch) == marker


def test_transaction_markers_are_what_any_batch_of_their_record_is() -> None:
    for committed in (False, True):
        marker = encode_transaction_marker(
            TransactionMarker(committed, 2**31 - 1), producer_id=2**40, producer_epoch=2, timestamp=77, base_offset=41
        )
        record = Record(41, 77, struct.pack(">hh", 0, committed), struct.pack(">hi", 0, 2**31 - 1))
        same = encode_batch(
            [record], base_offset=41, producer_id=2**40, producer_epoch=2, transactional=True, control=True
        )
        assert marker == same


@pytest.mark.parametrize("changed", range(ATTRIBUTES_OFFSET, 78))
def test_a_marker_that_is_written_otherwise_is_read_like_any_control_batch(changed: int) -> None:
    def outcome(read: Callable[[], object]) -> object:
        try:
            return read()
        except CorruptRecord as error:
            return str(error)

    def slowly(batch: bytes) -> object:
        records = decode_batch(batch)
        return parse_transaction_marker(records[0]) if records else None

    batch = bytearray(
        encode_transaction_marker(TransactionMarker(True, 3), producer_id=9, producer_epoch=2, timestamp=7)
    )
    assert len(batch) == 78
    for byte in (0, 1, 2, 3, 0x20, 0x80, 0xFF):
        batch[changed] = byte
        struct.pack_into(">I", batch, ATTRIBUTES_OFFSET - 4, crc32c(batch[ATTRIBUTES_OFFSET:]))
        data = bytes(batch)
        assert outcome(partial(decode_control_batch, data)) == outcome(partial(slowly, data))
    batch[changed] ^= 0x10
    with pytest.raises(CorruptRecord, match="checksum"):
        decode_control_batch(bytes(batch))


def test_other_control_records_are_known_to_be_something_else() -> None:
    leader_change = Record(0, 0, struct.pack(">hh", 0, ControlType.LEADER_CHANGE), b"")
    assert parse_transaction_marker(leader_change) is None
    assert control_type(struct.pack(">hh", 0, 99)) == 99
    for key in (None, b"\x00", struct.pack(">hh", -1, 0)):
        with pytest.raises(CorruptRecord):
            control_type(key)
    with pytest.raises(CorruptRecord):
        parse_transaction_marker(Record(0, 0, struct.pack(">hh", 0, 1), b"\x00"))


@given(value=st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=examples(200))
def test_variable_length_numbers_have_their_own_size(value: int) -> None:
    encoded = encode_varint(value)
    assert len(encoded) <= 10
    assert read_varlong(b"?" + encoded, 1) == (value, 1 + len(encoded))
    if -(2**31) <= value < 2**31:
        assert read_varint(encoded, 0) == (value, len(encoded))


def test_the_header_names_its_fields_in_their_order() -> None:
    assert BatchHeader._fields[:3] == ("base_offset", "batch_length", "partition_leader_epoch")
    assert struct.calcsize(">qiibIhiqqqhii") == HEADER_SIZE
