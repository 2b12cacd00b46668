"""Offsets asked of brokers and told to them, by replies that only a test gives."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.client.core.errors import Rejected
from raftlog.client.core.progress import Position
from raftlog.client.offsets import GroupMember, commit_offsets, committed_offsets
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.metadata import MetadataRequest, MetadataResponseTopic
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
from tests.client.answers import Answers

OLD, NEW = b"o" * 16, b"n" * 16
ANEW = MetadataResponseTopic(name="t", topic_id=NEW)
GONE = MetadataResponseTopic(name="t", error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def committed(code: ErrorCode) -> OffsetCommitResponse:
    part = OffsetCommitResponsePartition(partition_index=0, error_code=code)
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(topic_id=OLD, partitions=[part])])


async def test_a_commit_for_a_topic_that_the_coordinator_has_not_heard_of_is_tried_again() -> None:
    router = Answers(committed(ErrorCode.UNKNOWN_TOPIC_ID), committed(ErrorCode.NONE), topic_id=OLD)
    await commit_offsets(router, GroupMember("g"), {("t", 0): Position(1)}, topic_ids={"t": OLD})
    assert [type(each) for each in router.asked] == [OffsetCommitRequest, MetadataRequest, OffsetCommitRequest]


@pytest.mark.parametrize("told", [ANEW, GONE])
async def test_a_commit_for_a_topic_that_is_gone_is_refused_at_once(told: MetadataResponseTopic) -> None:
    router = Answers(committed(ErrorCode.UNKNOWN_TOPIC_ID), topic_id=OLD)
    router.told = told
    with pytest.raises(Rejected, match="it was deleted after it was read"):
        await commit_offsets(router, GroupMember("g"), {("t", 0): Position(1)}, topic_ids={"t": OLD})
    assert len(router.asked) == 2


async def test_offsets_are_those_of_the_topic_that_was_asked_for_though_another_is_known_by_then() -> None:
    """Reading would begin elsewhere, as if nothing had been committed."""

    part = OffsetFetchResponsePartitions(partition_index=0, committed_offset=5, committed_leader_epoch=1, metadata="")
    topic = OffsetFetchResponseTopics(topic_id=OLD, partitions=[part])
    answer = OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=[topic])])
    router = Answers(topic_id=OLD)

    def forgets(request: Any) -> OffsetFetchResponse:
        router.known.topics.clear()
        return answer

    router.answer = forgets
    assert await committed_offsets(router, "g", [("t", 0)]) == {("t", 0): Position(5, 1)}
