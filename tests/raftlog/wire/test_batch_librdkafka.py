"""librdkafka as an oracle of record batches, through the mock cluster that it carries inside: no broker of ours.

The mock keeps batches as they came, so its store shows what librdkafka writes and feeds it what we write.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from raftlog.wire.batch import Record, decode_batch, encode_batch, iterate_batches, parse_header
from raftlog.wire.codec import decode, encode
from raftlog.wire.compression import Compression
from raftlog.wire.headers import encode_request_header, parse_response_header
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from raftlog.wire.schema import Message

PRODUCE_VERSION, FETCH_VERSION = 7, 10


class Mock:
    """A raw connection to the mock broker inside a librdkafka producer."""

    def __init__(self, producer: Producer) -> None:
        self.producer = producer
        broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
        self.address = f"{broker.host}:{broker.port}"
        self.connection = socket.create_connection((broker.host, broker.port), timeout=10)

    def call(self, key: int, version: int, request: Message) -> tuple[bytes, int]:
        frame = encode_request_header(key, version, 1, "oracle") + encode(request, version)
        self.connection.sendall(struct.pack(">i", len(frame)) + frame)
        reply = self._read(struct.unpack(">i", self._read(4))[0])
        return reply, parse_response_header(key, version, reply)[1]

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.connection.recv(size - len(data))
            assert piece
            data += piece
        return data

    def stored(self, topic: str, partition: int) -> bytes:
        """The batches of a partition, as bytes."""
        wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=1 << 24)
        request = FetchRequest(
            max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])], session_epoch=-1
        )
        reply, offset = self.call(1, FETCH_VERSION, request)
        answer = decode(FetchResponse, FETCH_VERSION, reply, offset).responses[0].partitions[0]
        assert answer.error_code == 0
        assert answer.records is not None
        return bytes(answer.records)

    def store(self, topic: str, partition: int, batch: bytes) -> None:
        data = PartitionProduceData(index=partition, records=batch)
        request = ProduceRequest(
            acks=-1, timeout_ms=5000, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
        )
        reply, offset = self.call(0, PRODUCE_VERSION, request)
        answer = decode(ProduceResponse, PRODUCE_VERSION, reply, offset).responses[0].partition_responses[0]
        assert answer.error_code == 0


@pytest.fixture(scope="module")
def mock() -> Iterator[Mock]:
    producer = Producer({"bootstrap.servers": "none", "test.mock.num.brokers": 1, "log_level": 0})
    found = Mock(producer)
    yield found
    found.connection.close()


VALUES = [f"value {number} ".encode() * (number % 60) for number in range(1500)]


@pytest.mark.parametrize("codec", list(Compression))
def test_we_read_what_librdkafka_writes(mock: Mock, codec: Compression) -> None:
    producer = Producer(
        {
            "bootstrap.servers": mock.address,
            "compression.type": codec.name.lower(),
            "linger.ms": 200,
            "enable.idempotence": True,
        }
    )
    topic = f"written-{codec.name}"
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, key=b"%d" % number, partition=0, headers=[("h", b"x"), ("n", None)])
    assert producer.flush(20) == 0
    data = mock.stored(topic, 0)
    headers = [header for _, header in iterate_batches(data)]
    assert {header.codec for header in headers} == {codec}
    assert all(header.producer_id >= 0 for header in headers)
    records = [r for position, header in iterate_batches(data) for r in decode_batch(data[position:])]
    assert [(r.offset, r.key, r.value, r.headers) for r in records] == [
        (number, b"%d" % number, value, (("h", b"x"), ("n", None))) for number, value in enumerate(VALUES)
    ]


@pytest.mark.parametrize("codec", list(Compression))
def test_librdkafka_reads_what_we_write(mock: Mock, codec: Compression) -> None:
    topic = f"read-{codec.name}"
    mock.producer.list_topics(topic, timeout=10)
    records = [
        Record(number, 1_700_000_000_000 + number, None if number % 3 else b"%d" % number, value, (("h", b"x"),))
        for number, value in enumerate(VALUES)
    ]
    batch = encode_batch(records, compression=codec)
    assert parse_header(batch).records_count == len(VALUES)
    mock.store(topic, 0, batch)
    consumer = Consumer({"bootstrap.servers": mock.address, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while len(found) < len(records):
        messages = consumer.consume(len(records), timeout=10)
        assert messages
        for message in messages:
            assert message.error() is None
            found.append(
                Record(
                    message.offset(),
                    message.timestamp()[1],
                    message.key(),
                    message.value(),
                    tuple(message.headers() or ()),
                )
            )
    consumer.close()
    assert found == records
