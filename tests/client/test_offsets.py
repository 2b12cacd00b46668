"""Offsets asked of brokers and told to them, by replies that only a test gives."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from raftlog.client.connection import Connection
from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import Rejected
from raftlog.client.core.metadata import Partition, Topic
from raftlog.client.core.progress import Position
from raftlog.client.offsets import GroupMember, commit_offsets, committed_offsets
from raftlog.client.router import Router
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)

OLD, NEW = b"o" * 16, b"n" * 16


class Newest(Connection):
    def version_of(self, key: ApiKey, highest: int | None = None) -> int:
        return 10


class Answers(Router):
    """Knows topic t by its id; brokers say that it has the id `told`, or that it is gone."""

    def __init__(self, *replies: Any, told: bytes | None = OLD) -> None:
        super().__init__([Address("nowhere", 1)])
        self.asked: list[Any] = []
        self._replies = deque(replies)
        self._told = told
        self._coordinators["g", 0] = 1
        self.known.topics["t"] = Topic(OLD, {0: Partition(1, 0)})

    def forget(self) -> None:
        """The coordinator stays."""

    async def connection(self, node: int = -1, *, lane: str = "") -> Connection:
        return Newest(Address("nowhere", 1), "test")

    async def ask(self, request: Any, reply: Any, **options: Any) -> Any:
        self.asked.append(request)
        if not isinstance(request, MetadataRequest):
            return self._replies.popleft()
        if self._told is None:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return MetadataResponse(topics=[MetadataResponseTopic(name="t", error_code=code)])
        return MetadataResponse(topics=[MetadataResponseTopic(name="t", topic_id=self._told)])


def committed(code: ErrorCode) -> OffsetCommitResponse:
    part = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(topic_id=OLD, partitions=[part])])


async def test_a_commit_for_a_topic_that_the_coordinator_has_not_heard_of_is_tried_again() -> None:
    router = Answers(committed(ErrorCode.UNKNOWN_TOPIC_ID), committed(ErrorCode.NONE))
    await commit_offsets(router, GroupMember("g"), {("t", 0): Position(1)}, topic_ids={"t": OLD})
    assert [type(each) for each in router.asked] == [OffsetCommitRequest, MetadataRequest, OffsetCommitRequest]


@pytest.mark.parametrize("told", [NEW, None])
async def test_a_commit_for_a_topic_that_is_gone_is_refused_at_once(told: bytes | None) -> None:
    router = Answers(committed(ErrorCode.UNKNOWN_TOPIC_ID), told=told)
    with pytest.raises(Rejected, match="it was deleted after it was read"):
        await commit_offsets(router, GroupMember("g"), {("t", 0): Position(1)}, topic_ids={"t": OLD})
    assert len(router.asked) == 2


async def test_offsets_are_those_of_the_topic_that_was_asked_for_though_another_is_known_by_then() -> None:
    """Reading would begin elsewhere, as if nothing had been committed."""

    class Forgets(Answers):
        async def ask(self, request: Any, reply: Any, **options: Any) -> Any:
            self.known.topics.clear()
            return await super().ask(request, reply, **options)

    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, committed_leader_epoch=1, metadata="")
    topic = OffsetFetchResponseTopics(topic_id=OLD, partitions=[part])
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])
    router = cast(Router, Forgets(answer))
    assert await committed_offsets(router, "g", [("t", 0)]) == {("t", 0): Position(5, 1)}
