"""OffsetFetch (key 9): the offsets that a group has committed.

Versions 1-10, flexible from 6.

1: offsets from the log of the coordinator.
2: null for all topics, an error code for the group (KIP-88).
3: throttle time (KIP-124).
4: a throttled answer is sent at once and the client waits (KIP-219).
5: leader epochs (KIP-320).
6: compact lengths and tagged fields (KIP-482).
7: only offsets that no open transaction may still change (KIP-447).
8: several groups (KIP-709).
9: member epochs of the consumer protocol (KIP-848).
10: topic ids in place of names (KIP-848).

raftlog's own client: `with_lag` asks for the lag of each partition and the group's last rebalances.
"""

from __future__ import annotations

from raftlog.wire.schema import OWN_TAGS_FROM, Message, Struct, array, boolean, int16, int32, int64, string, uuid


class OffsetFetchRequestTopic(Struct):
    name: str = string("0-7")
    partition_indexes: list[int] = array(int32, "0-7")


class OffsetFetchRequestTopics(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partition_indexes: list[int] = array(int32, "8+")


class OffsetFetchRequestGroup(Struct):
    group_id: str = string("8+")
    member_id: str | None = string("9+", nullable="9+", default=None, ignorable=True)
    member_epoch: int = int32("9+", default=-1, ignorable=True)
    topics: list[OffsetFetchRequestTopics] | None = array(OffsetFetchRequestTopics, "8+", nullable="8+")


class OffsetFetchRequest(Message, api_key=9, versions=(1, 10), flexible=6):
    group_id: str = string("0-7")
    topics: list[OffsetFetchRequestTopic] | None = array(OffsetFetchRequestTopic, "0-7", nullable="2-7")
    groups: list[OffsetFetchRequestGroup] = array(OffsetFetchRequestGroup, "8+")
    require_stable: bool = boolean("7+")
    with_lag: bool = boolean("6-7", ignorable=True, tag=OWN_TAGS_FROM)


class OffsetFetchResponsePartition(Struct):
    partition_index: int = int32("0-7")
    committed_offset: int = int64("0-7")
    committed_leader_epoch: int = int32("5-7", default=-1, ignorable=True)
    metadata: str | None = string("0-7", nullable="0-7")
    error_code: int = int16("0-7")
    high_watermark: int = int64("6-7", default=-1, ignorable=True, tag=OWN_TAGS_FROM)
    last_stable_offset: int = int64("6-7", default=-1, ignorable=True, tag=OWN_TAGS_FROM + 1)
    lag_ms: int = int64("6-7", default=-1, ignorable=True, tag=OWN_TAGS_FROM + 2)


class OffsetFetchResponseTopic(Struct):
    name: str = string("0-7")
    partitions: list[OffsetFetchResponsePartition] = array(OffsetFetchResponsePartition, "0-7")


class OffsetFetchResponsePartitions(Struct):
    partition_index: int = int32("8+")
    committed_offset: int = int64("8+")
    committed_leader_epoch: int = int32("8+", default=-1, ignorable=True)
    metadata: str | None = string("8+", nullable="8+")
    error_code: int = int16("8+")


class OffsetFetchResponseTopics(Struct):
    name: str = string("8-9", ignorable=True)
    topic_id: bytes = uuid("10+", ignorable=True)
    partitions: list[OffsetFetchResponsePartitions] = array(OffsetFetchResponsePartitions, "8+")


class OffsetFetchResponseGroup(Struct):
    group_id: str = string("8+")
    topics: list[OffsetFetchResponseTopics] = array(OffsetFetchResponseTopics, "8+")
    error_code: int = int16("8+")


class Rebalance(Struct):
    timestamp_ms: int = int64("6-7")
    generation: int = int32("6-7")
    reason: str = string("6-7")


class OffsetFetchResponse(Message, api_key=9, versions=(1, 10), flexible=6):
    throttle_time_ms: int = int32("3+", ignorable=True)
    topics: list[OffsetFetchResponseTopic] = array(OffsetFetchResponseTopic, "0-7")
    error_code: int = int16("2-7", ignorable=True)
    rebalances: list[Rebalance] = array(Rebalance, "6-7", ignorable=True, tag=OWN_TAGS_FROM)
    groups: list[OffsetFetchResponseGroup] = array(OffsetFetchResponseGroup, "8+")
