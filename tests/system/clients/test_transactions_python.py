"""Transactions of aiokafka and kafka-python: commit, abort, fencing, offsets in a transaction."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import closing

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import ProducerFenced
from kafka import KafkaProducer
from kafka.errors import KafkaError

from tests.conftest import Broker
from tests.system.clients.confluent import read_all
from tests.system.clients.groups import fresh_name, make_topic
from tests.system.clients.test_aiokafka import consuming, producing, take


@pytest.fixture(autouse=True)
def nothing_is_left_of_the_clients() -> Iterator[None]:
    """aiokafka leaves futures with exceptions that nobody takes. The collector has each logged with its traceback, for
    which Python parses; and if it comes while Python parses, that fails before 3.11.9 and 3.12.1 (python gh-106905).
    """
    yield
    gc.collect()


def committed(broker: Broker, topic: str, count: int) -> list[tuple[int, bytes]]:
    messages = read_all(broker.bootstrap_servers, topic, count, partitions=2, isolation_level="read_committed")
    return sorted((message.partition(), message.value()) for message in messages)


async def test_aiokafka_commits_aborts_and_is_fenced(broker: Broker) -> None:
    topic, name = make_topic(broker.bootstrap_servers, 2), fresh_name("id")
    async with producing(broker.bootstrap_servers, transactional_id=name) as client:
        for value in (b"first", b"second"):
            async with client.transaction():
                for partition in range(2):
                    await client.send_and_wait(topic, value, partition=partition)
            await client.begin_transaction()
            await client.send_and_wait(topic, b"undone", partition=0)
            await client.abort_transaction()
        async with producing(broker.bootstrap_servers, transactional_id=name) as heir:
            await client.begin_transaction()
            with pytest.raises(ProducerFenced):
                await client.send_and_wait(topic, b"of a zombie", partition=0)
                await client.commit_transaction()
            async with heir.transaction():
                await heir.send_and_wait(topic, b"third", partition=0)
    assert committed(broker, topic, 5) == [
        *((0, value) for value in (b"first", b"second", b"third")),
        *((1, value) for value in (b"first", b"second")),
    ]


async def test_aiokafka_copies_exactly_once(broker: Broker) -> None:
    source, target = make_topic(broker.bootstrap_servers, 1, records=12), make_topic(broker.bootstrap_servers, 2)
    group = fresh_name("group")
    async with (
        producing(broker.bootstrap_servers, transactional_id=fresh_name("id")) as client,
        consuming(broker.bootstrap_servers, source, group_id=group, isolation_level="read_committed") as reader,
    ):
        place = TopicPartition(source, 0)
        for number in range(6):
            records = await take(reader, 2)
            await client.begin_transaction()
            for record in records:
                await client.send_and_wait(target, record.value, partition=number % 2)
            await client.send_offsets_to_transaction({place: records[-1].offset + 1}, group)
            if number % 3 == 2:
                await client.abort_transaction()
            else:
                await client.commit_transaction()
        assert await reader.committed(place) == 10
    numbers = sorted(int(value) for _, value in committed(broker, target, 8))
    assert numbers == [0, 1, 2, 3, 6, 7, 8, 9], "what was aborted is not there, and was not committed as consumed"


def test_kafka_python_commits_aborts_and_is_fenced(broker: Broker) -> None:
    topic, name = make_topic(broker.bootstrap_servers, 2), fresh_name("id")
    settings = {"bootstrap_servers": broker.bootstrap_servers, "transactional_id": name}
    with closing(KafkaProducer(**settings)) as client:
        client.init_transactions()
        for value in (b"first", b"undone", b"second"):
            client.begin_transaction()
            for partition in range(2):
                client.send(topic, value, partition=partition).get(30)
            if value == b"undone":
                client.abort_transaction()
            else:
                client.commit_transaction()
        with closing(KafkaProducer(**settings)) as heir:
            heir.init_transactions()
            client.begin_transaction()
            with pytest.raises(KafkaError):
                client.send(topic, b"of a zombie", partition=0).get(30)
                client.commit_transaction()
    assert committed(broker, topic, 4) == [(p, value) for p in range(2) for value in (b"first", b"second")]
