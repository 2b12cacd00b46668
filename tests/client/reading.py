"""All that is in a topic, as a consumer without a group reads it."""

from __future__ import annotations

from raftlog.client import Client, ConsumerRecord
from tests.waiting import DEADLINE_SECONDS


async def read_all(client: Client, topic: str, count: int, **options: object) -> list[ConsumerRecord]:
    """The first `count` records; fails when there are fewer, or more are there."""
    found: list[ConsumerRecord] = []
    async with client.consumer(topic, auto_offset_reset="earliest", **options) as consumer:  # type: ignore[arg-type]
        while len(found) < count:
            batch = await consumer.poll(5000, timeout=DEADLINE_SECONDS)
            assert batch, f"{len(found)} of {count} records came"
            found += batch
        found += await consumer.poll(timeout=0.2)
    assert len(found) == count, f"{len(found)} records came, not {count}"
    return found
