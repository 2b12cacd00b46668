"""Which partitions a consumer reads, and where it begins."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.client import Client, Consumer, KafkaError, NoOffset, Outgoing
from tests.waiting import DEADLINE_SECONDS


async def learn_of_partitions(client: Client, consumer: Consumer, topic: str, count: int) -> None:
    """As any request does that finds a leader gone."""
    await client.admin.create_partitions(topic, count)
    async with asyncio.timeout(DEADLINE_SECONDS):
        while consumer._router.known.partition_count(topic) != count:
            await consumer._router.metadata([topic])


async def test_partitions_that_something_else_asked_about_first_are_read_too(client: Client, topic: str) -> None:
    async with client.consumer(topic) as consumer:
        await learn_of_partitions(client, consumer, topic, 3)
        await consumer._look_for_partitions()
        assert consumer.assignment == {(topic, index) for index in range(3)}


async def test_a_group_divides_partitions_that_something_else_asked_about_first(client: Client, topic: str) -> None:
    async with client.consumer(topic, group=topic, heartbeat_interval=0.2) as consumer:
        await consumer.assigned()
        await learn_of_partitions(client, consumer, topic, 3)
        await consumer._look_for_partitions()
        async with asyncio.timeout(DEADLINE_SECONDS):
            while consumer.assignment != {(topic, index) for index in range(3)}:
                await consumer.poll(timeout=0.1)


async def test_a_pattern_that_only_brokers_understand_stops_no_commits(client: Client, topic: str) -> None:
    pattern = rf"\Q{topic}\E"
    options = {"metadata_max_age": 0.1, "auto_commit_interval": 0.1, "heartbeat_interval": 0.2}
    async with client.producer() as producer:
        await producer.send(topic, b"value")
        async with client.consumer(
            pattern=pattern, group=topic, protocol="consumer", auto_offset_reset="earliest", **options  # type: ignore[arg-type]
        ) as consumer:
            looks: asyncio.Queue[None] = asyncio.Queue()
            look = consumer._look_for_partitions

            async def counted() -> None:
                await look()
                looks.put_nowait(None)

            consumer._look_for_partitions = counted  # type: ignore[method-assign]
            async with asyncio.timeout(DEADLINE_SECONDS):
                while not (batch := await consumer.poll(timeout=1)):
                    pass
                await looks.get()
                await looks.get()
                batch.done()
                while await consumer.committed() != {(topic, 0): 1}:
                    await consumer.poll(timeout=0.1)


async def test_a_consumer_that_cannot_start_keeps_no_connection(client: Client, name: str) -> None:
    consumer = client.consumer(name)  # there is no such topic
    for _ in range(2):
        with pytest.raises(KafkaError, match=name):
            await consumer.start()
    assert consumer._router._connections
    with pytest.raises(KafkaError, match=name):
        async with consumer:
            pass
    assert not consumer._router._connections


@pytest.mark.parametrize("policy", ["latest", "none"])
async def test_partitions_that_are_assigned_by_hand_begin_where_the_group_stands(
    client: Client, three_partitions: str, policy: str
) -> None:
    topic = three_partitions
    async with client.producer() as producer:
        await producer.send_batch(topic, [Outgoing(b"%d" % each, partition=0) for each in range(5)])
    await client.admin.commit_offsets(topic, {(topic, 0): 2})
    async with client.consumer(group=topic, auto_offset_reset=policy) as consumer:
        consumer.assign([(topic, 0)])
        batch = await consumer.poll(timeout=DEADLINE_SECONDS)
        assert [record.offset for record in batch] == [2, 3, 4]
        batch.done()
        await consumer.commit()
        assert await consumer.committed() == {(topic, 0): 5}
        consumer.assign([(topic, 0), (topic, 1)])
        if policy == "latest":
            assert await consumer.position(topic, 1) == 0
            return
        with pytest.raises(NoOffset):
            await consumer.poll(timeout=DEADLINE_SECONDS)
