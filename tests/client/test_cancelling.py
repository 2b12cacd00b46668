"""Stopping, leaving and cancelling: nothing hangs, and nothing that was handed over is lost by it."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.client import Client, Delivery
from raftlog.client.core.errors import TimedOut
from raftlog.testing import cluster
from tests.client.conftest import Servers
from tests.client.proxy import Proxy
from tests.client.reading import read_all
from tests.waiting import DEADLINE_SECONDS, until


def cancel_all_others() -> None:
    """As test frameworks and web servers do with whatever tasks they find."""
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()


async def test_records_are_stored_though_the_senders_tasks_are_cancelled(broker_proxy: Proxy) -> None:
    """While a request is under way, while a connection is made, and while nothing happens."""
    async with Client(str(broker_proxy.address)) as client:
        await client.admin.create_topic("t", partitions=1)
        async with client.producer() as producer:
            await producer.partitions("t")
            deliveries: list[Delivery] = []
            for number in range(5):
                broker_proxy.hold()
                deliveries.append(await producer.enqueue("t", b"%d" % number))
                producer._sender.flush_begins()
                for _ in range(number * 3):
                    await asyncio.sleep(0)
                cancel_all_others()
                broker_proxy.go_on()
                async with asyncio.timeout(DEADLINE_SECONDS):
                    assert (await deliveries[-1]).offset == number
                cancel_all_others()
        assert [record.value for record in await read_all(client, "t", 5)] == [b"%d" % number for number in range(5)]


@pytest.mark.parametrize("group", [None, "classic", "consumer"])
async def test_a_consumer_goes_on_though_its_tasks_are_cancelled(
    client: Client, three_partitions: str, group: str | None
) -> None:
    options = {} if group is None else {"group": three_partitions, "protocol": group, "heartbeat_interval": 0.2}
    async with client.producer() as producer:
        async with client.consumer(three_partitions, auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
            seen: set[bytes | None] = set()
            for number in range(4):
                cancel_all_others()
                await producer.send(three_partitions, b"%d" % number)
                while b"%d" % number not in seen:
                    batch = await consumer.poll(timeout=DEADLINE_SECONDS)
                    assert batch, f"record {number} did not come"
                    seen |= {record.value for record in batch}
                    batch.done()
            if group is not None:
                await consumer.commit()
                assert sum((await consumer.committed()).values()) == 4


@pytest.mark.parametrize("group", [None, "classic", "consumer"])
async def test_a_consumer_is_stopped_as_soon_as_it_is_started(client: Client, topic: str, group: str | None) -> None:
    options = {} if group is None else {"group": topic, "protocol": group}
    for turns in (0, 1, 3, 10, 30):
        consumer = client.consumer(topic, **options)  # type: ignore[arg-type]
        await consumer.start()
        for _ in range(turns):
            await asyncio.sleep(0)
        async with asyncio.timeout(DEADLINE_SECONDS):
            await consumer.close()


def test_a_program_that_is_interrupted_leaves_its_group(servers: Servers, name: str) -> None:
    """The main task is cancelled while it waits for records, as by Ctrl-C."""

    async def work(reads: asyncio.Event) -> None:
        async with Client(servers.bootstrap) as client:
            async with client.consumer(name, group=name, auto_offset_reset="earliest") as consumer:
                async for record in consumer:
                    assert record.value == b"x"
                    reads.set()

    async def main() -> None:
        async with Client(servers.bootstrap) as client:
            await client.admin.create_topic(name, partitions=1)
            async with client.producer() as producer:
                await producer.send(name, b"x")
            reads = asyncio.Event()
            task = asyncio.create_task(work(reads))
            async with asyncio.timeout(DEADLINE_SECONDS):
                await reads.wait()
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert not (await client.admin.describe_group(name)).members
            assert len(asyncio.all_tasks()) == 1, "nothing is left behind"

    asyncio.run(main())


@pytest.mark.long
async def test_a_send_without_brokers_ends_in_its_time_and_so_does_the_producer() -> None:
    with cluster() as brokers:
        async with Client(brokers.bootstrap_servers, timeout=1) as client:
            await client.admin.create_topic("t", partitions=1)
            producer = client.producer(request_timeout=0.5)
            await producer.send("t", b"stored")
            brokers.brokers[0].kill()
            with pytest.raises(TimedOut):
                await producer.send("t", b"not stored", timeout=0.5)
            async with asyncio.timeout(20):
                await producer.close()


async def test_a_request_that_takes_too_long_is_told_as_such_and_reading_goes_on(broker_proxy: Proxy) -> None:
    """A broker stands still for longer than a request may take: no cancellation reaches whoever reads."""
    async with Client(str(broker_proxy.address), timeout=20) as client:
        await client.admin.create_topic("t", partitions=1)
        async with client.producer() as producer:
            await producer.send("t", b"0")
        options = {"request_timeout": 0.3, "fetch_max_wait": 0.1}
        async with client.consumer("t", auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
            assert [record.value for record in await consumer.poll(timeout=DEADLINE_SECONDS)] == [b"0"]
            broker_proxy.hold()
            assert not await consumer.poll(timeout=1)
            broker_proxy.go_on()
            async with client.producer() as producer:
                await producer.send("t", b"1")
            assert [record.value for record in await consumer.poll(timeout=DEADLINE_SECONDS)] == [b"1"]


@pytest.mark.long
async def test_a_block_that_is_cancelled_while_its_records_are_waited_for_is_aborted(broker_proxy: Proxy) -> None:
    """No other transaction could begin otherwise."""
    async with (
        Client(str(broker_proxy.address), timeout=2) as client,
        client.producer(transactional_id="t") as producer,
    ):
        await client.admin.create_topic("t", partitions=1)
        await producer.partitions("t")

        async def work() -> None:
            async with producer.transaction() as tx:
                broker_proxy.hold()
                await tx.send("t", b"aborted")

        task = asyncio.create_task(work())
        assert producer._transactions is not None
        numbering = producer._transactions
        await until(lambda: numbering._is_ending, "the end of the block waits for the record")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        broker_proxy.go_on()
        async with producer.transaction() as tx:
            await tx.send("t", b"committed")
        assert [record.value for record in await read_all(client, "t", 1)] == [b"committed"]


async def test_who_leaves_while_it_joins_is_out_of_the_group_at_once(broker_proxy: Proxy) -> None:
    """Kafka, as the proxy, takes no other request from a connection while a join of it waits."""
    async with Client(str(broker_proxy.address)) as client:
        await client.admin.create_topic("t", partitions=1)
        async with client.producer() as producer:
            await producer.send_batch("t", [b"1", b"2"])
        async with client.consumer("t", group="g", auto_offset_reset="earliest") as first:
            (await first.poll(1)).done()
            assert len(await first.poll(1)) == 1  # the work on it is not done, and the group waits for that
            async with client.consumer("t", group="g") as second:
                async with asyncio.timeout(DEADLINE_SECONDS):
                    while len((await client.admin.describe_group("g")).members) != 2:
                        await asyncio.sleep(0)
                assert second._runner is not None and second._runner.member.generation < 0
            assert len((await client.admin.describe_group("g")).members) == 1
