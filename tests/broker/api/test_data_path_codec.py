"""Produce and Fetch are decoded and encoded by hand on the data path: here they equal the compiled codec."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.broker.api.produce_encoding import encode_outcome, parse
from raftlog.broker.core.fetch.session import FetchedPartition, FetchSession, TopicKey
from raftlog.broker.core.log.results import AppendResult, FileRange, RecordError
from raftlog.broker.runtime.partition_read import PartitionRead
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.fetch_reply import encode_fetch_reply
from raftlog.wire.messages.fetch import FetchResponse
from raftlog.wire.messages.metadata import MetadataRequest
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

names = st.text(min_size=1, max_size=200)
ids = st.binary(min_size=16, max_size=16)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
errors = st.sampled_from(list(ErrorCode))
payloads = st.one_of(st.none(), st.binary(max_size=300))


@given(st.data(), st.integers(3, 13))
def test_the_produce_request_is_parsed_as_the_codec_parses_it(data: st.DataObject, version: int) -> None:
    topics = [
        TopicProduceData(
            **({"topic_id": data.draw(ids)} if version >= 13 else {"name": data.draw(names)}),
            partition_data=[
                PartitionProduceData(index=data.draw(int32s), records=data.draw(payloads))
                for _ in range(data.draw(st.integers(0, 3)))
            ],
        )
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    acks, timeout_ms = data.draw(st.integers(-1, 1)), data.draw(int32s)
    name = data.draw(st.one_of(st.none(), names))
    body = encode(ProduceRequest(transactional_id=name, acks=acks, timeout_ms=timeout_ms, topic_data=topics), version)
    prefix = b"header"
    parsed = parse(memoryview(prefix + body), len(prefix), version)
    expected = [
        (
            topic.topic_id if version >= 13 else topic.name.encode(),
            [(p.index, None if p.records is None else memoryview(p.records)) for p in topic.partition_data],
        )
        for topic in topics
    ]
    assert parsed == (None if name is None else name.encode(), acks, timeout_ms, expected)


def test_tagged_fields_that_nobody_knows_count_as_entries_of_a_produce_request() -> None:
    """Each section may have a thousand, and a large request has room for a million sections."""
    tags = b"\xe8\x07" + b"\x7f\0" * 1_000
    partition = struct.pack(">i", 0) + b"\x01" + tags
    body = b"\0\0\x01\0\0\0\0\x02\x02t" + bytes([101]) + partition * 100 + b"\0\0"
    with pytest.raises(RemoteProtocolError, match="above 100000"):
        parse(memoryview(body), 0, 9)


@given(st.integers(3, 13), st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_produce_request_is_refused_or_parsed_but_never_worse(version: int, place: int, byte: int) -> None:
    partitions = [PartitionProduceData(index=1, records=b"x" * 50), PartitionProduceData(index=2, records=None)]
    named: dict[str, Any] = {"topic_id": b"i" * 16} if version >= 13 else {"name": "topic"}
    topics = [TopicProduceData(partition_data=partitions, **named)]
    body = bytearray(encode(ProduceRequest(acks=1, timeout_ms=1, topic_data=topics), version))
    damaged = bytearray(body)
    damaged[place % len(body)] = byte
    for candidate in (damaged, body[: place % len(body)]):
        try:
            parse(memoryview(candidate), 0, version)
        except (RemoteProtocolError, IndexError, struct.error):
            continue


@given(st.data(), st.integers(3, 13))
def test_the_produce_response_is_encoded_as_the_codec_would(data: st.DataObject, version: int) -> None:
    def result() -> AppendResult:
        with_message = data.draw(st.integers(0, 5)) == 0
        return AppendResult(
            *(data.draw(errors), data.draw(int64s), 0, data.draw(int64s), data.draw(int64s)),
            message="why" if with_message else None,
            record_errors=(RecordError(3, "no key"),) if with_message else (),
        )

    outcome = [
        (
            data.draw(ids) if version >= 13 else data.draw(names).encode(),
            [(data.draw(int32s), result()) for _ in range(data.draw(st.integers(0, 3)))],
        )
        for _ in range(data.draw(st.integers(0, 3)))
    ]
    decoded = decode(ProduceResponse, version, encode_outcome(outcome, version))
    assert len(decoded.responses) == len(outcome)
    for topic, (key, results) in zip(decoded.responses, outcome, strict=True):
        assert (topic.topic_id if version >= 13 else topic.name.encode()) == key
        assert len(topic.partition_responses) == len(results)
        for partition, (index, expected) in zip(topic.partition_responses, results, strict=True):
            assert (partition.index, partition.error_code) == (index, expected.error)
            assert partition.base_offset == expected.base_offset
            assert partition.log_append_time_ms == expected.log_append_time_ms
            assert partition.log_start_offset == (expected.log_start_offset if version >= 5 else -1)
            if version >= 8:
                assert partition.error_message == expected.message
                assert len(partition.record_errors) == len(expected.record_errors)


class Transaction:
    def __init__(self, producer_id: int, first_offset: int) -> None:
        self.producer_id, self.first_offset = producer_id, first_offset


class OpenFile:
    def __init__(self, fd: int) -> None:
        self.fd = fd

    def read(self, length: int, position: int, /) -> bytes:
        return os.pread(self.fd, length, position)


@pytest.mark.parametrize("version", range(4, 19))
@pytest.mark.parametrize("length", [1, 100, 20_000, 300_000])
def test_the_fetch_response_is_encoded_as_the_codec_would(version: int, length: int, tmp_path: Path) -> None:
    content = os.urandom(length)
    (tmp_path / "segment").write_bytes(b"before" + content + b"after")
    with open(tmp_path / "segment", "rb") as file:
        records = FileRange(OpenFile(file.fileno()), 6, length)
        key = TopicKey("", b"i" * 16) if version >= 13 else TopicKey("topic", bytes(16))
        other = TopicKey("", b"j" * 16) if version >= 13 else TopicKey("other", bytes(16))

        def read(topic: TopicKey, index: int, *marks: int, **facts: Any) -> PartitionRead:
            made = PartitionRead(FetchedPartition(topic, index, FetchSession(0, True, 0)), ErrorCode.NONE)
            if marks:
                made.high_watermark, made.last_stable_offset, made.log_start_offset = marks
            for name, value in facts.items():
                setattr(made, name, value)
            return made

        aborted = [Transaction(5, 70), Transaction(6, 80)]
        reads = [
            read(key, 0, 9, 8, 7, records=records),
            read(other, 1, error=ErrorCode.OFFSET_OUT_OF_RANGE),
            read(key, 2, 19, 18, 17, records=records.read() if length <= 20_000 else records, aborted=aborted),
            read(key, 3, 29, 28, 27, aborted=(), diverging=(3, 12) if version >= 12 else None),
        ]
        pieces = encode_fetch_reply(version, 77, ErrorCode.NONE, 123, reads)
        frame = b"".join(
            piece if isinstance(piece, bytes | bytearray) else os.pread(piece.fileno(), piece.length, piece.position)
            for piece in pieces
        )
    size, correlation_id = struct.unpack_from(">ii", frame)
    assert (size, correlation_id) == (len(frame) - 4, 77)
    response = decode(FetchResponse, version, frame, 9 if version >= 12 else 8)
    assert response.session_id == (123 if version >= 7 else 0)
    by_topic = {(topic.topic, topic.topic_id): topic.partitions for topic in response.responses}
    first, third, fourth = by_topic[(key.name, key.topic_id)]
    (second,) = by_topic[(other.name, other.topic_id)]
    assert bytes(first.records or b"") == bytes(third.records or b"") == content
    assert first.aborted_transactions is None
    assert [(a.producer_id, a.first_offset) for a in third.aborted_transactions or []] == [(5, 70), (6, 80)]
    assert (first.high_watermark, first.last_stable_offset) == (9, 8)
    assert first.log_start_offset == (7 if version >= 5 else -1)
    assert second.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert second.records is not None and len(second.records) == 0, "no records are zero bytes, never null"
    assert fourth.aborted_transactions == []
    if version >= 12:
        assert (fourth.diverging_epoch.epoch, fourth.diverging_epoch.end_offset) == (3, 12)
    assert all(p.preferred_read_replica == -1 for p in (first, second, third, fourth))


def test_bytes_behind_a_request_are_passed_over_because_librdkafka_sends_some() -> None:
    # What librdkafka 2.16 sends to list all topics: Metadata v13 with three bytes too many, which Kafka ignores.
    request = decode(MetadataRequest, 13, bytes.fromhex("00000000010000"), exact=False)
    assert request.topics is None
    with pytest.raises(RemoteProtocolError, match="3 bytes too many"):
        decode(MetadataRequest, 13, bytes.fromhex("00000000010000"))


def test_produce_passes_over_bytes_behind_its_fields() -> None:
    for version in (8, 13):
        body = encode(ProduceRequest(acks=1, timeout_ms=5), version)
        assert parse(memoryview(body + b"more"), 0, version) == parse(memoryview(body), 0, version) == (None, 1, 5, [])
