"""Consumers without a group against raftlog and Kafka: positions, limits, and what they do when the way is cut."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

import pytest

from raftlog.client import Client, KafkaError, Outgoing
from raftlog.client.core.errors import (
    BrokerUnreachable,
    Closed,
    DamagedRecords,
    NoOffset,
    Rejected,
    TimedOut,
    WrongState,
)
from raftlog.client.core.fetch_session import Wanted
from raftlog.testing import Kafka, cluster
from raftlog.wire.apis import ApiKey
from raftlog.wire.batch import HEADER_SIZE, encode_batch
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import PartitionData
from raftlog.wire.records import Record
from tests.client.proxy import broker_behind_a_proxy
from tests.client.reading import read_all


async def fill(client: Client, topic: str, count: int, **options: object) -> None:
    """Records with the numbers from 0 on, and these numbers as timestamps."""
    async with client.producer(**options) as producer:  # type: ignore[arg-type]
        records = [Outgoing(b"%d" % number, partition=0, timestamp=number) for number in range(count)]
        for outcome in await producer.send_batch(topic, records):
            assert not isinstance(outcome, KafkaError), outcome


async def test_a_batch_has_as_many_records_as_asked_for(client: Client, topic: str) -> None:
    await fill(client, topic, 1000)
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        sizes, values = [], []
        while len(values) < 1000:
            batch = await consumer.poll(300, timeout=20)
            sizes.append(len(batch))
            values += [int(record.value or b"") for record in batch]
    assert values == list(range(1000)) and sizes == [300, 300, 300, 100]


async def test_records_can_be_had_one_by_one(client: Client, topic: str) -> None:
    await fill(client, topic, 700, compression="lz4")
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        values: list[int] = []
        async for record in consumer:
            values.append(int(record.value or b""))
            if len(values) == 700:
                break
    assert values == list(range(700))


async def test_reading_begins_where_it_should(client: Client, topic: str) -> None:
    await fill(client, topic, 10)
    async with client.consumer(topic, auto_offset_reset="latest") as consumer:
        assert await consumer.position(topic, 0) == 10
        assert not await consumer.poll(timeout=0.1)
    async with client.consumer(topic, auto_offset_reset="none") as consumer:
        with pytest.raises(NoOffset) as refused:
            await consumer.poll(timeout=10)
        assert refused.value.partitions == [(topic, 0)]
        consumer.seek(topic, 0, 4)
        assert (await consumer.poll(timeout=10)).records[0].offset == 4


async def test_reading_can_go_back_by_offset_and_by_time(client: Client, topic: str) -> None:
    await fill(client, topic, 500)
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        assert len(await consumer.poll(200, timeout=20)) == 200
        consumer.seek(topic, 0, 17)
        assert (await consumer.poll(1, timeout=20)).records[0].offset == 17
        await consumer.seek_to_time(321)
        assert (await consumer.poll(1, timeout=20)).records[0].offset == 321
        await consumer.seek_to_time(datetime.fromtimestamp(0.1, UTC), (topic, 0))
        assert (await consumer.poll(1, timeout=20)).records[0].offset == 100
        await consumer.seek_to_beginning()
        assert consumer.positions == {(topic, 0): 0} and await consumer.lag() == {(topic, 0): 500}
        await consumer.seek_to_end()
        assert await consumer.position(topic, 0) == 500 and not await consumer.poll(timeout=0.1)
        with pytest.raises(WrongState, match="not assigned"):
            consumer.seek("another", 0, 0)


async def test_an_offset_that_is_not_there_is_told_or_reset(client: Client, topic: str) -> None:
    await fill(client, topic, 20)
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        consumer.seek(topic, 0, 1000)
        assert (await consumer.poll(timeout=20)).records[0].offset == 0
    async with client.consumer(topic, auto_offset_reset="none") as consumer:
        consumer.seek(topic, 0, 1000)
        with pytest.raises(Rejected) as refused:
            await consumer.poll(timeout=20)
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE and "seek" in refused.value.advice


async def test_a_paused_partition_gives_nothing_until_it_goes_on(client: Client, three_partitions: str) -> None:
    async with client.producer() as producer:
        await producer.send_batch(three_partitions, [Outgoing(b"x", partition=each % 3) for each in range(90)])
    async with client.consumer(three_partitions, auto_offset_reset="earliest") as consumer:
        consumer.pause((three_partitions, 1))
        assert consumer.paused == {(three_partitions, 1)}
        found: list[int] = []
        while len(found) < 60:
            found += [record.partition for record in await consumer.poll(timeout=20)]
        assert set(found) == {0, 2} and not await consumer.poll(timeout=0.1)
        consumer.resume()
        assert {record.partition for record in await consumer.poll(timeout=20)} == {1}


async def test_a_batch_waits_for_more_when_asked_to(client: Client, topic: str) -> None:
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer, client.producer(linger=0) as producer:
        waiting = asyncio.create_task(consumer.poll(3, timeout=20, wait=20))
        for value in (b"a", b"b", b"c"):
            await producer.send(topic, value)
        assert [record.value for record in await waiting] == [b"a", b"b", b"c"]


async def test_nothing_within_the_time_is_an_empty_batch(client: Client, topic: str) -> None:
    async with client.consumer(topic) as consumer:
        before = time.monotonic()
        batch = await consumer.poll(timeout=0.3)
        assert not batch and len(batch) == 0 and batch.done() and 0.25 < time.monotonic() - before < 3


async def test_new_partitions_are_read_from_their_start(client: Client, topic: str) -> None:
    async with client.consumer(topic, auto_offset_reset="earliest", metadata_max_age=0.2) as consumer:
        await client.admin.create_partitions(topic, 2)
        async with client.producer() as producer:
            outcome = None
            while outcome is None or isinstance(outcome, KafkaError):
                await client.admin.metadata([topic])
                await producer._router.metadata([topic])
                (outcome,) = await producer.send_batch(topic, [Outgoing(b"new", partition=1)])
        assert (await consumer.poll(timeout=20)).records[0].partition == 1


async def test_a_topic_that_is_not_there_is_refused_at_once(client: Client) -> None:
    with pytest.raises(Rejected, match="nowhere"):
        async with client.consumer("nowhere"):
            pass


async def test_many_megabytes_come_through_small_buffers(client: Client, topic: str) -> None:
    value = bytes(range(256)) * 40
    async with client.producer(batch_size=100_000) as producer:
        for _ in range(1500):
            await producer.enqueue(topic, value)
    limits = {"max_partition_fetch_bytes": 150_000, "fetch_max_bytes": 300_000}
    assert all(record.value == value for record in await read_all(client, topic, 1500, **limits))


async def test_deleted_records_are_passed_over(client: Client, topic: str) -> None:
    await fill(client, topic, 30)
    assert await client.admin.delete_records({(topic, 0): 12}) == {(topic, 0): 12}
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        assert (await consumer.poll(timeout=20)).records[0].offset == 12


async def test_a_cancelled_poll_loses_nothing(client: Client, topic: str) -> None:
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        for _ in range(20):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await consumer.poll(timeout=20)
        await fill(client, topic, 50)
        found: list[int] = []
        while len(found) < 50:
            try:
                async with asyncio.timeout(0.05):
                    found += [record.offset for record in await consumer.poll(7, timeout=20, wait=0.04)]
            except TimeoutError:
                continue
        assert found == list(range(50))


async def test_closing_wakes_whoever_waits_for_records(client: Client, topic: str) -> None:
    consumer = client.consumer(topic)
    await consumer.start()
    waiting = asyncio.create_task(consumer.poll(timeout=60))
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(Closed):
        await waiting
    await consumer.close()


@pytest.mark.long
async def test_brokers_that_stay_away_are_told_and_closing_does_not_wait_for_them() -> None:
    with cluster() as brokers:
        async with Client(brokers.bootstrap_servers, timeout=1) as client:
            await client.admin.create_topic("t", partitions=1)
            consumer = client.consumer("t", group="g", auto_offset_reset="earliest")
            await consumer.start()
            await consumer.assigned(20)
            brokers.brokers[0].kill()
            with pytest.raises((BrokerUnreachable, TimedOut)):
                for _ in range(40):
                    await consumer.poll(timeout=0.5)
            before = time.monotonic()
            await consumer.close()
            assert time.monotonic() - before < 6
        brokers.brokers[0].start()


async def test_a_poll_for_no_records_or_for_a_time_is_refused(client: Client, topic: str) -> None:
    async with client.consumer(topic) as consumer:
        for wrong in (0, 1.0):
            with pytest.raises(ValueError, match="timeout=1"):
                await consumer.poll(wrong)  # type: ignore[arg-type]


@pytest.mark.long
async def test_brokers_that_never_tell_where_a_log_begins_are_told() -> None:
    with Kafka() as own:
        topic = own.topic()
        own.faults.disconnect("ListOffsets").always()
        async with Client(own.bootstrap_servers, timeout=0.3) as client:
            consumer = client.consumer(topic, auto_offset_reset="earliest")
            await consumer.start()
            with pytest.raises((BrokerUnreachable, TimedOut)):
                for _ in range(40):
                    await consumer.poll(timeout=0.5)
            await consumer.close()


@pytest.mark.long
async def test_a_broker_that_is_killed_in_the_middle_of_reading_costs_nothing() -> None:
    with cluster() as brokers:
        async with Client(brokers.bootstrap_servers, timeout=60) as client:
            await client.admin.create_topic("t", partitions=1)
            await fill(client, "t", 5000, batch_size=5000)
            options = {"max_partition_fetch_bytes": 10_000}
            async with client.consumer("t", auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
                offsets: list[int] = []
                while len(offsets) < 5000:
                    if 1000 <= len(offsets) < 1400 and brokers.brokers[0].running:
                        brokers.brokers[0].kill()
                        brokers.brokers[0].start()
                    offsets += [record.offset for record in await consumer.poll(400, timeout=20)]
            assert offsets == list(range(5000))


async def test_replies_that_are_lost_are_asked_for_again() -> None:
    with broker_behind_a_proxy(ApiKey.FETCH) as proxy:
        async with Client(str(proxy.address)) as client:
            await client.admin.create_topic("t", partitions=1)
            await fill(client, "t", 100)
            options = {"max_partition_fetch_bytes": 600, "request_timeout": 1.0}
            async with client.consumer("t", auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
                proxy.lose_replies(3, closes=True)
                offsets: list[int] = []
                while len(offsets) < 100:
                    offsets += [record.offset for record in await consumer.poll(timeout=20)]
                    proxy.lose_replies(1, closes=True)
            assert offsets == list(range(100))


async def test_a_partition_that_is_not_there_keeps_nobody_from_reading_the_others(client: Client, topic: str) -> None:
    async with client.producer() as producer:
        await producer.send(topic, b"there")
    async with client.consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0), (f"{topic}-missing", 0)])
        assert [record.value for record in await consumer.poll(timeout=20)] == [b"there"]
        assert not consumer._fetching.partitions[f"{topic}-missing", 0].pieces


async def test_record_by_record_nothing_is_given_of_what_is_paused_or_not_assigned(
    client: Client, three_partitions: str
) -> None:
    async with client.producer() as producer:
        await producer.send_batch(three_partitions, [Outgoing(b"x", partition=each % 3) for each in range(30)])
    async with client.consumer(three_partitions, auto_offset_reset="earliest") as consumer:
        first = await anext(consumer)
        assert len([record for _, records in consumer._unread for record in records]) >= 9
        here = (three_partitions, first.partition)
        others = consumer.assignment - {here}
        consumer.pause(here)
        found = [(await anext(consumer)).partition for _ in range(20)]
        assert first.partition not in found and len(set(found)) == 2
        consumer.resume(here)
        assert [(await anext(consumer)).offset for _ in range(4)] == [1, 2, 3, 4]
        consumer.assign(others)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(consumer), 0.2)


async def test_record_by_record_a_damaged_batch_takes_nothing_of_other_partitions() -> None:
    consumer = Client("127.0.0.1:1").consumer(check_crcs=False)
    consumer._started = True
    good = encode_batch([Record(0, 0, None, b"good", ())], base_offset=0)
    damaged = good[:HEADER_SIZE] + b"\x7f" + good[HEADER_SIZE + 1 :]
    for index, data in enumerate((damaged, good)):
        consumer._fetching.assign(("t", index), 0)
        fetched = PartitionData(partition_index=index, records=data)
        consumer._fetching.received(("t", index), Wanted(0, -1, -1, 1000), fetched, 0.0)
    with pytest.raises(DamagedRecords) as raised:
        await anext(consumer)
    assert consumer.positions == {("t", 0): 0, ("t", 1): 0}
    consumer.seek("t", 0, raised.value.next_offset)
    assert (await asyncio.wait_for(anext(consumer), 5)).value == b"good"
    await consumer.close()
