"""ListOffsets (key 2): finds offsets by timestamp; -1 asks for the end of the log, -2 for its start.

Versions 1-11, flexible from 6.

1: one offset and its timestamp (KIP-79).
2: isolation level (KIP-98).
3: a throttled answer is sent at once and the client waits (KIP-219).
4: leader epochs (KIP-320).
5: OFFSET_NOT_AVAILABLE (KIP-207).
6: compact lengths and tagged fields (KIP-482).
7: timestamp -3 for the record with the highest timestamp (KIP-734).
8: -4 for the start of the local log (KIP-405).
9: -5 for the end of tiered storage (KIP-1005).
10: timeout for remote storage (KIP-1075).
11: -6 for the first offset not yet tiered (KIP-1023).

raftlog's brokers among themselves: with `consumed_offset`, -1 also gives the last stable offset and the time of the
batch that holds the first record from that offset on.
"""

from __future__ import annotations

from raftlog.wire.schema import OWN_TAGS_FROM, Message, Struct, array, int8, int16, int32, int64, string


class ListOffsetsPartition(Struct):
    partition_index: int = int32()
    current_leader_epoch: int = int32("4+", default=-1, ignorable=True)
    timestamp: int = int64()
    consumed_offset: int = int64("6+", default=-1, ignorable=True, tag=OWN_TAGS_FROM)


class ListOffsetsTopic(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartition] = array(ListOffsetsPartition)


class ListOffsetsRequest(Message, api_key=2, versions=(1, 11), flexible=6):
    replica_id: int = int32()
    isolation_level: int = int8("2+")
    topics: list[ListOffsetsTopic] = array(ListOffsetsTopic)
    timeout_ms: int = int32("10+", ignorable=True)


class ListOffsetsPartitionResponse(Struct):
    partition_index: int = int32()
    error_code: int = int16()
    timestamp: int = int64("1+", default=-1)
    offset: int = int64("1+", default=-1)
    leader_epoch: int = int32("4+", default=-1)
    last_stable_offset: int = int64("6+", default=-1, ignorable=True, tag=OWN_TAGS_FROM)
    consumed_timestamp: int = int64("6+", default=-1, ignorable=True, tag=OWN_TAGS_FROM + 1)


class ListOffsetsTopicResponse(Struct):
    name: str = string()
    partitions: list[ListOffsetsPartitionResponse] = array(ListOffsetsPartitionResponse)


class ListOffsetsResponse(Message, api_key=2, versions=(1, 11), flexible=6):
    throttle_time_ms: int = int32("2+", ignorable=True)
    topics: list[ListOffsetsTopicResponse] = array(ListOffsetsTopicResponse)
