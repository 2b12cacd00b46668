"""Brokers that died or do not answer: others do what they did, and members of groups go on."""

from __future__ import annotations

from contextlib import AsyncExitStack

import pytest

from raftlog.client import Client
from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.router import ANY_BROKER, GROUP, TRANSACTION, Router
from raftlog.testing import Kafka, cluster
from raftlog.wire.errors import ErrorCode
from tests.waiting import until

GROUP_OPTIONS = {"group": "g", "auto_offset_reset": "earliest", "heartbeat_interval": 0.1, "session_timeout": 10.0}


async def learn_that_it_is_gone(router: Router, node: int) -> None:
    """Ask for the brokers until one is none of them; the coordinators that are known stay known."""
    while node in router.known.nodes:
        try:
            await router.metadata([])
        except KafkaError as error:
            assert error.retriable, error  # the dead one was asked


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_coordinator_that_metadata_no_longer_names_is_looked_for_anew(protocol: str) -> None:
    with cluster(brokers=3) as brokers:
        async with Client(brokers.bootstrap_servers, timeout=30) as client, AsyncExitStack() as stack:
            await client.admin.create_topic("t", partitions=1, replication_factor=3)
            producer = await stack.enter_async_context(client.producer(transactional_id="p"))
            options: dict[str, object] = {"protocol": protocol, **GROUP_OPTIONS}
            consumer = await stack.enter_async_context(client.consumer("t", **options))  # type: ignore[arg-type]
            await consumer.assigned()
            for round in range(2):
                async with producer.transaction() as tx:
                    await tx.send("t", b"%d" % round)
                batch = await consumer.poll(timeout=20)
                assert [record.value for record in batch] == [b"%d" % round]
                batch.done()
                await consumer.commit()
                if round == 0:
                    mine, its = producer._sender._router, consumer._router
                    node = await mine.coordinator("p", TRANSACTION)
                    brokers.broker(node).kill()
                    await learn_that_it_is_gone(mine, node)
                    await learn_that_it_is_gone(its, node)
                    assert mine._coordinators["p", TRANSACTION] == node
                    its._coordinators["g", GROUP] = node
            (last,) = batch
            # The coordinator that took over may have written the first marker again: the record is at 2 or 3.
            assert await consumer.committed() == {("t", 0): last.offset + 2}


@pytest.mark.long
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_member_goes_on_when_a_connection_that_does_not_answer_is_left(protocol: str) -> None:
    with Kafka() as kafka:
        topic = kafka.topic()
        async with (
            Client(kafka.bootstrap_servers) as client,
            client.consumer(topic, protocol=protocol, **GROUP_OPTIONS) as consumer,  # type: ignore[arg-type]
        ):
            await consumer.assigned()
            router = consumer._router
            late = kafka.faults.delay("FindCoordinator", 60.0)
            router.forget_coordinator("g", GROUP)
            await until(lambda: late.fired > 0, "the coordinator is looked for")
            kafka.faults.heal()
            router.disconnect(ANY_BROKER)
            await until(lambda: ("g", GROUP) in router._coordinators, "it is found")
            async with client.producer() as producer:
                await producer.send(topic, b"x")
            assert [record.value for record in await consumer.poll(timeout=20)] == [b"x"]


async def test_a_broker_that_never_was_is_refused_at_once() -> None:
    with cluster(brokers=1) as brokers:
        async with Client(brokers.bootstrap_servers) as client:
            with pytest.raises(Rejected, match="the cluster only has broker 1") as refused:
                await client.router.connection(9)
            assert refused.value.code is ErrorCode.BROKER_NOT_AVAILABLE and not refused.value.retriable
