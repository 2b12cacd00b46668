"""What a group leaves in `__consumer_offsets`: committed offsets and group metadata, as values and as bytes.

Kafka's keys and values, in the versions that Kafka 4.3 writes: OffsetCommitValue 4 (1 when the client set an expiry
time of its own), GroupMetadataValue 3. All older versions are read.

The commit of an offset is warm, so the form of it that we write is packed and parsed here by hand; the schema of
`raftlog.wire.internal` does everything else, and tests hold the two equal.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from raftlog.broker.core.coordinator.loading import UnreadableRecord
from raftlog.broker.core.group.consumer.records import (
    ConsumerGroupRecord,
    decode_consumer_record,
    encode_consumer_record,
)
from raftlog.wire import internal
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.ids import LeaderEpoch, Offset
from raftlog.wire.internal.group_metadata import GroupMetadataKey, GroupMetadataValue
from raftlog.wire.internal.group_metadata import MemberMetadata as MemberMetadataValue
from raftlog.wire.internal.offset_commit import OffsetCommitValue
from raftlog.wire.schema import ZERO_UUID
from raftlog.wire.varint import encode_unsigned_varint

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    """A committed offset. Times in ms since 1970; `expire_timestamp_ms` is NO_EXPIRY unless the client set one."""

    offset: Offset
    leader_epoch: LeaderEpoch = LeaderEpoch(-1)
    metadata: str = ""
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int = NO_EXPIRY
    # The topic that was meant; zeros when the record is from before Kafka wrote ids.
    topic_id: bytes = ZERO_UUID


class MemberMetadata(NamedTuple):
    """A member as it is stored. `subscription` is its metadata for the group's protocol."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupMetadata(NamedTuple):
    """A generation of a group as it is stored; without members it says since when the group is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberMetadata, ...]


class OffsetRecord(NamedTuple):
    """A commit, or with None the removal of an offset."""

    group_id: str
    topic: str
    partition: int
    value: CommittedOffset | None


class TopicOffsets(NamedTuple):
    """Commits of many partitions of one topic (`topic_offsets`): in the log, as many records as offsets.

    Invariant: there is at least one; all are of one time and one topic id, without metadata and expiry.
    """

    group_id: str
    topic: str
    offsets: dict[int, CommittedOffset]


class GroupRecord(NamedTuple):
    """A group's new metadata, or with None its removal."""

    group_id: str
    value: GroupMetadata | None


StoredRecord = OffsetRecord | GroupRecord | ConsumerGroupRecord
"""What is one record of the log."""

CoordinatorRecord = StoredRecord | TopicOffsets


# The first two bytes of a key say what kind it is, which Kafka calls its version.
_LEGACY_OFFSET_KEY = 0
_OFFSET_KEY = 1
_GROUP_KEY = 2
_OFFSET_VALUE = 4
_OFFSET_VALUE_WITH_EXPIRY = 1
_GROUP_VALUE = 3

_INT16 = Struct(">h")
_INT32 = Struct(">i")
_INT64 = Struct(">q")
_VALUE_HEAD = Struct(">hqi")
_ONE_TAG_TOPIC_ID = b"\x01\x00\x10"
_NO_TAGS = b"\x00"
_COMMON_VALUE = Struct(">hqicq3s16s")
_COMMON_SIZE = _COMMON_VALUE.size
_EMPTY = b"\x01"


# --- writing


@lru_cache(maxsize=8192)
def _offset_key_prefix(group_id: str, topic: str) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join((_INT16.pack(_OFFSET_KEY), _INT16.pack(len(group)), group, _INT16.pack(len(name)), name))


def _encode_offset(value: CommittedOffset) -> bytes:
    if value.expire_timestamp_ms != NO_EXPIRY:
        return internal.encode_internal(
            OffsetCommitValue(
                offset=value.offset,
                metadata=value.metadata,
                commit_timestamp=value.commit_timestamp_ms,
                expire_timestamp=value.expire_timestamp_ms,
            ),
            _OFFSET_VALUE_WITH_EXPIRY,
        )
    text = value.metadata.encode()
    return b"".join(
        (
            _VALUE_HEAD.pack(_OFFSET_VALUE, value.offset, value.leader_epoch),
            encode_unsigned_varint(len(text) + 1),
            text,
            _INT64.pack(value.commit_timestamp_ms),
            _NO_TAGS if value.topic_id == ZERO_UUID else _ONE_TAG_TOPIC_ID + value.topic_id,
        )
    )


def _encode_group(value: GroupMetadata) -> bytes:
    return internal.encode_internal(
        GroupMetadataValue(
            protocol_type=value.protocol_type,
            generation=value.generation,
            protocol=value.protocol,
            leader=value.leader,
            current_state_timestamp=value.state_timestamp_ms,
            members=[
                MemberMetadataValue(
                    member_id=member.member_id,
                    group_instance_id=member.group_instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.subscription,
                    assignment=member.assignment,
                )
                for member in value.members
            ],
        ),
        _GROUP_VALUE,
    )


def encode_record(record: StoredRecord) -> tuple[bytes, bytes | None]:
    """Key and value; the value of a removal is None."""
    if isinstance(record, OffsetRecord):
        group_id, topic, partition, offset = record
        key = _offset_key_prefix(group_id, topic) + _INT32.pack(partition)
        return key, None if offset is None else _encode_offset(offset)
    if isinstance(record, GroupRecord):
        key = internal.encode_internal(GroupMetadataKey(group=record.group_id), _GROUP_KEY)
        return key, None if record.value is None else _encode_group(record.value)
    return encode_consumer_record(record)


# --- reading


def decode_record(key: bytes, value: bytes | None) -> StoredRecord | None:
    """The record, or None when it is of a kind that belongs to protocols that are not served.

    Raises UnreadableRecord.
    """
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind in (_OFFSET_KEY, _LEGACY_OFFSET_KEY):
            group_id, topic, partition = _decode_offset_key(key)
            return OffsetRecord(group_id, topic, partition, None if value is None else _decode_offset(value))
        if kind == _GROUP_KEY:
            group_id = internal.decode_internal(GroupMetadataKey, key).group
            return GroupRecord(group_id, None if value is None else _decode_group(value))
        return decode_consumer_record(kind, key, value)
    except (StructError, IndexError, UnicodeDecodeError, RemoteProtocolError) as error:
        raise UnreadableRecord(f"key {key[:64]!r}: {error}") from error


def _decode_offset_key(key: bytes) -> tuple[str, str, int]:
    group_id, topic = _names(key[:-4])
    (partition,) = _INT32.unpack_from(key, len(key) - 4)
    return group_id, topic, partition


@lru_cache(maxsize=8192)
def _names(prefix: bytes) -> tuple[str, str]:
    """Group and topic, once for all partitions, of a key without its partition."""
    (length,) = _INT16.unpack_from(prefix, 2)
    topic_at = 6 + length
    (topic_length,) = _INT16.unpack_from(prefix, topic_at - 2)
    if length < 0 or topic_length < 0 or topic_at + topic_length != len(prefix):
        raise UnreadableRecord(f"key {prefix[:64]!r}: its lengths do not fit")
    return prefix[4 : 4 + length].decode(), prefix[topic_at:].decode()


@lru_cache(maxsize=8192)
def _shared(topic_id: bytes) -> bytes:
    """One object for each id: a million offsets have few topics."""
    return topic_id


def common_offset(value: bytes) -> CommittedOffset | None:
    """The offset, if the value has the form that nearly all have: ours, and Kafka's since 4.1, without metadata."""
    if len(value) == _COMMON_SIZE:
        version, offset, epoch, text, time, tag, topic_id = _COMMON_VALUE.unpack(value)
        if version == _OFFSET_VALUE and text == _EMPTY and tag == _ONE_TAG_TOPIC_ID:
            return tuple.__new__(CommittedOffset, (offset, epoch, "", time, NO_EXPIRY, _shared(topic_id)))
    return None


def _decode_offset(value: bytes) -> CommittedOffset:
    common = common_offset(value)
    if common is not None:
        return common
    version, offset, leader_epoch = _VALUE_HEAD.unpack_from(value)
    # With metadata: a short compact string, and no tag or one that is the topic id.
    if version == _OFFSET_VALUE and 1 <= (size := value[14]) < 0x80:
        time_at = 14 + size
        (timestamp,) = _INT64.unpack_from(value, time_at)
        metadata = "" if size == 1 else value[15:time_at].decode()
        tags = value[time_at + 8 :]
        if len(tags) == 19 and tags.startswith(_ONE_TAG_TOPIC_ID):
            return CommittedOffset(offset, leader_epoch, metadata, timestamp, NO_EXPIRY, _shared(tags[3:]))
        if tags == _NO_TAGS:
            return CommittedOffset(offset, leader_epoch, metadata, timestamp)
    decoded = internal.decode_internal(OffsetCommitValue, value)
    return CommittedOffset(
        Offset(decoded.offset),
        LeaderEpoch(decoded.leader_epoch),
        decoded.metadata,
        decoded.commit_timestamp,
        decoded.expire_timestamp,
        decoded.topic_id,
    )


def _decode_group(value: bytes) -> GroupMetadata:
    decoded = internal.decode_internal(GroupMetadataValue, value)
    return GroupMetadata(
        protocol_type=decoded.protocol_type,
        generation=decoded.generation,
        protocol=decoded.protocol,
        leader=decoded.leader,
        state_timestamp_ms=decoded.current_state_timestamp,
        members=tuple(
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout_ms=member.rebalance_timeout,
                session_timeout_ms=member.session_timeout,
                subscription=bytes(member.subscription),
                assignment=bytes(member.assignment),
            )
            for member in decoded.members
        ),
    )
