"""aiokafka: producing, consuming, groups and admin from asyncio."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from aiokafka.errors import TopicAlreadyExistsError

from raftlog.testing import Cluster
from tests.conftest import Broker
from tests.system.traps.raw import create_topic
from tests.waiting import until

DEADLINE_SECONDS = 45.0
CODECS = [None, "gzip", "snappy", "lz4", "zstd"]
START_MS = time.time_ns() // 1_000_000 - 3_600_000


@asynccontextmanager
async def producing(bootstrap_servers: str, **settings: Any) -> AsyncIterator[AIOKafkaProducer]:
    client = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, **settings)
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


@asynccontextmanager
async def consuming(bootstrap_servers: str, *topics: str, **settings: Any) -> AsyncIterator[AIOKafkaConsumer]:
    client = AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap_servers,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **settings,
    )
    await client.start()
    try:
        yield client
    finally:
        await client.stop()


async def take(client: AIOKafkaConsumer, count: int) -> list[Any]:
    """The next `count` records."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [await client.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
async def test_what_is_produced_comes_back(broker: Broker, topic: str, codec: str | None, acks: Any) -> None:
    sent = [
        (None if number % 3 else b"k", None if number % 6 == 0 else b"%d" % number * 10, [("h", b"%d" % number)])
        for number in range(100)
    ]
    async with producing(broker.bootstrap_servers, compression_type=codec, acks=acks, linger_ms=5) as client:
        for number, (key, value, headers) in enumerate(sent):
            await client.send(topic, value, key, headers=headers, timestamp_ms=START_MS + number)
    async with consuming(broker.bootstrap_servers, topic) as client:
        received = await take(client, 100)
    assert [(record.key, record.value, list(record.headers)) for record in received] == sent
    assert [record.timestamp - START_MS for record in received] == list(range(100))


async def test_an_idempotent_producer_tells_the_offsets(broker: Broker, topic: str) -> None:
    async with producing(broker.bootstrap_servers, enable_idempotence=True) as client:
        sent = [await client.send_and_wait(topic, b"%d" % number) for number in range(50)]
    assert [(record.offset, record.log_start_offset) for record in sent] == [(number, 0) for number in range(50)]


async def test_offsets_by_time_ends_and_seeks(broker: Broker, topic: str) -> None:
    async with producing(broker.bootstrap_servers) as client:
        for number in range(40):
            await client.send(topic, b"%d" % number, timestamp_ms=START_MS + 1000 * number)
    partition = TopicPartition(topic, 0)
    async with consuming(broker.bootstrap_servers, isolation_level="read_committed") as client:
        client.assign([partition])
        assert (await client.beginning_offsets([partition]), await client.end_offsets([partition])) == (
            {partition: 0},
            {partition: 40},
        )
        found = await client.offsets_for_times({partition: START_MS + 20_500})
        assert (found[partition].offset, found[partition].timestamp) == (21, START_MS + 21_000)
        client.seek(partition, 39)
        assert (await take(client, 1))[0].value == b"39"
        await client.seek_to_beginning(partition)
        assert (await take(client, 1))[0].value == b"0"


@pytest.mark.parametrize("strategy", ["default", "sticky"])
async def test_members_share_and_take_over(broker: Broker, three_partitions: str, strategy: str) -> None:
    topic = three_partitions
    settings: dict[str, Any] = {"group_id": topic, "heartbeat_interval_ms": 200, "metadata_max_age_ms": 1000}
    if strategy == "sticky":
        settings["partition_assignment_strategy"] = [StickyPartitionAssignor]
    async with consuming(broker.bootstrap_servers, topic, **settings) as first:
        await until(lambda: len(first.assignment()) == 3, "one member did not get everything")
        async with consuming(broker.bootstrap_servers, topic, **settings) as second:
            await until(lambda: bool(second.assignment()) and len(first.assignment()) < 3, "two members do not share")
            assert first.assignment() | second.assignment() == {TopicPartition(topic, index) for index in range(3)}
            assert not first.assignment() & second.assignment()
        await until(lambda: len(first.assignment()) == 3, "who is left does not take over")


async def test_a_group_goes_on_where_it_committed_over_a_kill(own_broker: Cluster) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    async with producing(own_broker.bootstrap_servers) as client:
        for number in range(100):
            await client.send("t", b"%d" % number)
    async with consuming(own_broker.bootstrap_servers, "t", group_id="g") as consumer:
        await take(consumer, 60)
        await consumer.commit({TopicPartition("t", 0): (60, "sixty")})
    await asyncio.to_thread(own_broker.brokers[0].restart, kill=True)
    async with consuming(own_broker.bootstrap_servers, "t", group_id="g") as consumer:
        assert [record.offset for record in await take(consumer, 40)] == list(range(60, 100))
        assert await consumer.committed(TopicPartition("t", 0)) == 60


async def test_an_idempotent_producer_goes_on_over_a_kill(own_broker: Cluster) -> None:
    create_topic(own_broker.bootstrap_servers, "t")
    settings: dict[str, Any] = {"enable_idempotence": True, "retry_backoff_ms": 50, "request_timeout_ms": 5000}
    async with producing(own_broker.bootstrap_servers, **settings) as client:
        sends = []
        for number in range(600):
            sends.append(await client.send("t", b"%d" % number))
            if number in (200, 400):
                await asyncio.to_thread(own_broker.brokers[0].restart, kill=True)
        async with asyncio.timeout(DEADLINE_SECONDS):
            offsets = [(await sent).offset for sent in sends]
    async with consuming(own_broker.bootstrap_servers, "t") as consumer:
        assert [record.value for record in await take(consumer, 600)] == [b"%d" % number for number in range(600)]
    assert offsets == list(range(600))


async def test_admin(broker: Broker, name: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    try:
        created = await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "777"})])
        assert [error for _, error, *_ in created.topic_errors] == [0]
        with pytest.raises(TopicAlreadyExistsError):
            again = await admin.create_topics([NewTopic(name, 2, 1)])
            if again.topic_errors[0][1] == TopicAlreadyExistsError.errno:
                raise TopicAlreadyExistsError
        await admin.create_partitions({name: NewPartitions(total_count=4)})
        (described,) = await admin.describe_topics([name])
        assert len(described["partitions"]) == 4
        configs = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        values = {entry[0]: entry[1] for response in configs for entry in response.resources[0][4]}
        assert values["retention.ms"] == "777"
        assert (await admin.describe_cluster())["brokers"][0]["node_id"] == 1
        await admin.delete_topics([name])
        assert name not in await admin.list_topics()
    finally:
        await admin.close()
