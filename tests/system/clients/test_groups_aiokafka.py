"""Consumer groups of aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.conftest import Broker
from tests.system.clients.groups import DEADLINE_SECONDS, broker_of_our_own, fresh_name, make_topic, produce
from tests.waiting import until


@pytest.fixture
async def closing() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def member(closing: AsyncExitStack, servers: str, group: str, topic: str, **options: Any) -> AIOKafkaConsumer:
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        heartbeat_interval_ms=100,
        session_timeout_ms=6000,
        retry_backoff_ms=50,
        metadata_max_age_ms=1000,
        **options,
    )
    await consumer.start()
    closing.push_async_callback(consumer.stop)
    return consumer


async def read(consumer: AIOKafkaConsumer, count: int) -> list[int]:
    async with asyncio.timeout(DEADLINE_SECONDS):
        return [int((await consumer.getone()).value) for _ in range(count)]


async def test_two_members_share_the_partitions_and_the_survivor_takes_over(
    broker: Broker, closing: AsyncExitStack
) -> None:
    servers = broker.bootstrap_servers
    topic, group = make_topic(servers, 4), fresh_name("group")
    first = await member(closing, servers, group, topic)
    await until(lambda: len(first.assignment()) == 4)
    second = await member(closing, servers, group, topic)
    await until(lambda: len(first.assignment()) == len(second.assignment()) == 2)
    assert not first.assignment() & second.assignment()
    await second.stop()
    await until(lambda: len(first.assignment()) == 4)


async def test_a_group_goes_on_where_it_committed_over_a_killed_broker(tmp_path: Path, closing: AsyncExitStack) -> None:
    with broker_of_our_own(tmp_path) as broker:
        topic, group = make_topic(broker.address, 1, records=10), fresh_name("group")
        first = await member(closing, broker.address, group, topic)
        assert await read(first, 6) == [0, 1, 2, 3, 4, 5]
        await first.commit({TopicPartition(topic, 0): (6, "six")})
        broker.kill()
        broker.start()
        produce(broker.address, topic, 1, range(10, 12))
        assert await read(first, 6) == [6, 7, 8, 9, 10, 11]
        assert await first.committed(TopicPartition(topic, 0)) == 6
        await first.stop()
        second = await member(closing, broker.address, group, topic)
        assert await read(second, 6) == [6, 7, 8, 9, 10, 11]
        await closing.aclose()


async def test_a_static_member_and_the_administration_of_groups(broker: Broker, closing: AsyncExitStack) -> None:
    servers = broker.bootstrap_servers
    topic, group = make_topic(servers, 1, records=3), fresh_name("group")
    consumer = await member(closing, servers, group, topic, group_instance_id="the-instance")
    assert await read(consumer, 3) == [0, 1, 2]
    await consumer.commit()
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    closing.push_async_callback(admin.close)
    assert (group, "consumer") in {tuple(found[:2]) for found in await admin.list_consumer_groups()}
    offsets = await admin.list_consumer_group_offsets(group)
    assert {partition.partition: found.offset for partition, found in offsets.items()} == {0: 3}
    (described,) = await admin.describe_consumer_groups([group])
    assert group in str(described) and "Stable" in str(described) and topic in str(described)
