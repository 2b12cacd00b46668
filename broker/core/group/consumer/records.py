"""What a consumer group leaves in `__consumer_offsets` (KIP-848), as values and as bytes; the formats are Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from raftlog.broker.core.group.consumer.member import (
    ClassicMetadata,
    CurrentAssignment,
    Owned,
    Subscription,
    Target,
)
from raftlog.broker.core.group.consumer.state import MemberState
from raftlog.wire import internal
from raftlog.wire.internal import consumer_group as wire
from raftlog.wire.schema import Message


class GroupEpoch(NamedTuple):
    """Counts what a new target assignment is needed for. The hash is over all that the members consume (KIP-1101)."""

    epoch: int
    metadata_hash: int


class TargetEpoch(NamedTuple):
    """The group epoch that the target assignment is for, and when it was computed (ms since 1970; 0: not known)."""

    epoch: int
    computed_ms: int


class ResolvedRegex(NamedTuple):
    """The topics that a pattern matched, by the metadata of `version`, at `resolved_ms` since 1970."""

    topics: frozenset[str]
    version: int
    resolved_ms: int


class GroupEpochRecord(NamedTuple):
    """The group is there; with None it is removed, after all the records below."""

    group_id: str
    value: GroupEpoch | None


class PartitionMetadataRecord(NamedTuple):
    """Kafka 4.0 kept what the hash stands for; we only remove it. `value` says whether it is there."""

    group_id: str
    value: bool | None


class MemberRecord(NamedTuple):
    """What a member says of itself, or with None the removal of the member, after the two records below."""

    group_id: str
    member_id: str
    value: Subscription | None


class TargetEpochRecord(NamedTuple):
    """A target assignment is complete, or with None, there is none."""

    group_id: str
    value: TargetEpoch | None


class TargetRecord(NamedTuple):
    """What a member is to have."""

    group_id: str
    member_id: str
    value: Target | None


class CurrentRecord(NamedTuple):
    """What a member has."""

    group_id: str
    member_id: str
    value: CurrentAssignment | None


class RegexRecord(NamedTuple):
    """What a pattern matches."""

    group_id: str
    regex: str
    value: ResolvedRegex | None


ConsumerGroupRecord = (
    GroupEpochRecord
    | PartitionMetadataRecord
    | MemberRecord
    | TargetEpochRecord
    | TargetRecord
    | CurrentRecord
    | RegexRecord
)


# --- writing


def encode_consumer_record(record: ConsumerGroupRecord) -> tuple[bytes, bytes | None]:
    """Key and value; the value of a removal is None."""
    key, value = _as_messages(record)
    return internal.encode_internal(key, key.versions.last), None if value is None else internal.encode_internal(
        value, 0
    )


def _as_messages(record: ConsumerGroupRecord) -> tuple[Message, Message | None]:
    key: Message
    match record:
        case GroupEpochRecord(group_id, epoch):
            key = wire.ConsumerGroupMetadataKey(group_id=group_id)
            return key, None if epoch is None else wire.ConsumerGroupMetadataValue(
                epoch=epoch.epoch, metadata_hash=epoch.metadata_hash
            )
        case PartitionMetadataRecord(group_id, is_there):
            key = wire.ConsumerGroupPartitionMetadataKey(group_id=group_id)
            return key, wire.ConsumerGroupPartitionMetadataValue() if is_there else None
        case MemberRecord(group_id, member_id, subscription):
            key = wire.ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
            return key, None if subscription is None else _subscription_message(subscription)
        case TargetEpochRecord(group_id, target_epoch):
            key = wire.ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)
            return key, None if target_epoch is None else wire.ConsumerGroupTargetAssignmentMetadataValue(
                assignment_epoch=target_epoch.epoch, assignment_timestamp=target_epoch.computed_ms
            )
        case TargetRecord(group_id, member_id, target):
            key = wire.ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)
            return key, None if target is None else _target_message(target)
        case CurrentRecord(group_id, member_id, current):
            key = wire.ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)
            return key, None if current is None else _current_message(current)
        case RegexRecord(group_id, regex, resolved):
            key = wire.ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex)
            return key, None if resolved is None else wire.ConsumerGroupRegularExpressionValue(
                topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.resolved_ms
            )


def _subscription_message(value: Subscription) -> Message:
    classic = value.classic
    return wire.ConsumerGroupMemberMetadataValue(
        instance_id=value.instance_id,
        rack_id=value.rack_id,
        client_id=value.client_id,
        client_host=value.client_host,
        subscribed_topic_names=sorted(value.topics),
        subscribed_topic_regex=value.regex,
        rebalance_timeout_ms=value.rebalance_timeout_ms,
        server_assignor=value.assignor,
        classic_member_metadata=None
        if classic is None
        else wire.ClassicMemberMetadata(
            session_timeout_ms=classic.session_timeout_ms,
            supported_protocols=[wire.ClassicProtocol(name=name, metadata=data) for name, data in classic.protocols],
        ),
    )


def _target_message(target: Target) -> Message:
    return wire.ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=[
            wire.TopicPartition(topic_id=topic_id, partitions=list(partitions))
            for topic_id, partitions in sorted(target.items())
        ]
    )


def _current_message(value: CurrentAssignment) -> Message:
    return wire.ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=value.epoch,
        previous_member_epoch=value.previous_epoch,
        state=value.state,
        assigned_partitions=_owned_message(value.assigned),
        partitions_pending_revocation=_owned_message(value.revoking),
    )


def _owned_message(owned: Owned) -> list[wire.TopicPartitions]:
    topics = []
    for topic_id in sorted(owned):
        epochs = owned[topic_id]
        partitions = sorted(epochs)
        topics.append(
            wire.TopicPartitions(
                topic_id=topic_id, partitions=partitions, assignment_epochs=[epochs[index] for index in partitions]
            )
        )
    return topics


# --- reading


def decode_consumer_record(kind: int, key: bytes, value: bytes | None) -> ConsumerGroupRecord | None:
    """The record of a key that begins with `kind`, or None when that is no kind of this protocol.

    Raises RemoteProtocolError.
    """
    reader = _READERS.get(kind)
    return None if reader is None else reader(key, value)


def _read_group_epoch(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    group_id = internal.decode_internal(wire.ConsumerGroupMetadataKey, key).group_id
    if value is None:
        return GroupEpochRecord(group_id, None)
    read = internal.decode_internal(wire.ConsumerGroupMetadataValue, value)
    return GroupEpochRecord(group_id, GroupEpoch(read.epoch, read.metadata_hash))


def _read_partition_metadata(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    group_id = internal.decode_internal(wire.ConsumerGroupPartitionMetadataKey, key).group_id
    return PartitionMetadataRecord(group_id, None if value is None else True)


def _read_member(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    named = internal.decode_internal(wire.ConsumerGroupMemberMetadataKey, key)
    if value is None:
        return MemberRecord(named.group_id, named.member_id, None)
    read = internal.decode_internal(wire.ConsumerGroupMemberMetadataValue, value)
    classic = read.classic_member_metadata
    subscription = Subscription(
        instance_id=read.instance_id,
        rack_id=read.rack_id,
        client_id=read.client_id,
        client_host=read.client_host,
        topics=frozenset(read.subscribed_topic_names),
        regex=read.subscribed_topic_regex,
        rebalance_timeout_ms=read.rebalance_timeout_ms,
        assignor=read.server_assignor,
        classic=None
        if classic is None
        else ClassicMetadata(
            classic.session_timeout_ms,
            tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
        ),
    )
    return MemberRecord(named.group_id, named.member_id, subscription)


def _read_target_epoch(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    group_id = internal.decode_internal(wire.ConsumerGroupTargetAssignmentMetadataKey, key).group_id
    if value is None:
        return TargetEpochRecord(group_id, None)
    read = internal.decode_internal(wire.ConsumerGroupTargetAssignmentMetadataValue, value)
    return TargetEpochRecord(group_id, TargetEpoch(read.assignment_epoch, read.assignment_timestamp))


def _read_target(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    named = internal.decode_internal(wire.ConsumerGroupTargetAssignmentMemberKey, key)
    if value is None:
        return TargetRecord(named.group_id, named.member_id, None)
    read = internal.decode_internal(wire.ConsumerGroupTargetAssignmentMemberValue, value)
    target = {topic.topic_id: tuple(sorted(topic.partitions)) for topic in read.topic_partitions}
    return TargetRecord(named.group_id, named.member_id, target)


def _read_current(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    named = internal.decode_internal(wire.ConsumerGroupCurrentMemberAssignmentKey, key)
    if value is None:
        return CurrentRecord(named.group_id, named.member_id, None)
    read = internal.decode_internal(wire.ConsumerGroupCurrentMemberAssignmentValue, value)
    # Before KIP-1251 the epoch of a partition was the member's; that of a static member that is away is below zero.
    epoch = max(read.member_epoch, 0)
    current = CurrentAssignment(
        read.member_epoch,
        read.previous_member_epoch,
        MemberState(read.state) if read.state in _MEMBER_STATES else MemberState.UNKNOWN,
        _read_owned(read.assigned_partitions, epoch),
        _read_owned(read.partitions_pending_revocation, epoch),
    )
    return CurrentRecord(named.group_id, named.member_id, current)


_MEMBER_STATES = frozenset(MemberState)


def _read_owned(topics: Sequence[wire.TopicPartitions], default_epoch: int) -> Owned:
    owned = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [default_epoch] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _read_regex(key: bytes, value: bytes | None) -> ConsumerGroupRecord:
    named = internal.decode_internal(wire.ConsumerGroupRegularExpressionKey, key)
    if value is None:
        return RegexRecord(named.group_id, named.regular_expression, None)
    read = internal.decode_internal(wire.ConsumerGroupRegularExpressionValue, value)
    resolved = ResolvedRegex(frozenset(read.topics), read.version, read.timestamp)
    return RegexRecord(named.group_id, named.regular_expression, resolved)


_READERS: dict[int, Callable[[bytes, bytes | None], ConsumerGroupRecord]] = {
    wire.ConsumerGroupMetadataKey.versions.last: _read_group_epoch,
    wire.ConsumerGroupPartitionMetadataKey.versions.last: _read_partition_metadata,
    wire.ConsumerGroupMemberMetadataKey.versions.last: _read_member,
    wire.ConsumerGroupTargetAssignmentMetadataKey.versions.last: _read_target_epoch,
    wire.ConsumerGroupTargetAssignmentMemberKey.versions.last: _read_target,
    wire.ConsumerGroupCurrentMemberAssignmentKey.versions.last: _read_current,
    wire.ConsumerGroupRegularExpressionKey.versions.last: _read_regex,
}
