"""What a fetch session says of partitions without records to send: the high watermark, to whoever may not know it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.broker.brokers import DEADLINE_SECONDS, TOPIC_ID, Client, Cluster, run

VERSION = 17
CONSUMER, FOLLOWER = -1, 2
WAIT_MS = 20


class Session:
    """One fetch session with broker 1, of broker 2 or of a consumer, that has read all there is."""

    def __init__(self, client: Client, replica_id: int, wait_ms: int = WAIT_MS) -> None:
        self._client = client
        self.broker = client.broker
        self._replica_id = replica_id
        self._wait_ms = wait_ms
        self._id = self._epoch = 0

    async def told(self, *indexes: int, leader_epoch: int = 0) -> dict[int, Any]:
        """Fetch, telling where we are in the partitions with these indexes; what the answer says, by index."""
        wanted = [
            FetchPartition(
                partition=index,
                fetch_offset=1,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=0,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for index in indexes
        ]
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=self._replica_id, replica_epoch=-1),
            max_wait_ms=self._wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
            session_id=self._id,
            session_epoch=self._epoch,
            topics=[FetchTopic(topic_id=TOPIC_ID, partitions=wanted)] if wanted else [],
        )
        answer = await self._client.ask(request, VERSION)
        assert answer.error_code == ErrorCode.NONE
        self._id, self._epoch = answer.session_id, self._epoch + 1
        return {partition.partition_index: partition for topic in answer.responses for partition in topic.partitions}


@asynccontextmanager
async def session(directory: Path, replica_id: int) -> AsyncIterator[Session]:
    """Two partitions with one committed record each; broker 2 itself fetches nothing. The session has partition 0."""
    async with Cluster(directory, 2) as cluster:
        cluster[2].deaf = True
        cluster.create_topic((1, 2), (1, 2), isr=(1,))
        for index in (0, 1):
            cluster[1].append("a", index=index)
            assert cluster[1].high_watermark(index) == 1
        async with Client(cluster[1]) as client:
            opened = Session(client, replica_id)
            assert (await opened.told(0))[0].high_watermark == 1
            yield opened


@pytest.mark.parametrize("replica_id", [CONSUMER, FOLLOWER])
def test_who_has_all_records_hears_that_they_are_committed_when_the_wait_is_over(
    tmp_path: Path, replica_id: int
) -> None:
    async def story() -> None:
        async with session(tmp_path, replica_id) as fetches:
            told = await fetches.told(1)
            assert {index: (read.high_watermark, len(read.records)) for index, read in told.items()} == {1: (1, 0)}
            assert await fetches.told() == {}

    run(story)


def test_a_follower_that_was_refused_hears_the_high_watermark_after_all(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, FOLLOWER) as fetches:
            told = await fetches.told(1, leader_epoch=1)
            assert told[1].error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
            assert (await fetches.told(1))[1].high_watermark == 1

    run(story)


def test_a_follower_that_tells_anew_where_it_is_hears_the_high_watermark_anew(tmp_path: Path) -> None:
    async def story() -> None:
        async with session(tmp_path, FOLLOWER) as fetches:
            assert (await fetches.told(0))[0].high_watermark == 1
            assert await fetches.told() == {}

    run(story)


def test_what_is_committed_between_two_equal_polls_is_told_at_once_to_a_follower_that_serves_consumers(
    tmp_path: Path,
) -> None:
    async def story() -> None:
        async with Cluster(tmp_path, 3) as cluster, Client(cluster[1]) as client:
            cluster[1].fetches.consumers.rack_of = {}.get
            cluster[2].deaf = cluster[3].deaf = True
            cluster.create_topic((1, 2, 3), (1, 2, 3), isr=(1, 3))
            for index in (0, 1):
                cluster[1].append("a", index=index)
            fetches = Session(client, FOLLOWER, wait_ms=int(3 * DEADLINE_SECONDS * 1000))
            opened = await fetches.told(0, 1)
            assert {index: read.high_watermark for index, read in opened.items()} == {0: 0, 1: 0}
            poll = asyncio.create_task(fetches.told())
            while not cluster[1].fetches.delayed_count:
                await asyncio.sleep(0)
            cluster.set_state(0, isr=(1,))
            assert {index: read.high_watermark for index, read in (await poll).items()} == {0: 1}
            cluster.set_state(1, isr=(1,))
            async with asyncio.timeout(DEADLINE_SECONDS):
                assert {index: read.high_watermark for index, read in (await fetches.told()).items()} == {1: 1}

    run(story)
