"""DeleteTopics (key 20): deletes topics (KIP-4).

Versions 1-6, flexible from 4.

1: throttle time (KIP-124).
2: a throttled answer is sent at once and the client waits (KIP-219).
3: TOPIC_DELETION_DISABLED (KIP-322).
4: compact lengths and tagged fields (KIP-482).
5: error message, THROTTLING_QUOTA_EXCEEDED (KIP-599).
6: topics by id (KIP-516).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, Struct, array, int16, int32, string, uuid


class DeleteTopicState(Struct):
    name: str | None = string("6+", nullable="6+", default=None)
    topic_id: bytes = uuid("6+")


class DeleteTopicsRequest(Message, api_key=20, versions=(1, 6), flexible=4):
    topics: list[DeleteTopicState] = array(DeleteTopicState, "6+")
    topic_names: list[str] = array(string, "0-5", ignorable=True)
    timeout_ms: int = int32()


class DeletableTopicResult(Struct):
    name: str | None = string(nullable="6+")
    topic_id: bytes = uuid("6+", ignorable=True)
    error_code: int = int16()
    error_message: str | None = string("5+", nullable="5+", default=None, ignorable=True)


class DeleteTopicsResponse(Message, api_key=20, versions=(1, 6), flexible=4):
    throttle_time_ms: int = int32("1+", ignorable=True)
    responses: list[DeletableTopicResult] = array(DeletableTopicResult)
