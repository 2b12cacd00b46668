"""A committed offset in `__consumer_offsets`.

Key version 0 is that of Kafka before 0.8.3, read like 1; Kafka 4 calls 0 and 1 the API keys of two records with one
layout. Value versions:

1: expiry time of the offset itself.
2: no more expiry time, but that of the group (KIP-211).
3: leader epoch (KIP-320).
4: compact lengths and tagged fields (KIP-915); the topic id as a tagged field (KIP-848).
"""

from __future__ import annotations

from raftlog.wire.schema import Message, int32, int64, string, uuid


class OffsetCommitKey(Message, versions=(0, 1)):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions=(0, 4), flexible=4):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)
    topic_id: bytes = uuid("4+", ignorable=True, tag=0)
