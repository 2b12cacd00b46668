"""Which partitions a fetch without a session watches: those that it waits for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.partition import Partition
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.broker.brokers import DEADLINE_SECONDS, TOPIC, Client, Cluster, run

VERSION = 12
PARTITIONS = 3
LONG_MS = int(3 * DEADLINE_SECONDS * 1000)


def fetch(wait_ms: int) -> FetchRequest:
    wanted = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(PARTITIONS)]
    topics = [FetchTopic(topic=TOPIC, partitions=wanted)]
    return FetchRequest(max_wait_ms=wait_ms, min_bytes=1, max_bytes=1 << 20, topics=topics)


def watchers(cluster: Cluster) -> list[int]:
    return [cluster[1].partition(index).watchers(Mark.HIGH_WATERMARK) for index in range(PARTITIONS)]


async def told(directory: Path, watched: range, moved: int) -> list[int]:
    """The partitions with records in the answer to a fetch, when one of them has moved while so many were watched."""
    async with Cluster(directory, 1) as cluster, Client(cluster[1]) as client:
        cluster.create_topic(*[(1,)] * PARTITIONS)
        poll = asyncio.create_task(client.ask(fetch(LONG_MS), VERSION))
        while sum(watchers(cluster)) < watched.start:
            await asyncio.sleep(0)
        assert sum(watchers(cluster)) in watched
        cluster[1].append("a", index=moved)
        async with asyncio.timeout(DEADLINE_SECONDS):
            (topic,) = (await poll).responses
        assert watchers(cluster) == [0] * PARTITIONS
        return [each.partition_index for each in topic.partitions if len(each.records)]


@pytest.mark.parametrize("reads_per_turn", [1, 2, PARTITIONS, 500])
@pytest.mark.parametrize("moved", range(PARTITIONS))
def test_it_hears_of_each_partition_however_many_turns_the_reading_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_per_turn: int, moved: int
) -> None:
    monkeypatch.setattr("raftlog.broker.runtime.fetching.READS_PER_TURN", reads_per_turn)

    async def story() -> None:
        assert await told(tmp_path, range(PARTITIONS, PARTITIONS + 1), moved) == [moved]

    run(story)


@pytest.mark.parametrize("reads_per_turn", [1, 2])
def test_it_hears_of_what_it_has_read_while_it_has_not_come_to_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads_per_turn: int
) -> None:
    monkeypatch.setattr("raftlog.broker.runtime.fetching.READS_PER_TURN", reads_per_turn)

    async def story() -> None:
        assert await told(tmp_path, range(1, PARTITIONS), 0) == [0]

    run(story)


def test_one_that_is_answered_at_once_watches_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched: list[Mark] = []

    async def story() -> None:
        async with Cluster(tmp_path, 1) as cluster, Client(cluster[1]) as client:
            cluster.create_topic(*[(1,)] * PARTITIONS)
            cluster[1].append("a")
            monkeypatch.setattr(Partition, "watch", lambda _, mark, operation: watched.append(mark))
            for wait_ms in (0, LONG_MS):
                (topic,) = (await client.ask(fetch(wait_ms), VERSION)).responses
                assert len(topic.partitions[0].records) > 0
            assert not watched and watchers(cluster) == [0] * PARTITIONS
            assert cluster[1].partition().traffic.bytes_out == 2 * len(topic.partitions[0].records)

    run(story)
