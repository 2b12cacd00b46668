"""What a request does to its fetch session, which does not depend on its version or form."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.broker.brokers import TOPIC_ID, Client, Cluster, run

FOLLOWER, OTHER_FOLLOWER, CONSUMER = 2, 3, -1


def request(version: int, session_id: int, epoch: int, *, replica: tuple[int, int], offset: int = -1) -> FetchRequest:
    """A fetch of `replica`, its id and broker epoch; with an offset it names partition 0."""
    named = FetchPartition(
        partition=0,
        fetch_offset=offset,
        current_leader_epoch=0,
        last_fetched_epoch=0,
        log_start_offset=0,
        partition_max_bytes=1 << 20,
    )
    made = FetchRequest(
        max_wait_ms=20,
        min_bytes=1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic_id=TOPIC_ID, partitions=[named])] if offset >= 0 else [],
    )
    if version >= 15:
        made.replica_state = ReplicaState(replica_id=replica[0], replica_epoch=replica[1])
    else:
        made.replica_id = replica[0]
    return made


@asynccontextmanager
async def opened(directory: Path, version: int) -> AsyncIterator[tuple[Cluster, Client, int]]:
    """A session of broker 2 that has read the one record there is, and its id."""
    async with Cluster(directory, 3) as cluster:
        cluster[2].deaf = cluster[3].deaf = True
        cluster.create_topic((1, 2, 3), isr=(1,))
        cluster[1].append("a")
        async with Client(cluster[1]) as client:
            answer = await client.ask(request(version, 0, 0, replica=(FOLLOWER, -1), offset=1), version)
            ((told,),) = [topic.partitions for topic in answer.responses]
            assert (answer.error_code, told.error_code, told.high_watermark) == (ErrorCode.NONE, ErrorCode.NONE, 1)
            yield cluster, client, answer.session_id


def high_watermarks(answer: Any) -> list[int]:
    assert answer.error_code == ErrorCode.NONE
    return [partition.high_watermark for topic in answer.responses for partition in topic.partitions]


@pytest.mark.parametrize("version", [13, 14, 15, 17, 18])
def test_a_follower_that_names_a_partition_hears_its_high_watermark_anew(tmp_path: Path, version: int) -> None:
    async def story() -> None:
        async with opened(tmp_path, version) as (_, client, session_id):
            again = request(version, session_id, 1, replica=(FOLLOWER, -1), offset=1)
            assert high_watermarks(await client.ask(again, version)) == [1]
            assert high_watermarks(await client.ask(request(version, session_id, 2, replica=(2, -1)), version)) == []

    run(story)


@pytest.mark.parametrize("behind", [b"", b"\0"])
def test_bytes_behind_a_followers_request_change_nothing(tmp_path: Path, behind: bytes) -> None:
    """Such a request was read by another reader, which did less."""

    async def story() -> None:
        async with opened(tmp_path, 17) as (_, client, session_id):
            again = request(17, session_id, 1, replica=(FOLLOWER, -1), offset=1)
            await client.send(again, 17, behind)
            assert high_watermarks(await client.receive(again, 17)) == [1]

    run(story)


@pytest.mark.parametrize("offset", [-1, 1])
def test_the_newest_request_says_in_which_epoch_the_follower_is_registered(tmp_path: Path, offset: int) -> None:
    async def story() -> None:
        async with opened(tmp_path, 17) as (cluster, client, session_id):
            (session,) = cluster[1].fetches.sessions._sessions.values()
            for number, epoch in enumerate((5, 6), 1):
                told = request(17, session_id, number, replica=(FOLLOWER, epoch), offset=offset)
                assert (await client.ask(told, 17)).error_code == ErrorCode.NONE
                assert (session.replica_id, session.replica_epoch) == (FOLLOWER, epoch)

    run(story)


@pytest.mark.parametrize("offset", [-1, 1])
@pytest.mark.parametrize("stranger", [CONSUMER, OTHER_FOLLOWER])
@pytest.mark.parametrize("version", [14, 17])
def test_a_session_is_nobody_elses(tmp_path: Path, version: int, stranger: int, offset: int) -> None:
    async def story() -> None:
        async with opened(tmp_path, version) as (_, client, session_id):
            told = request(version, session_id, 1, replica=(stranger, 1), offset=offset)
            answer = await client.ask(told, version)
            assert (answer.error_code, answer.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
            own = request(version, session_id, 1, replica=(FOLLOWER, -1), offset=1)
            assert high_watermarks(await client.ask(own, version)) == [1]

    run(story)
