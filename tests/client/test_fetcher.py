"""What a consumer fetches, and how often, told by replies that only a test gives."""

from __future__ import annotations

import asyncio

import pytest

from raftlog.client.core.fetching import Fetching
from raftlog.client.core.settings import ConsumerSettings
from raftlog.client.fetcher import Fetcher
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from raftlog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from raftlog.wire.messages.metadata import MetadataRequest
from tests.client.answers import Answers

HERE = ("t", 0)


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.UNSUPPORTED_VERSION])
async def test_a_broker_that_refuses_whole_fetches_is_not_asked_without_a_pause(code: ErrorCode) -> None:
    router = Answers(*[FetchResponse(error_code=code)] * 50)
    await one_look_at(router)
    assert sum(isinstance(each, FetchRequest) for each in router.asked) == 1


async def test_a_preferred_replica_that_is_not_known_is_asked_after() -> None:
    """The leader gives no records as long as it is preferred: who goes on to ask the leader gets none."""
    part = PartitionData(partition_index=0, preferred_read_replica=2)
    reply = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[part])])
    router = Answers(*[reply] * 50)
    await one_look_at(router)
    assert [type(each) for each in router.asked] == [FetchRequest, MetadataRequest]


async def one_look_at(router: Answers) -> None:
    settings = ConsumerSettings()
    fetching = Fetching(settings)
    fetching.assign(HERE, 0)
    fetcher = Fetcher(router, fetching, settings)
    fetcher.wake()
    async with asyncio.timeout(20):
        await router.all_asked.wait()
    await fetcher.stop()


@pytest.mark.parametrize("turns", range(8))
async def test_a_partition_that_is_taken_away_while_its_position_is_looked_up_ends_nothing(turns: int) -> None:
    router, settings = Answers(), ConsumerSettings(auto_offset_reset="earliest")
    fetching = Fetching(settings)
    fetching.assign(HERE, None)
    fetching.begin([HERE], {})
    fetcher = Fetcher(router, fetching, settings)
    fetcher.wake()
    for _ in range(turns):
        await asyncio.sleep(0)
    fetching.unassign(HERE)
    for _ in range(8):
        await asyncio.sleep(0)
    await fetcher.stop()
    assert fetcher.failure is None


@pytest.mark.parametrize("code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
async def test_a_partition_whose_leader_refuses_to_look_its_position_up_holds_no_others_up(code: ErrorCode) -> None:
    settings = ConsumerSettings(auto_offset_reset="earliest")
    parts = [
        ListOffsetsPartitionResponse(partition_index=0, error_code=code),
        ListOffsetsPartitionResponse(partition_index=1, offset=7),
    ]
    reply = ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=parts)])
    router = Answers(reply, partitions=2)
    fetching, both = Fetching(settings), [("t", 0), ("t", 1)]
    for each in both:
        fetching.assign(each, None)
    fetching.begin(both, {})
    fetcher = Fetcher(router, fetching, settings)
    fetcher.wake()
    async with asyncio.timeout(20):
        await router.all_asked.wait()
    await fetcher.stop()
    assert fetching.partitions["t", 1].position == 7
    assert fetching.unavailable(1e9, 1) == {("t", 0): code}
    assert (fetcher.failure is None) == code.retriable
