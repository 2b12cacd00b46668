"""Transactions of librdkafka, which speaks the protocol of before KIP-890: commit, abort, fencing, offsets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from tests.conftest import Broker
from tests.system.clients.confluent import consumer, poll, producer, read_all, take
from tests.system.clients.groups import broker_of_our_own, fresh_name, make_topic, until

DEADLINE_SECONDS = 45


def transactional(broker: Broker, transactional_id: str, **settings: Any) -> Producer:
    client = producer(broker.bootstrap_servers, transactional_id=transactional_id, **settings)
    client.init_transactions(DEADLINE_SECONDS)
    return client


def write(client: Producer, topic: str, value: str, partitions: int = 3) -> None:
    """One record in each partition, and all of them at the brokers."""
    for partition in range(partitions):
        client.produce(topic, value, partition=partition)
    assert client.flush(DEADLINE_SECONDS) == 0


def committed(broker: Broker, topic: str, count: int, partitions: int = 3) -> dict[int, list[str]]:
    """The first `count` records that count, by partition."""
    found: dict[int, list[str]] = {}
    messages = read_all(broker.bootstrap_servers, topic, count, partitions=partitions, isolation_level="read_committed")
    for message in messages:
        found.setdefault(message.partition(), []).append(message.value().decode())
    return found


def test_a_commit_is_seen_in_all_partitions_and_an_abort_in_none(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, 3)
    client = transactional(broker, fresh_name("id"))
    for number in range(6):
        client.begin_transaction()
        write(client, topic, str(number))
        if number % 2:
            client.abort_transaction(DEADLINE_SECONDS)
        else:
            client.commit_transaction(DEADLINE_SECONDS)
    assert committed(broker, topic, 9) == {partition: ["0", "2", "4"] for partition in range(3)}


def test_who_takes_over_an_id_fences_who_had_it_and_aborts_what_was_open(broker: Broker) -> None:
    topic, name = make_topic(broker.bootstrap_servers, 3), fresh_name("id")
    zombie = transactional(broker, name)
    zombie.begin_transaction()
    write(zombie, topic, "of the zombie")
    heir = transactional(broker, name)
    with pytest.raises(KafkaException) as raised:
        zombie.commit_transaction(DEADLINE_SECONDS)
    error: KafkaError = raised.value.args[0]
    assert error.fatal() and error.code() in (KafkaError._FENCED, KafkaError.PRODUCER_FENCED)
    heir.begin_transaction()
    write(heir, topic, "of the heir")
    heir.commit_transaction(DEADLINE_SECONDS)
    assert committed(broker, topic, 3) == {partition: ["of the heir"] for partition in range(3)}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_what_is_consumed_and_what_is_made_of_it_count_together(broker: Broker, protocol: str) -> None:
    source = make_topic(broker.bootstrap_servers, 2, records=10)
    target, group = make_topic(broker.bootstrap_servers, 1), fresh_name("group")
    client = transactional(broker, fresh_name("id"))
    settings = {"isolation_level": "read_committed", "group_protocol": protocol}
    with consumer(broker.bootstrap_servers, group, **settings) as reader:
        reader.subscribe([source])
        copied, position = 0, 0
        while copied < 20:
            (message,) = take(reader, 1)
            position += 1
            client.begin_transaction()
            client.produce(target, message.value(), key=str(message.partition()))
            client.send_offsets_to_transaction(
                reader.position(reader.assignment()), reader.consumer_group_metadata(), DEADLINE_SECONDS
            )
            if position % 3 == 0:
                # As after a crash: what it did is undone, and it goes back to where the group stands.
                client.abort_transaction(DEADLINE_SECONDS)
                _go_back(reader)
            else:
                client.commit_transaction(DEADLINE_SECONDS)
                copied += 1
        stored = {each.partition: each.offset for each in reader.committed(reader.assignment(), DEADLINE_SECONDS)}
    assert stored == {0: 10, 1: 10}
    values = [(m.key(), int(m.value())) for m in read_all(
        broker.bootstrap_servers, target, 20, isolation_level="read_committed"
    )]  # fmt: skip
    assert [n for key, n in values if key == b"0"] == [n for key, n in values if key == b"1"] == list(range(10))


def _go_back(reader: Consumer) -> None:
    for each in reader.committed(reader.assignment(), DEADLINE_SECONDS):
        reader.seek(TopicPartition(each.topic, each.partition, max(each.offset, 0)))


def test_readers_of_committed_records_wait_for_an_open_transaction_and_others_do_not(broker: Broker) -> None:
    topic = make_topic(broker.bootstrap_servers, 1)
    client = transactional(broker, fresh_name("id"))
    client.begin_transaction()
    write(client, topic, "open", partitions=1)
    plain = producer(broker.bootstrap_servers)
    plain.produce(topic, "plain")
    assert plain.flush(DEADLINE_SECONDS) == 0
    everything = read_all(broker.bootstrap_servers, topic, 2, isolation_level="read_uncommitted")
    assert [m.value() for m in everything] == [b"open", b"plain"]
    with consumer(broker.bootstrap_servers, isolation_level="read_committed") as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), DEADLINE_SECONDS) == (0, 0)
        client.commit_transaction(DEADLINE_SECONDS)
        assert [m.value() for m in poll(reader, lambda found: len(found) == 2)] == [b"open", b"plain"]


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(tmp_path: Path) -> None:
    every = {"transaction_abort_timed_out_transaction_cleanup_interval_ms": "100"}
    with broker_of_our_own(tmp_path, **every) as process:
        broker = Broker(process.address, process)
        topic = make_topic(broker.bootstrap_servers, 1)
        client = transactional(broker, fresh_name("id"), transaction_timeout_ms=1_000)
        client.begin_transaction()
        write(client, topic, "late", partitions=1)
        with consumer(broker.bootstrap_servers, isolation_level="read_committed") as reader:
            where = TopicPartition(topic, 0)
            until(lambda: reader.get_watermark_offsets(where, DEADLINE_SECONDS)[1] == 2)
        with pytest.raises(KafkaException) as raised:
            client.commit_transaction(DEADLINE_SECONDS)
        assert raised.value.args[0].fatal() or raised.value.args[0].txn_requires_abort()
        everything = read_all(broker.bootstrap_servers, topic, 1, isolation_level="read_uncommitted")
        assert [m.value() for m in everything] == [b"late"]
