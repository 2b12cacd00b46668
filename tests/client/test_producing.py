"""Producers against raftlog and Kafka: outcomes, order, limits, and what they do when the way is cut."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter

import pytest

from raftlog.client import Client, KafkaError, Outgoing, Placed
from raftlog.client.core.errors import BufferFull, Closed, Rejected, TimedOut
from raftlog.client.core.settings import BadSetting
from raftlog.testing import Kafka, cluster
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode
from tests.client.proxy import Proxy
from tests.client.reading import read_all

pytestmark = pytest.mark.long


async def test_a_record_comes_back_as_it_was_sent(client: Client, topic: str) -> None:
    headers = [("a", b"1"), ("a", b""), ("none", None)]
    async with client.producer() as producer:
        placed = await producer.send(topic, b"value", key=b"key", headers=headers, timestamp=1234)
        assert placed == Placed(topic, 0, 0, 1234)
        assert (await producer.send(topic, None)).offset == 1
    first, second = await read_all(client, topic, 2)
    assert first[:5] == (0, 1234, b"key", b"value", tuple(headers))
    assert second.value is None and second.key is None


@pytest.mark.parametrize("codec", [each.name.lower() for each in Compression])
async def test_every_codec_can_be_written_and_read(client: Client, topic: str, codec: str) -> None:
    values = [b"%d " % index * 20 for index in range(300)]
    async with client.producer(compression=codec) as producer:
        outcomes = await producer.send_batch(topic, values)
    assert [each.offset for each in outcomes if isinstance(each, Placed)] == list(range(300))
    assert [record.value for record in await read_all(client, topic, 300)] == values


async def test_each_record_has_an_outcome_of_its_own(client: Client, topic: str) -> None:
    records = [Outgoing(b"good"), Outgoing(b"lost", partition=7), Outgoing(b"large" * 300_000), Outgoing(b"good too")]
    async with client.producer() as producer:
        first, second, third, fourth = await producer.send_batch(topic, records)
    assert isinstance(first, Placed) and isinstance(fourth, Placed) and fourth.offset == first.offset + 1
    assert isinstance(second, Rejected) and second.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert isinstance(third, Rejected) and third.code == ErrorCode.MESSAGE_TOO_LARGE
    assert "smaller" in third.advice and not third.retriable


async def test_records_for_which_there_was_no_time_have_an_outcome_too(client: Client, topic: str) -> None:
    async with client.producer() as producer:
        outcomes = await producer.send_batch(topic, [b"one", b"two"], timeout=0)
    assert len(outcomes) == 2
    assert all(isinstance(each, TimedOut) and "was not sent" in str(each) for each in outcomes)


async def test_a_batch_that_the_topic_finds_too_large_is_sent_in_parts(client: Client, name: str) -> None:
    await client.admin.create_topic(name, partitions=1, configs={"max.message.bytes": "2000"})
    async with client.producer() as producer:
        outcomes = await producer.send_batch(name, [b"x" * 300 for _ in range(40)])
        assert [each.offset for each in outcomes if isinstance(each, Placed)] == list(range(40))
        (outcome,) = await producer.send_batch(name, [b"x" * 3000])
        assert isinstance(outcome, Rejected) and outcome.code == ErrorCode.MESSAGE_TOO_LARGE
        assert (await producer.send(name, b"after")).offset == 40


async def test_records_with_one_key_stay_in_order_in_one_partition(client: Client, three_partitions: str) -> None:
    async with client.producer(linger=0.0, batch_size=500) as producer:
        for number in range(300):
            await producer.enqueue(three_partitions, b"%d" % number, key=b"key %d" % (number % 10))
    by_key: dict[bytes | None, list[int]] = {}
    places: dict[bytes | None, set[int]] = {}
    for record in await read_all(client, three_partitions, 300):
        by_key.setdefault(record.key, []).append(int(record.value or b""))
        places.setdefault(record.key, set()).add(record.partition)
    assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert all(len(partitions) == 1 for partitions in places.values()) and len(places) == 10


async def test_records_without_a_key_go_to_all_partitions(client: Client, three_partitions: str) -> None:
    async with client.producer(batch_size=1000) as producer:
        for _ in range(2000):
            await producer.enqueue(three_partitions, b"x" * 50)
    counts = Counter(record.partition for record in await read_all(client, three_partitions, 2000))
    assert len(counts) == 3 and min(counts.values()) > 200


@pytest.mark.parametrize("acks", ["all", 1, 0])
async def test_acknowledgements_may_be_had_from_fewer(client: Client, topic: str, acks: str | int) -> None:
    async with client.producer(acks=acks) as producer:
        placed = await producer.send(topic, b"value")
    assert placed.offset == (-1 if acks == 0 else 0)
    (record,) = await read_all(client, topic, 1)
    assert record.value == b"value"


async def test_a_topic_that_nobody_knows_is_told_in_time(client: Client) -> None:
    async with client.producer() as producer:
        with pytest.raises((TimedOut, Rejected)):
            await producer.send("no such topic!", b"", timeout=2)


def test_a_setting_that_does_not_exist_is_told_with_the_one_that_was_meant() -> None:
    client = Client("127.0.0.1:1")
    meant = {"linger_ms": "it is linger, in seconds", "acknowledge": "acks", "batch.size": "batch_size"}
    for given, said in meant.items():
        with pytest.raises(BadSetting, match=said):
            client.producer(**{given: 1})  # type: ignore[arg-type]
    with pytest.raises(BadSetting, match="none of"):
        client.producer(compression="rar")
    with pytest.raises(BadSetting, match="transactional_id"):
        client.producer(acks=1, transactional_id="t")


async def test_a_record_of_the_wrong_kind_fails_alone(client: Client, topic: str) -> None:
    async with client.producer(linger=0.2) as producer:
        first = await producer.enqueue(topic, b"first")
        with pytest.raises(TypeError, match="milliseconds since 1970"):
            await producer.enqueue(topic, b"wrong", timestamp=time.time() * 1000)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="value is bytes"):
            await producer.send_batch(topic, ["text"])  # type: ignore[list-item]
        assert (await first).offset == 0
        assert (await producer.send(topic, b"second")).offset == 1


async def test_a_producer_that_stops_before_it_asks_for_an_id_warns_of_nothing(
    recwarn: pytest.WarningsRecorder,
) -> None:
    producer = Client("127.0.0.1:1").producer()
    producer._sender.wake()
    await asyncio.sleep(0)  # the task that asks is made, and has not begun
    producer._sender.stop(Closed("now"))
    await asyncio.wait([*producer._sender._tasks])
    await producer.close()
    gc.collect()
    assert not [str(each.message) for each in recwarn]


async def test_who_waits_for_a_producer_id_is_told_why() -> None:
    with Kafka() as brokers:
        brokers.faults.error("InitProducerId", "COORDINATOR_NOT_AVAILABLE").always()
        async with Client(brokers.bootstrap_servers) as client:
            await client.admin.create_topic("t", partitions=1)
            async with client.producer(delivery_timeout=1) as producer:
                with pytest.raises(TimedOut, match="asking for a producer id"):
                    await producer.send("t", b"value", timeout=1)


async def test_what_waits_to_be_sent_is_bounded_and_room_is_given_in_turn(broker_proxy: Proxy) -> None:
    async with Client(str(broker_proxy.address), timeout=20) as client:
        await client.admin.create_topic("t", partitions=1)
        async with client.producer(buffer_memory=20_000, batch_size=5_000) as producer:
            await producer.send("t", b"first")
            broker_proxy.hold()
            waiting = [asyncio.create_task(producer.enqueue("t", b"x" * 1000)) for _ in range(40)]
            done, held = await asyncio.wait(waiting, timeout=0.5)
            assert 15 <= len(done) <= 20 and len(held) >= 20
            broker_proxy.go_on()
            deliveries = [await task for task in waiting]
            assert sorted([(await each).offset for each in deliveries]) == list(range(1, 41))


async def test_no_room_in_time_is_an_error_that_says_so(broker_proxy: Proxy) -> None:
    async with Client(str(broker_proxy.address), timeout=1) as client:
        await client.admin.create_topic("t", partitions=1)
        producer = client.producer(buffer_memory=3_000)
        await producer.send("t", b"first")
        broker_proxy.hold()
        with pytest.raises(BufferFull):
            for _ in range(10):
                await producer.enqueue("t", b"x" * 1000)
        await producer.close(timeout=0.1)


@pytest.mark.parametrize("closes", [True, False], ids=["closed", "silent"])
async def test_a_batch_whose_reply_was_lost_is_stored_once(broker_proxy: Proxy, closes: bool) -> None:
    async with Client(str(broker_proxy.address)) as client:
        await client.admin.create_topic("t", partitions=1)
        async with client.producer(request_timeout=0.5) as producer:
            assert (await producer.send("t", b"0")).offset == 0
            broker_proxy.lose_replies(2, closes=closes)
            assert (await producer.send("t", b"1")).offset == 1
            assert (await producer.send("t", b"2")).offset == 2
        assert [record.value for record in await read_all(client, "t", 3)] == [b"0", b"1", b"2"]


async def test_records_after_one_whose_outcome_is_unknown_are_stored(broker_proxy: Proxy) -> None:
    async with Client(str(broker_proxy.address)) as client:
        await client.admin.create_topic("t", partitions=1)
        async with client.producer(request_timeout=0.3, delivery_timeout=0.5) as producer:
            await producer.send("t", b"first")
            broker_proxy.lose_replies(100, closes=False)
            with pytest.raises(TimedOut, match="may be stored"):
                await producer.send("t", b"outcome unknown")
            broker_proxy.lose_replies(0, closes=False)
            assert (await producer.send("t", b"next")).offset == 2
        values = [record.value for record in await read_all(client, "t", 3)]
        assert values == [b"first", b"outcome unknown", b"next"]


async def test_a_cancelled_send_takes_nothing_from_others(client: Client, topic: str) -> None:
    async with client.producer(linger=0.05) as producer:
        await producer.partitions(topic)
        cancelled = asyncio.create_task(producer.send(topic, b"cancelled"))
        other = asyncio.create_task(producer.send(topic, b"other"))
        await asyncio.sleep(0)
        cancelled.cancel()
        assert (await other).offset >= 0
    assert len(await read_all(client, topic, 2)) == 2


async def test_leaving_the_block_sends_what_is_buffered(client: Client, topic: str) -> None:
    async with client.producer(linger=60.0) as producer:
        deliveries = [await producer.enqueue(topic, b"%d" % number) for number in range(100)]
    assert [(await each).offset for each in deliveries] == list(range(100))
    with pytest.raises(Closed):
        await producer.send(topic, b"late")


@pytest.mark.long
async def test_leaving_the_block_without_brokers_ends_in_time_and_every_delivery_too() -> None:
    with cluster() as brokers:
        async with Client(brokers.bootstrap_servers, timeout=1.5) as client:
            await client.admin.create_topic("t", partitions=1)
            async with client.producer() as producer:
                await producer.send("t", b"stored")
                brokers.brokers[0].kill()
                delivery = await producer.enqueue("t", b"not stored")
                async with asyncio.timeout(20):
                    await producer.close()
            with pytest.raises(KafkaError):
                await delivery
        brokers.brokers[0].start()


async def test_partitions_that_are_added_get_records_too(client: Client, topic: str) -> None:
    async with client.producer(metadata_max_age=0.1) as producer:
        assert (await producer.send(topic, b"x")).partition == 0
        await client.admin.create_partitions(topic, 3)
        used, end = set[int](), time.monotonic() + 30
        while len(used) < 3:
            used |= {(await producer.send(topic, b"x", key=b"%d" % key)).partition for key in range(10)}
            assert time.monotonic() < end, f"only {used}"


async def test_a_broker_that_is_killed_and_comes_back_costs_nothing() -> None:
    with cluster() as brokers:
        async with Client(brokers.bootstrap_servers, timeout=60) as client:
            await client.admin.create_topic("t", partitions=2)
            async with client.producer(batch_size=2000) as producer:
                deliveries = []
                for number in range(3000):
                    if number == 1000:
                        brokers.brokers[0].kill()
                    if number == 2000:
                        brokers.brokers[0].start()
                    deliveries.append(await producer.enqueue("t", b"%06d" % number))
                    if number % 100 == 0:
                        await asyncio.sleep(0)
                await producer.flush()
            acknowledged = {(placed.partition, placed.offset) for placed in [await each for each in deliveries]}
            assert len(acknowledged) == 3000
            values = [record.value for record in await read_all(client, "t", 3000)]
            assert sorted(values) == [b"%06d" % number for number in range(3000)]



async def test_without_acknowledgements_what_waits_is_bounded_too(broker_proxy: Proxy) -> None:
    """The broker takes nothing any more; what was written and has not left counts."""
    async with Client(str(broker_proxy.address), timeout=2) as client:
        await client.admin.create_topic("t", partitions=1)
        async with client.producer(acks=0, buffer_memory=1_000_000) as producer:
            await producer.send("t", b"the proxy waits for a reply to it, which never comes")
            with pytest.raises(BufferFull):
                for _ in range(1000):
                    await producer.enqueue("t", bytes(100_000))
                    await asyncio.sleep(0)
            await producer.close(timeout=0)


async def test_without_acknowledgements_whoever_waits_for_room_goes_on(client: Client, topic: str) -> None:
    async with client.producer(acks=0, buffer_memory=1000) as producer:
        async with asyncio.timeout(client.timeout):
            for _ in range(20):
                await producer.enqueue(topic, bytes(400))
            await producer.flush()
