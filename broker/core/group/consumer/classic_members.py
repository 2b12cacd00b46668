"""Members that speak the classic protocol in a consumer group (KIP-848): for them an epoch is a generation, JoinGroup a
heartbeat, and an epoch that has moved on a rebalance in progress.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.caller import Caller
from raftlog.broker.core.group.config import MigrationPolicy
from raftlog.broker.core.group.consumer.change import GroupChange, Refused
from raftlog.broker.core.group.consumer.fencing import fence_members
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.heartbeat import find_static, unknown_member
from raftlog.broker.core.group.consumer.member import (
    ClassicMetadata,
    ConsumerMember,
    Subscription,
)
from raftlog.broker.core.group.consumer.migration import downgrade, encode_assignment, is_downgraded_by
from raftlog.broker.core.group.consumer.reconciliation import ClaimedPartitions
from raftlog.broker.core.group.consumer.records import MemberRecord
from raftlog.broker.core.group.consumer.regexes import RegexChange, change_regex, refresh_regexes
from raftlog.broker.core.group.consumer.state import MemberState
from raftlog.broker.core.group.effects import DeferredResponse, Effects
from raftlog.broker.core.group.member import Protocols, Ticket
from raftlog.broker.core.group.responses import join_error, leave_error, sync_error
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.subscription import CONSUMER_PROTOCOL_TYPE
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.internal.consumer_protocol import ConsumerProtocolSubscription, decode_subscription
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from raftlog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

# From this version on a client joins twice: first for an id, then with it (KIP-394).
MEMBER_ID_REQUIRED_FROM = 4


# --- JoinGroup


def join_consumer_group(
    change: GroupChange, request: JoinGroupRequest, caller: Caller, ticket: Ticket, protocols: Protocols
) -> None:
    """Take a JoinGroup, which is answered when what it leads to is committed: nobody is waited for."""
    effects = change.effects
    try:
        response = _join(change, request, caller, protocols)
    except Refused as refusal:
        effects.notes.clear()
        effects.rebalances.clear()
        if refusal.note is not None:
            change.note(refusal.note)
        effects.reply(ticket, join_error(refusal.error))
        return
    if response.error_code:
        effects.reply(ticket, response)
    else:
        effects.write(tuple(change.records), DeferredResponse(ticket, response, join_error), change.appended)


def _join(change: GroupChange, request: JoinGroupRequest, caller: Caller, protocols: Protocols) -> JoinGroupResponse:
    shard, group = change.shard, change.group
    if shard.config.migration_policy is MigrationPolicy.DISABLED:
        text = f"Cannot join the consumer group {group.group_id} with the classic protocol: migration is disabled."
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, text)
    member_id, instance_id = request.member_id or caller.random_id, request.group_instance_id
    change.check_room(shard.config.consumer_max_size, member_id, instance_id)
    _check_protocols(group, request.protocol_type, protocols)
    if not request.member_id and instance_id is None and caller.api_version >= MEMBER_ID_REQUIRED_FROM:
        return join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    said = _read_subscription(protocols)
    replaced = group.static_member(instance_id)
    before = _find_joining(change, member_id, instance_id, is_new=not request.member_id)
    after = before._replace(subscription=_updated_subscription(before, request, caller, protocols, said))
    downgrades = replaced is not None and is_downgraded_by(change, replaced)
    is_new = member_id not in group.members
    if is_new or before.subscription != after.subscription:
        change.check_memory(member_id, before.subscription, after.subscription)
        change.records.append(MemberRecord(group.group_id, member_id, after.subscription))
    regex_change = change_regex(change, before.subscription, after.subscription)
    refresh_regexes(change, before.subscription, after.subscription)
    changed = before.subscription.topics != after.subscription.topics or regex_change is not RegexChange.NONE
    reason = f"member {member_id} joins with the classic protocol" if changed else None
    if changed or group.needs_metadata_check():
        change.check_metadata(before.subscription, after.subscription, reason)
    claimed = _claimed(said, shard.image)
    if downgrades:
        epoch = group.target_epoch.epoch
        rebalances = epoch < change.group_epoch
        if not rebalances:
            target = epoch, group.target_of(replaced.member_id if replaced is not None else "")
            after = change.reconcile(after, target, claimed, subscription_changed=changed)
            # Nobody would be given later, in a classic group that is stable, what is not free yet.
            members = [after if member is replaced else member for member in group.members.values()]
            if not all(member.current.is_reconciled_to(epoch) for member in members):
                rebalances, reason = True, reason or "not all members have all their partitions yet"
        downgrade(change, [], after, reason or "topics have changed" if rebalances else None)
    else:
        target = change.update_target(before, after)
        after = change.reconcile(after, target, claimed, subscription_changed=changed)
        timers = shard.timers_of(group.group_id, member_id)
        now_ms = change.now.monotonic_ms
        timers.join.cancel()
        shard.timers.set(timers.session, now_ms + request.session_timeout_ms)
        shard.timers.set(timers.sync, now_ms + after.subscription.rebalance_timeout_ms)
    return JoinGroupResponse(
        member_id=member_id,
        generation_id=after.epoch,
        protocol_type=CONSUMER_PROTOCOL_TYPE,
        protocol_name=protocols[0][0],
    )


def _check_protocols(group: ConsumerGroup, protocol_type: str, protocols: Protocols) -> None:
    supported = group.classic_protocols
    count = group.classic_members_count
    fits = any(supported[name] == count for name, _ in protocols)
    if protocol_type != CONSUMER_PROTOCOL_TYPE or not fits:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "The member's protocols are not supported.")


def _read_subscription(protocols: Protocols) -> ConsumerProtocolSubscription:
    try:
        return decode_subscription(protocols[0][1])
    except RemoteProtocolError as error:
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"Malformed subscription: {error}") from None


def _find_joining(change: GroupChange, member_id: str, instance_id: str | None, *, is_new: bool) -> ConsumerMember:
    group = change.group
    if instance_id is None:
        return group.members.get(member_id) or ConsumerMember(member_id)
    if not is_new:
        return find_static(group, instance_id, member_id)
    static = group.static_member(instance_id)
    if static is None:
        return ConsumerMember(member_id)
    change.note(f"static member {instance_id} is back: {member_id} in place of {static.member_id}")
    return change.replace_static(static, member_id)


def _updated_subscription(
    before: ConsumerMember,
    request: JoinGroupRequest,
    caller: Caller,
    protocols: Protocols,
    said: ConsumerProtocolSubscription,
) -> Subscription:
    known, timeout_ms = before.subscription, request.rebalance_timeout_ms
    return Subscription(
        instance_id=known.instance_id if request.group_instance_id is None else request.group_instance_id,
        rack_id=said.rack_id or known.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=frozenset(said.topics),
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else request.session_timeout_ms,
        assignor=known.assignor,
        classic=ClassicMetadata(request.session_timeout_ms, protocols),
    )


def _claimed(said: ConsumerProtocolSubscription, image: MetadataImage) -> ClaimedPartitions:
    """What the member says to have; eager members give up everything before they join, and say nothing."""
    claimed: dict[bytes, set[int]] = {}
    for owned in said.owned_partitions:
        topic = image.topics.get(owned.topic)
        if topic is not None and owned.partitions:
            claimed.setdefault(topic.topic_id, set()).update(owned.partitions)
    return claimed


# --- SyncGroup, Heartbeat, LeaveGroup


def sync_consumer_group(
    shard: GroupCoordinatorShard, group: ConsumerGroup, request: SyncGroupRequest, ticket: Ticket, now: Now
) -> Effects:
    """Take a SyncGroup: the member is told what it has, once that is committed."""
    effects = Effects()
    try:
        member, metadata = _find_classic(group, request.member_id, request.group_instance_id, request.generation_id)
        said_type, said_name = request.protocol_type, request.protocol_name
        if said_type not in (None, CONSUMER_PROTOCOL_TYPE) or said_name not in (None, metadata.protocols[0][0]):
            raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "This is not the protocol that was chosen.")
        _check_epoch(shard, group, member, now)
    except Refused as refusal:
        effects.reply(ticket, sync_error(refusal.error))
        return effects
    timers = shard.timers_of(group.group_id, member.member_id)
    timers.sync.cancel()
    shard.timers.set(timers.session, now.monotonic_ms + metadata.session_timeout_ms)
    response = SyncGroupResponse(
        protocol_type=request.protocol_type,
        protocol_name=request.protocol_name,
        assignment=encode_assignment(member.current.assigned, metadata.protocols[0][1], shard.image),
    )
    effects.write((), DeferredResponse(ticket, response, sync_error))
    return effects


def _find_classic(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    """The member, which is in this generation. Raises Refused."""
    if instance_id is not None:
        member = find_static(group, instance_id, member_id)
    elif member_id in group.members:
        member = group.members[member_id]
    else:
        raise unknown_member(group, member_id)
    metadata = member.subscription.classic
    if metadata is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} does not use the classic protocol.")
    if generation != member.epoch:
        raise Refused(ErrorCode.ILLEGAL_GENERATION, f"Member {member_id} is in generation {member.epoch}.")
    return member, metadata


def _check_epoch(
    shard: GroupCoordinatorShard,
    group: ConsumerGroup,
    member: ConsumerMember,
    now: Now,
) -> None:
    is_behind = group.target_epoch.epoch > member.epoch
    if is_behind and member.current.state is not MemberState.UNREVOKED_PARTITIONS:
        _await_join(shard, group, member, now)
        raise Refused(ErrorCode.REBALANCE_IN_PROGRESS, "There is a newer assignment.")


def _await_join(shard: GroupCoordinatorShard, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
    """The member has to join again within its rebalance time-out, counted from the first time that it hears of it."""
    timer = shard.timers_of(group.group_id, member.member_id).join
    if not timer.is_set:
        shard.timers.set(timer, now.monotonic_ms + member.subscription.rebalance_timeout_ms)


def beat_in_consumer_group(
    shard: GroupCoordinatorShard, group: ConsumerGroup, request: HeartbeatRequest, now: Now
) -> ErrorCode:
    """Take a Heartbeat: the member is told to join again when there is something new for it."""
    try:
        member, metadata = _find_classic(group, request.member_id, request.group_instance_id, request.generation_id)
    except Refused as refusal:
        return refusal.error
    timers = shard.timers_of(group.group_id, member.member_id)
    shard.timers.set(timers.session, now.monotonic_ms + metadata.session_timeout_ms)
    match member.current.state:
        case MemberState.UNREVOKED_PARTITIONS:
            must_rejoin = True
        case MemberState.UNRELEASED_PARTITIONS:
            must_rejoin = not group.is_waiting_for_partitions(member)
        case MemberState.STABLE | MemberState.UNKNOWN:
            must_rejoin = False
        case _:
            assert_never(member.current.state)
    is_up_to_date = member.epoch >= group.target_epoch.epoch and not _lacks_assigner(shard, group, now)
    if not must_rejoin and is_up_to_date:
        return ErrorCode.NONE
    _await_join(shard, group, member, now)
    return ErrorCode.REBALANCE_IN_PROGRESS


def _lacks_assigner(shard: GroupCoordinatorShard, group: ConsumerGroup, now: Now) -> bool:
    """Whether a new target is needed, and nobody but a member of the classic protocol that joins can have it computed:
    where a group may not become a classic one, nobody of the consumer protocol may be left."""
    if group.classic_members_count < len(group.members) or group.group_id in shard.assigning:
        return False
    if group.needs_metadata_check():
        if shard.topic_hashes.of_topics(group.topic_subscribers, shard.image) != group.epoch.metadata_hash:
            return True
        group.checked_epoch = group.epoch.epoch
    return group.target_epoch.epoch < group.epoch.epoch and not shard.puts_off_assignment(group, now)


def leave_consumer_group(change: GroupChange, identities: Sequence[MemberIdentity], ticket: Ticket) -> None:
    """Take a LeaveGroup: members of either protocol go, or an administrator removes them."""
    group = change.group
    answers: list[MemberResponse] = []
    leaving: dict[str, ConsumerMember] = {}
    for identity in identities:
        error = ErrorCode.NONE
        try:
            member = _find_leaving(group, identity)
            leaving[member.member_id] = member
        except Refused as refusal:
            error = refusal.error
        answers.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=error)
        )
    fence_members(change, list(leaving.values()), f"members leave: {', '.join(leaving)}")
    response = LeaveGroupResponse(members=answers)
    change.effects.write(tuple(change.records), DeferredResponse(ticket, response, leave_error), change.appended)


def _find_leaving(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    instance_id, member_id = identity.group_instance_id, identity.member_id
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown_member(group, member_id)
        return member
    if member_id:
        return find_static(group, instance_id, member_id)
    # An administrator removes a static member, whose member id nobody outside knows.
    static = group.static_member(instance_id)
    if static is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    return static
