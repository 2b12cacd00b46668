"""Members of groups for whom something fails: they say so, and go on when they can."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.client import Client, KafkaError
from raftlog.client.core.errors import Rejected
from raftlog.client.core.membership import Partitions
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from tests.client.conftest import skip_without
from tests.waiting import until

pytestmark = pytest.mark.long


@pytest.fixture(params=["classic", "consumer"])
async def protocol(request: pytest.FixtureRequest, client: Client) -> str:
    if request.param == "consumer":
        await skip_without(client, ApiKey.CONSUMER_GROUP_HEARTBEAT)
    asked: str = request.param
    return asked


async def test_a_member_that_could_not_learn_where_the_group_stands_asks_on(
    client: Client, topic: str, protocol: str
) -> None:
    await skip_without(client, ApiKey.END_TXN)
    async with client.producer(transactional_id=topic) as producer, client.producer() as plain:
        await plain.send_batch(topic, [b"0", b"1"])
        await producer.begin()
        await producer.send_offsets({(topic, 0): 1}, topic)
        async with (
            Client(client._bootstrap, timeout=0.5) as hasty,
            hasty.consumer(topic, group=topic, protocol=protocol, auto_offset_reset="earliest") as consumer,
        ):
            with pytest.raises(Rejected) as refused:
                while True:
                    assert not await consumer.poll()
            assert refused.value.code == ErrorCode.UNSTABLE_OFFSET_COMMIT
            await producer.commit()
            assert await value(consumer) == b"1"


async def test_a_listener_that_raises_is_told_and_stops_nothing(client: Client, topic: str, protocol: str) -> None:
    async with client.producer() as producer:
        await producer.send(topic, b"0")

    def refuse(partitions: Partitions) -> None:
        raise ZeroDivisionError

    async with client.consumer(topic, group=topic, protocol=protocol, auto_offset_reset="earliest") as consumer:
        consumer.on_assigned = consumer.on_revoked = refuse
        with pytest.raises(KafkaError, match="a listener failed: ZeroDivisionError"):
            await consumer.poll(timeout=20)
        batch = await consumer.poll(timeout=20)
        assert [record.value for record in batch] == [b"0"]
        batch.done()
        runner = consumer._runner
        assert runner is not None
        await runner.on_revoked(frozenset({(topic, 0)}))
    assert (await client.admin.committed_offsets(topic))[topic, 0] == 1


async def test_a_member_that_is_out_for_good_says_so_each_time(client: Client, topic: str) -> None:
    async with client.consumer(topic, group=topic, session_timeout=0.001, heartbeat_interval=0.0) as consumer:
        for _ in range(3):
            with pytest.raises(Rejected) as refused:
                await consumer.poll(timeout=20)
            assert refused.value.code == ErrorCode.INVALID_SESSION_TIMEOUT


async def value(consumer: object) -> bytes | None:
    """Of the next record, whatever fails before."""
    while True:
        try:
            for record in await consumer.poll(timeout=20):  # type: ignore[attr-defined]
                found: bytes | None = record.value
                return found
        except KafkaError:
            continue


async def test_a_member_that_ended_by_a_mistake_says_so_at_every_poll(
    client: Client, topic: str, protocol: str
) -> None:
    """Who was told once, and looked away, would wait for records for ever."""
    async with client.consumer(topic, group=topic, protocol=protocol) as consumer:
        assert consumer._runner is not None

        def fail(now: float) -> Any:
            raise RuntimeError("a mistake")

        consumer._runner.member.next = fail  # type: ignore[method-assign]
        consumer._runner.wake()
        for _ in range(3):
            with pytest.raises(KafkaError, match="a mistake"):
                assert await consumer.poll()


async def test_nobody_waits_for_a_member_that_cannot_learn_where_the_group_stands(client: Client, topic: str) -> None:
    """What it has to give up it was never given, as a transaction that commits offsets for it is open."""
    await skip_without(client, ApiKey.END_TXN)
    async with client.producer(transactional_id=topic) as producer:
        await producer.begin()
        await producer.send_offsets({(topic, 0): 0}, topic)
        async with (
            Client(client._bootstrap, timeout=0.5) as hasty,
            hasty.consumer(topic, group=topic, heartbeat_interval=0.2, rebalance_timeout=600) as first,
        ):
            with pytest.raises(Rejected, match="transaction"):
                while True:
                    assert not await first.poll()
            async with client.consumer(topic, group=topic, rebalance_timeout=600) as second:
                assert second._runner is not None
                member = second._runner.member
                await until(lambda: member.generation >= 0, "the group waits for the member")


async def test_offsets_of_records_that_were_given_out_when_the_group_had_gone_on_are_refused(
    client: Client, name: str
) -> None:
    """They were committed as if nobody had read them, which coordinators take from clients before KIP-447: another
    member had moved the same records (verify --workload consume-transform-produce --fault unheard-client).
    """
    await skip_without(client, ApiKey.END_TXN)
    await client.admin.create_topic(name, partitions=1)
    options = {"group": name, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with client.producer(transactional_id=name) as producer, client.consumer(name, **options) as consumer:
        async with producer.transaction() as tx:
            await tx.send(name, b"x")
            await tx.send(name, b"y")
        await consumer.poll(max_records=1)
        assert consumer._runner is not None
        consumer._runner.member.fenced()  # as a heartbeat's answer says; the loss is carried out later
        batch = await consumer.poll(max_records=1)
        assert [record.value for record in batch] == [b"y"]
        with pytest.raises(Rejected, match="not in the group") as refused:
            async with producer.transaction() as tx:
                await tx.send_offsets(batch.end_offsets, consumer.member)
        assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID
        assert await consumer.committed((name, 0)) == {}
