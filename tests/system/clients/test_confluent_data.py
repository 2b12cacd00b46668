"""librdkafka, through confluent-kafka: producing and consuming in every way that it has."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import OFFSET_BEGINNING, TIMESTAMP_CREATE_TIME, TIMESTAMP_LOG_APPEND_TIME, TopicPartition

from tests.conftest import Broker
from tests.system.clients.confluent import DEADLINE_SECONDS, consumer, poll, produce, producer, read_all, take
from tests.system.traps.raw import create_topic

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
RECORDS = 300
START_MS = time.time_ns() // 1_000_000 - 3_600_000


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_what_is_produced_comes_back(broker: Broker, topic: str, codec: str, acks: str) -> None:
    records = [
        {
            "key": None if number % 3 else b"k%d" % number,
            "value": None if number % 7 == 0 else b"%d" % number * 20,
            "headers": [("number", b"%d" % number), ("null", None)] if number % 2 else None,
            "timestamp": START_MS + number,
        }
        for number in range(RECORDS)
    ]
    settings = {"compression_type": codec, "acks": acks, "linger_ms": 20}
    produce(broker.bootstrap_servers, topic, records, **settings)
    messages = read_all(broker.bootstrap_servers, topic, RECORDS)
    for number, (record, message) in enumerate(zip(records, messages, strict=True)):
        assert message.offset() == number
        assert (message.key(), message.value()) == (record["key"], record["value"])
        assert message.headers() == record["headers"]
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, START_MS + number)


def test_delivery_reports_tell_the_offsets(broker: Broker, topic: str) -> None:
    deliveries = produce(broker.bootstrap_servers, topic, [{"value": b"x"}] * 100, linger_ms=0)
    assert [message.offset() for message in deliveries.messages] == list(range(100))


def test_an_idempotent_producer_writes_each_record_once_and_in_order(broker: Broker, topic: str) -> None:
    records = [{"value": b"%d" % number} for number in range(3000)]
    produce(broker.bootstrap_servers, topic, records, enable_idempotence=True, batch_num_messages=50, linger_ms=1)
    values = [int(message.value() or b"") for message in read_all(broker.bootstrap_servers, topic, 3000)]
    assert values == list(range(3000))


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_messages_of_several_megabytes_pass_where_the_topic_allows_them(
    broker: Broker, name: str, codec: str
) -> None:
    create_topic(broker.bootstrap_servers, name, settings={"max.message.bytes": "20000000"})
    values = [bytes([number]) * 6_000_000 for number in range(3)]
    produce(
        broker.bootstrap_servers, name, [{"value": value} for value in values],
        message_max_bytes=15_000_000, compression_type=codec,
    )  # fmt: skip
    messages = read_all(broker.bootstrap_servers, name, 3, fetch_message_max_bytes=1_000_000)
    assert [message.value() for message in messages] == values


def test_a_message_that_is_too_large_for_the_topic_is_refused_and_the_next_one_is_not(
    broker: Broker, name: str
) -> None:
    create_topic(broker.bootstrap_servers, name, settings={"max.message.bytes": "10000"})
    client = producer(broker.bootstrap_servers, linger_ms=0)
    reports: list[str | None] = []
    for size in (20_000, 100):
        client.produce(name, bytes(size), on_delivery=lambda error, _: reports.append(error and error.name()))
        client.flush(DEADLINE_SECONDS)
    assert reports == ["MSG_SIZE_TOO_LARGE", None]


def test_the_broker_s_time_replaces_the_producer_s_where_the_topic_says_so(broker: Broker, name: str) -> None:
    create_topic(broker.bootstrap_servers, name, settings={"message.timestamp.type": "LogAppendTime"})
    before = time.time_ns() // 1_000_000
    produce(broker.bootstrap_servers, name, [{"value": b"x", "timestamp": 1_000_000}])
    kind, timestamp = read_all(broker.bootstrap_servers, name, 1)[0].timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME and before <= timestamp <= time.time_ns() // 1_000_000


def test_offsets_are_found_by_time_and_reading_begins_there(broker: Broker, topic: str) -> None:
    records = [{"value": b"%d" % number, "timestamp": START_MS + 1000 * number} for number in range(100)]
    produce(broker.bootstrap_servers, topic, records, batch_num_messages=7)
    with consumer(broker.bootstrap_servers) as client:
        wanted = [TopicPartition(topic, 0, START_MS + 41_500)]
        (found,) = client.offsets_for_times(wanted, DEADLINE_SECONDS)
        assert found.offset == 42
        client.assign([found])
        assert [message.value() for message in take(client, 2)] == [b"42", b"43"]
        (late,) = client.offsets_for_times([TopicPartition(topic, 0, START_MS + 10**9)], DEADLINE_SECONDS)
        assert late.offset == -1, "the end"
        assert client.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_SECONDS) == (0, 100)


def test_seeking_goes_back_and_forth(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"%d" % number} for number in range(50)])
    with consumer(broker.bootstrap_servers) as client:
        client.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        take(client, 50)
        for offset in (10, 45, 0, 49):
            client.seek(TopicPartition(topic, 0, offset))
            assert take(client, 1)[0].offset() == offset


def test_a_reader_of_committed_records_gets_what_was_never_part_of_a_transaction(
    broker: Broker, topic: str
) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"x"}] * 20)
    messages = read_all(broker.bootstrap_servers, topic, 20, isolation_level="read_committed")
    assert len(messages) == 20


def test_a_hundred_and_fifty_partitions_are_read_by_one_consumer_while_more_comes(
    broker: Broker, name: str
) -> None:
    count = 150
    create_topic(broker.bootstrap_servers, name, partitions=count)
    for round_number in range(2):
        records = [{"value": b"%d" % round_number, "partition": index} for index in range(count)]
        produce(broker.bootstrap_servers, name, records)
    with consumer(broker.bootstrap_servers) as client:
        client.assign([TopicPartition(name, index, 0) for index in range(count)])
        first = take(client, 2 * count)
        assert {(m.partition(), m.offset()) for m in first} == {(i, o) for i in range(count) for o in (0, 1)}
        records = [{"value": b"more", "partition": index} for index in range(0, count, 10)]
        produce(broker.bootstrap_servers, name, records)
        more = take(client, len(records))
        assert sorted((m.partition() or 0, m.offset()) for m in more) == [(index, 2) for index in range(0, count, 10)]


def test_a_consumer_at_the_end_hears_of_new_records_at_once(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"old"}])
    with consumer(broker.bootstrap_servers, fetch_wait_max_ms=20_000) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        take(client, 1)
        began = time.monotonic()
        for number in range(5):
            produce(broker.bootstrap_servers, topic, [{"value": b"%d" % number}])
            assert take(client, 1)[0].value() == b"%d" % number
        assert time.monotonic() - began < 15, "the long poll was not ended by what it waited for"


def test_the_end_of_a_partition_is_told_to_who_wants_to_know(broker: Broker, topic: str) -> None:
    produce(broker.bootstrap_servers, topic, [{"value": b"x"}])
    with consumer(broker.bootstrap_servers, enable_partition_eof=True) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        take(client, 1)
        message = client.poll(DEADLINE_SECONDS)
        assert message is not None and (error := message.error()) is not None
        assert (error.name(), message.offset()) == ("_PARTITION_EOF", 1)


def test_a_topic_is_created_by_producing_to_it(broker: Broker, name: str) -> None:
    produce(broker.bootstrap_servers, name, [{"value": b"x"}])
    assert poll_first(broker, name) == b"x"


def poll_first(broker: Broker, topic: str) -> bytes | None:
    with consumer(broker.bootstrap_servers) as client:
        client.assign([TopicPartition(topic, 0, 0)])
        value = poll(client, lambda messages: len(messages) > 0)[0].value()
        assert value is None or isinstance(value, bytes)
        return value
