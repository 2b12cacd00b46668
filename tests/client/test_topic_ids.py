"""Topics by their ids: the newest versions are used, and a topic that was made anew is not taken for the old one."""

from __future__ import annotations

import pytest

from raftlog.client import Client
from raftlog.client.core.errors import Rejected
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.schema import ZERO_UUID
from tests.client.reading import read_all
from tests.waiting import DEADLINE_SECONDS

BY_ID = {ApiKey.PRODUCE: 13, ApiKey.FETCH: 13, ApiKey.OFFSET_COMMIT: 10, ApiKey.OFFSET_FETCH: 10}


async def produce(client: Client, topic: str, *values: bytes) -> None:
    async with client.producer() as producer:
        for value in values:
            await producer.send(topic, value)


async def make_anew(client: Client, topic: str) -> None:
    before = (await client.admin.topic(topic)).topic_id
    await client.admin.delete_topic(topic)

    async def attempt() -> None:
        await client.admin.create_topic(topic, partitions=1)

    await client.router.retrying(attempt, also=[ErrorCode.TOPIC_ALREADY_EXISTS])
    also = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    found = await client.router.retrying(lambda: client.router.topic(topic), also=also)
    assert found.topic_id != before


async def test_the_newest_versions_are_used(client: Client) -> None:
    connection = await client.router.connection()
    assert {api: min(connection.version_of(api), version) for api, version in BY_ID.items()} == BY_ID


@pytest.mark.parametrize("group", [None, "classic", "consumer"])
async def test_a_consumer_begins_a_topic_that_was_made_anew_at_its_start(
    client: Client, topic: str, group: str | None
) -> None:
    await produce(client, topic, b"old 0", b"old 1", b"old 2")
    options = {} if group is None else {"group": topic, "protocol": group}
    async with client.consumer(topic, auto_offset_reset="earliest", fetch_max_wait=0.1, **options) as consumer:  # type: ignore[arg-type]
        found: list[bytes | None] = []
        while len(found) < 3:
            batch = await consumer.poll(timeout=DEADLINE_SECONDS)
            found += [record.value for record in batch]
        await make_anew(client, topic)
        await produce(client, topic, *(b"new %d" % n for n in range(5)))
        while len(found) < 8:
            fresh = await consumer.poll(timeout=DEADLINE_SECONDS)
            assert fresh, f"only {found} came"
            found += [record.value for record in fresh]
        assert not batch.done(), "what was read of the old one counts for nothing"
    assert found == [*(b"old %d" % n for n in range(3)), *(b"new %d" % n for n in range(5))]


async def test_offsets_of_a_topic_that_is_gone_are_not_committed_for_the_new_one(client: Client, topic: str) -> None:
    await produce(client, topic, b"old 0", b"old 1")
    async with client.consumer(topic, group=topic, auto_offset_reset="earliest") as consumer:
        batch = await consumer.poll(timeout=DEADLINE_SECONDS)
        consumer.pause()
        batch.done()
        await make_anew(client, topic)
        with pytest.raises(Rejected) as refused:
            await consumer.commit()
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID
    assert await client.admin.committed_offsets(topic) == {}


async def test_a_producer_goes_on_with_a_topic_that_was_made_anew(client: Client, topic: str) -> None:
    async with client.producer() as producer:
        await producer.send(topic, b"old")
        await make_anew(client, topic)
        placed = await producer.send(topic, b"new", timeout=DEADLINE_SECONDS)
    assert placed.offset == 0
    assert [record.value for record in await read_all(client, topic, 1)] == [b"new"]


async def test_without_ids_topics_have_their_names(
    client: Client, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with brokers before 2.8, which tell no ids."""
    monkeypatch.setattr("raftlog.client.core.metadata.ClusterMetadata.topic_id", lambda self, name: ZERO_UUID)
    await produce(client, topic, b"0", b"1")
    async with client.consumer(topic, group=topic, auto_offset_reset="earliest") as consumer:
        batch = await consumer.poll(timeout=DEADLINE_SECONDS)
        assert [record.value for record in batch] == [b"0", b"1"]
        batch.done()
        await consumer.commit()
        assert await consumer.committed() == {(topic, 0): 2}
