"""A little against Apache Kafka in every run of the suite; `make client-kafka` is all of the client's tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from raftlog.client import Client
from tests import java
from tests.client.reading import read_all

pytestmark = java.marks


@pytest.fixture
async def client(kafka: str) -> AsyncIterator[Client]:
    async with Client(kafka) as made:
        yield made


async def test_a_group_reads_what_was_produced(client: Client, topic: str) -> None:
    async with client.producer() as producer:
        await producer.send_batch(topic, [b"0", b"1", b"2"])
    async with client.consumer(topic, group=topic, auto_offset_reset="earliest") as consumer:
        found: list[bytes | None] = []
        while len(found) < 3:
            batch = await consumer.poll(timeout=20)
            found += [record.value for record in batch]
            batch.done()
        await consumer.commit()
        assert await consumer.committed() == {(topic, 0): 3}
    assert found == [b"0", b"1", b"2"]


async def test_a_transaction_is_read_when_it_is_committed(client: Client, topic: str) -> None:
    async with client.producer(transactional_id=topic) as producer:
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as tx:
                await tx.send(topic, b"aborted")
                await producer.flush()
                raise ZeroDivisionError
        async with producer.transaction() as tx:
            await tx.send(topic, b"committed")
        assert producer._transactions is not None and producer._transactions.core.version == 2
    assert [record.value for record in await read_all(client, topic, 1)] == [b"committed"]
