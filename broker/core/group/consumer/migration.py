"""A group goes over from the classic protocol to the consumer protocol and back, while its members work (KIP-848).

A classic group becomes a consumer group when a member joins with the consumer protocol. Its other members stay, with
the partitions that they have; `classic_members.py` speaks their protocol to them. When the last member of the consumer
protocol is gone, the group becomes a classic one again. Committed offsets stay where they are. What there is of the old
group is removed in the write that makes the new one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.consumer.change import GroupChange, Refused
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.member import (
    JOIN_EPOCH,
    ClassicMetadata,
    ConsumerMember,
    CurrentAssignment,
    Subscription,
    Target,
    with_epoch,
)
from raftlog.broker.core.group.consumer.records import (
    ConsumerGroupRecord,
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from raftlog.broker.core.group.effects import Effects, Reply
from raftlog.broker.core.group.member import NO_ASSIGNMENT, Member, MemoryBudget, Protocols
from raftlog.broker.core.group.rebalance import Rebalance
from raftlog.broker.core.group.records import GroupRecord
from raftlog.broker.core.group.responses import join_error, sync_error
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.subscription import CONSUMER_PROTOCOL_TYPE
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode, InvariantViolation, RemoteProtocolError
from raftlog.wire.internal import encode_internal, internal_version
from raftlog.wire.internal.consumer_protocol import (
    AssignmentTopicPartition,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
)

# --- to the consumer protocol


def open_group(shard: GroupCoordinatorShard, group_id: str, now: Now, effects: Effects, *, create: bool) -> GroupChange:
    """A change of the consumer group; with `create` of a new one, or of one that a classic group becomes. Raises
    Refused."""
    known = shard.groups.get(group_id)
    if isinstance(known, ConsumerGroup):
        return GroupChange(shard, known, now, effects)
    not_found = ErrorCode.GROUP_ID_NOT_FOUND
    if known is None:
        if not create:
            raise Refused(not_found, f"Consumer group {group_id} not found.")
        return GroupChange(shard, ConsumerGroup(group_id, MemoryBudget()), now, effects)
    if not create or not isinstance(known, ClassicGroup):
        raise Refused(not_found, f"Group {group_id} is not a consumer group.")
    if known.is_empty:
        change = GroupChange(shard, ConsumerGroup(group_id, MemoryBudget()), now, effects)
        change.records += known.removals()
        return change
    return _upgrade(shard, known, now, effects)


def _upgrade(shard: GroupCoordinatorShard, classic: ClassicGroup, now: Now, effects: Effects) -> GroupChange:
    """A classic group becomes a consumer group, its generation the epoch of everything. Raises Refused."""
    group_id = classic.group_id
    problem = _upgrade_problem(shard, classic)
    if problem is None:
        try:
            records = _as_consumer_group(classic, shard)
        except RemoteProtocolError as error:
            problem = f"the embedded consumer protocol is malformed ({error})"
    if problem is not None:
        text = f"Cannot upgrade classic group {group_id} to consumer group because {problem}."
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, text, f"does not become a consumer group: {problem}")
    group = ConsumerGroup(group_id, MemoryBudget())
    for record in records:
        group.replay(record)
    change = GroupChange(shard, group, now, effects)
    change.records += [*classic.removals(), *records]
    waiting = [
        Reply(ticket, response)
        for member in classic.members.values()
        for ticket, response in (
            (member.join_ticket, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)),
            (member.sync_ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS)),
        )
        if ticket is not None
    ]
    timeouts = {member.member_id: member.session_timeout_ms for member in classic.members.values()}
    change.appended = partial(_upgraded, shard, group_id, waiting=waiting, timeouts=timeouts)
    change.note(f"becomes a consumer group after generation {classic.generation}")
    return change


def _upgrade_problem(shard: GroupCoordinatorShard, classic: ClassicGroup) -> str | None:
    if not shard.config.migration_policy.may_upgrade:
        return "online upgrade is disabled"
    if not classic.uses_consumer_protocol:
        return "the group does not use the consumer embedded protocol"
    if len(classic.members) > shard.config.consumer_max_size:
        return "the group size exceeds the consumer group maximum size"
    for member in classic.members.values():
        if member.assignment and _has_user_data(member.assignment):
            return "an unsupported custom assignor is in use. Switch to a default assignor before the upgrade"
    return None


def _has_user_data(assignment: bytes) -> bool:
    """Whether an assignor of the clients' own has put something into the assignment, which would be lost."""
    try:
        return bool(decode_assignment(assignment).user_data)
    except RemoteProtocolError:
        return False


def _as_consumer_group(classic: ClassicGroup, shard: GroupCoordinatorShard) -> list[ConsumerGroupRecord]:
    """The records that make up the same group in the consumer protocol. Raises RemoteProtocolError."""
    group_id, image = classic.group_id, shard.image
    # A group that is about to have its first generation has none yet, and a member with epoch 0 is one that joins.
    epoch = max(classic.generation, JOIN_EPOCH + 1)
    members: list[ConsumerMember] = []
    said_by = {
        member.member_id: decode_subscription(_subscription_bytes(classic, member))
        for member in classic.members.values()
    }
    targets = _held(classic, said_by, image)
    for member in classic.members.values():
        said = said_by[member.member_id]
        subscription = Subscription(
            instance_id=member.group_instance_id,
            rack_id=said.rack_id or None,
            client_id=member.client_id,
            client_host=member.client_host,
            topics=frozenset(said.topics),
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
        )
        current = CurrentAssignment(epoch, epoch, assigned=with_epoch(targets[member.member_id], epoch))
        members.append(ConsumerMember(member.member_id, subscription, current))
    topics = {topic for member in members for topic in member.subscription.topics}
    group_epoch = GroupEpoch(epoch, shard.topic_hashes.of_topics(topics, image))
    return [
        *(MemberRecord(group_id, member.member_id, member.subscription) for member in members),
        GroupEpochRecord(group_id, group_epoch),
        *(TargetRecord(group_id, member_id, target) for member_id, target in targets.items()),
        TargetEpochRecord(group_id, TargetEpoch(epoch, 0)),
        *(CurrentRecord(group_id, member.member_id, member.current) for member in members),
    ]


def _held(
    classic: ClassicGroup, said_by: Mapping[str, ConsumerProtocolSubscription], image: MetadataImage
) -> dict[str, Target]:
    """What each member may be using: its assignment, or while that is being settled, what it said to have when it
    joined. Raises RemoteProtocolError, also when clients have assigned a partition twice."""
    held: dict[str, Target] = {}
    for member_id, member in classic.members.items():
        if member.assignment != NO_ASSIGNMENT:
            named = decode_assignment(member.assignment).assigned_partitions
            held[member_id] = _as_target(((each.topic, each.partitions) for each in named), image)
    taken = [(t, index) for target in held.values() for t, indexes in target.items() for index in indexes]
    seen = set(taken)
    if len(taken) != len(seen):
        raise RemoteProtocolError("a partition is assigned twice")
    for member_id, said in said_by.items():
        if member_id in held:
            continue
        claimed = _as_target(((each.topic, each.partitions) for each in said.owned_partitions), image)
        free = {t: tuple(index for index in indexes if (t, index) not in seen) for t, indexes in claimed.items()}
        held[member_id] = {t: indexes for t, indexes in free.items() if indexes}
        seen.update((t, index) for t, indexes in free.items() for index in indexes)
    return held


def _as_target(named: Iterable[tuple[str, Sequence[int]]], image: MetadataImage) -> Target:
    return {
        topic.topic_id: tuple(sorted(set(partitions)))
        for name, partitions in named
        if partitions and (topic := image.topics.get(name)) is not None
    }


def _subscription_bytes(classic: ClassicGroup, member: Member) -> bytes:
    """What the member said for the protocol of the group; before one is chosen, for its favourite."""
    protocols = dict(member.protocols)
    favourite = member.protocols[0][1] if member.protocols else b""
    return protocols.get(classic.protocol or "", favourite)


def _upgraded(
    shard: GroupCoordinatorShard,
    group_id: str,
    error: ErrorCode,
    now: Now,
    *,
    waiting: Sequence[Reply],
    timeouts: Mapping[str, int],
) -> Effects:
    """The group is a consumer group from now on: who waited in the classic one has to join again."""
    effects = Effects()
    if error is ErrorCode.NONE:
        effects.replies += waiting
        for member_id, session_timeout_ms in timeouts.items():
            timers = shard.timers_of(group_id, member_id)
            if not timers.session.is_set:
                shard.timers.set(timers.session, now.monotonic_ms + session_timeout_ms)
    return effects


# --- to the classic protocol


def is_left_to_classic_members(change: GroupChange, leaving: Collection[ConsumerMember]) -> bool:
    """Whether without these members the group becomes a classic one: nobody of the consumer protocol is left."""
    group = change.group
    left = len(group.members) - len(leaving)
    classic = group.classic_members_count - sum(member.uses_classic_protocol for member in leaving)
    return left > 0 and classic == left and _may_downgrade(change, left)


def is_downgraded_by(change: GroupChange, replaced: ConsumerMember) -> bool:
    """Whether the group becomes a classic one when a member of the classic protocol takes the place of this static
    member, the last one of the consumer protocol."""
    group = change.group
    if replaced.uses_classic_protocol or group.classic_members_count != len(group.members) - 1:
        return False
    return _may_downgrade(change, len(group.members))


def _may_downgrade(change: GroupChange, members: int) -> bool:
    config = change.shard.config
    if not config.migration_policy.may_downgrade:
        change.note("stays a consumer group: online downgrade is disabled")
        return False
    if members > config.max_size:
        change.note(f"stays a consumer group: {members} members are more than group.max.size, {config.max_size}")
        return False
    return True


def downgrade(
    change: GroupChange,
    leaving: Collection[ConsumerMember],
    joining: ConsumerMember | None,
    rebalance_reason: str | None,
) -> None:
    """The records by which the group becomes a classic one without the members that are leaving. `joining` has taken
    the place of a static member, in `change.records` already. With a reason its members have to join again."""
    shard, group = change.shard, change.group
    gone = {member.member_id: None for member in leaving}
    members = [member for member in group.members.values() if member.member_id not in gone]
    if joining is not None:
        replaced = group.static_member(joining.instance_id)
        assert replaced is not None
        members = [joining if member is replaced else member for member in members]
    # Whatever was to be changed in the consumer group does not come to be.
    change.records = [*group.removals(), _as_classic_group(change, members)]
    change.effects.rebalances.clear()
    protocols = {member.member_id: _classic(member).protocols for member in members}
    change.appended = partial(
        _downgraded, shard, group.group_id, protocols=protocols, rebalance_reason=rebalance_reason
    )
    change.note(f"becomes a classic group after group epoch {group.epoch.epoch}")


def _classic(member: ConsumerMember) -> ClassicMetadata:
    metadata = member.subscription.classic
    if metadata is None:
        raise InvariantViolation(f"member {member.member_id} does not use the classic protocol")
    return metadata


def _as_classic_group(change: GroupChange, members: Sequence[ConsumerMember]) -> GroupRecord:
    """The record of a stable classic group, in which each member has what it may be using. Kafka gives it what it was
    to have; who is not there yet learns nothing of that, and others could be given what it still has."""
    group_id = change.group.group_id
    classic = ClassicGroup(group_id, MemoryBudget())
    for member in members:
        metadata, said = _classic(member), member.subscription
        classic.add(
            Member(
                group_id,
                member.member_id,
                group_instance_id=said.instance_id,
                client_id=said.client_id,
                client_host=said.client_host,
                rebalance_timeout_ms=said.rebalance_timeout_ms,
                session_timeout_ms=metadata.session_timeout_ms,
                protocols=metadata.protocols,
            ),
            CONSUMER_PROTOCOL_TYPE,
        )
    classic.generation = change.group.epoch.epoch
    classic.protocol = protocol = classic.select_protocol()
    classic.state_timestamp_ms = change.now.wall_ms
    assignments = {
        member.member_id: encode_assignment(
            _all_of(member.current), classic.members[member.member_id].metadata(protocol), change.shard.image
        )
        for member in members
    }
    return GroupRecord(group_id, classic.metadata(assignments))


def _all_of(current: CurrentAssignment) -> dict[bytes, list[int]]:
    held: dict[bytes, list[int]] = {}
    for owned in (current.assigned, current.revoking):
        for topic_id, partitions in owned.items():
            held.setdefault(topic_id, []).extend(partitions)
    return held


def encode_assignment(partitions: Mapping[bytes, Iterable[int]], subscription: bytes, image: MetadataImage) -> bytes:
    """An assignment as the clients of the classic protocol write it, in the version of the member's subscription."""
    topics = []
    for topic_id in sorted(partitions):
        topic = image.topics_by_id.get(topic_id)
        if topic is not None:
            topics.append(AssignmentTopicPartition(topic=topic.name, partitions=sorted(partitions[topic_id])))
    versions = ConsumerProtocolAssignment.versions
    try:
        version = min(max(internal_version(subscription), versions.first), versions.last)
    except RemoteProtocolError:
        version = versions.first
    return bytes(encode_internal(ConsumerProtocolAssignment(assigned_partitions=topics), version))


def _downgraded(
    shard: GroupCoordinatorShard,
    group_id: str,
    error: ErrorCode,
    now: Now,
    *,
    protocols: Mapping[str, Protocols],
    rebalance_reason: str | None,
) -> Effects:
    """The group is a classic group from now on, of which the log knows one protocol of each member."""
    effects = Effects()
    group = shard.classic(group_id)
    if error is not ErrorCode.NONE or group is None:
        return effects
    shard.restore(group, now)
    for member_id, said in protocols.items():
        member = group.members[member_id]
        group.update(
            member,
            said,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            session_timeout_ms=member.session_timeout_ms,
        )
    if rebalance_reason is not None:
        Rebalance(shard, group, now, effects).prepare(rebalance_reason)
    return effects
