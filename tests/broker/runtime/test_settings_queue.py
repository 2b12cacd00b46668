"""Settings of thousands of topics that change at once are taken up in many turns, and in the order of the metadata."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raftlog.broker.runtime.settings_queue import PARTITIONS_PER_TURN, SettingsQueue
from raftlog.metadata.records import ConfigRecord, ResourceType
from tests.broker.brokers import TOPIC, Cluster, run


async def turns_of(queue: SettingsQueue, taken: list[str], partitions: int) -> list[int]:
    """How many topics had been taken up after each turn."""
    queue.add(f"t-{number}" for number in range(partitions))
    found = [len(taken)]
    while found[-1] < partitions:
        await asyncio.sleep(0)
        found.append(len(taken))
    return found


@pytest.mark.parametrize("partitions", [0, 1, 10])
async def test_what_one_turn_takes_up_is_bounded_by_partitions(partitions: int) -> None:
    taken: list[str] = []

    def take_up(name: str) -> int:
        taken.append(name)
        return partitions

    in_a_turn = PARTITIONS_PER_TURN // max(1, partitions)
    count = 3 * in_a_turn
    assert await turns_of(SettingsQueue(take_up), taken, count) == [in_a_turn, 2 * in_a_turn, count]
    assert taken == [f"t-{number}" for number in range(count)]


async def test_what_changes_again_meanwhile_is_taken_up_once() -> None:
    taken: list[str] = []
    queue = SettingsQueue(lambda name: taken.append(name) or PARTITIONS_PER_TURN)  # type: ignore[func-returns-value]
    queue.add(["a", "b"])
    queue.add(["b", "c"])
    assert taken == ["a"] and "b" in queue
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert taken == ["a", "b", "c"] and "b" not in queue


def test_a_topic_whose_isr_changes_has_its_settings_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that went on with the smaller min.insync.replicas would acknowledge what eligible replicas lack."""

    async def story() -> None:
        async with Cluster(tmp_path) as cluster:
            cluster.create_topic((1, 2, 3))
            leader = cluster[1]
            assert leader.partition().min_isr == 1
            monkeypatch.setattr(SettingsQueue, "_take_up_some", lambda _: None)
            cluster.change(ConfigRecord(ResourceType.TOPIC, TOPIC, {"min.insync.replicas": "2"}))
            assert leader.partition().min_isr == 1, "its turn has not come"
            cluster.set_state(isr=(1,))
            assert leader.partition().min_isr == 2

    run(story)
