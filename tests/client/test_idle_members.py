"""Members that ask for nothing for longer than `max_poll_interval`: they leave, and come back when they ask again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from raftlog.client import Client
from raftlog.client.subscription import Subscription
from tests.client.test_groups import QUICK, broker, fill, member, protocol
from tests.waiting import until

__all__ = ["broker", "protocol"]  # fixtures
pytestmark = pytest.mark.long


async def test_what_is_done_is_committed_before_a_member_leaves_that_asks_for_nothing(
    client: Client, three_partitions: str, protocol: dict[str, object]
) -> None:
    await fill(client, three_partitions, 9)
    options = protocol | {"max_poll_interval": 0.5, "auto_commit_interval": 60.0}
    async with member(client, three_partitions, options) as consumer:
        found = 0
        while found < 9:
            batch = await consumer.poll(timeout=20)
            found += len(batch)
            batch.done()
        await until(lambda: not consumer.assignment, "left")
        stored = await consumer.committed(*[(three_partitions, index) for index in range(3)])
        assert sum(stored.values()) == 9


async def test_who_asks_for_nothing_leaves_and_comes_back(client: Client, three_partitions: str) -> None:
    await fill(client, three_partitions, 9)
    async with member(client, three_partitions, QUICK | {"max_poll_interval": 0.5}) as consumer:
        await consumer.assigned()
        await until(lambda: not consumer.assignment, "left")
        found: set[bytes | None] = set()
        while len(found) < 9:
            found |= {record.value for record in await consumer.poll(timeout=20)}


async def test_who_left_its_group_for_asking_for_nothing_reads_nothing_outside_of_it(
    client: Client, three_partitions: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It looked for new partitions like one without a group, and took all: what others read was read twice."""
    looks = 0
    look = Subscription.look

    async def counted(self: Subscription) -> Mapping[str, int]:
        nonlocal looks
        looks += 1
        return await look(self)

    monkeypatch.setattr(Subscription, "look", counted)
    options = QUICK | {"max_poll_interval": 0.5, "metadata_max_age": 0.1}
    async with member(client, three_partitions, options) as consumer:
        await consumer.assigned()
        await until(lambda: not consumer.assignment, "left")
        after = looks + 2
        await until(lambda: looks >= after, "it has looked for new partitions")
        assert not consumer.assignment


async def test_who_comes_back_before_its_farewell_is_answered_keeps_what_it_gets(
    client: Client, three_partitions: str
) -> None:
    await fill(client, three_partitions, 9)
    async with member(client, three_partitions, QUICK | {"max_poll_interval": 0.5}) as consumer:
        async with asyncio.timeout(20):
            while len(consumer.assignment) < 3:
                await consumer.poll(timeout=0.1)
        assert consumer._runner is not None
        first, stop, before = consumer._runner, consumer._runner.stop, consumer.assignments
        lost = asyncio.Event()

        async def stop_slowly() -> None:
            await stop()
            await until(lambda: consumer.assignments > before, "it is back")

        first.stop = stop_slowly  # type: ignore[method-assign]
        consumer.on_lost = lambda partitions: lost.set()
        await until(lambda: consumer._runner is not first, "it leaves")
        found: set[bytes | None] = set()
        async with asyncio.timeout(20):
            while len(found) < 9 or not lost.is_set():
                found |= {record.value for record in await consumer.poll(timeout=0.1)}
        assert len(consumer.assignment) == 3
