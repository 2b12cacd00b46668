"""ConsumerGroupHeartbeat: a member joins, stays, changes its subscription, moves on in its assignment, or leaves.

KIP-848, KIP-1082 (the client makes its member id).
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.caller import Caller
from raftlog.broker.core.group.consumer.change import GroupChange, Refused
from raftlog.broker.core.group.consumer.fencing import fence_members
from raftlog.broker.core.group.consumer.group import ConsumerGroup
from raftlog.broker.core.group.consumer.intervals import heartbeat_interval_ms
from raftlog.broker.core.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    NOTHING,
    ConsumerMember,
    Owned,
    Subscription,
)
from raftlog.broker.core.group.consumer.migration import open_group
from raftlog.broker.core.group.consumer.reconciliation import ClaimedPartitions
from raftlog.broker.core.group.consumer.records import CurrentRecord, MemberRecord
from raftlog.broker.core.group.consumer.regexes import RegexChange, change_regex, refresh_regexes
from raftlog.broker.core.group.effects import DeferredResponse, Effects
from raftlog.broker.core.group.member import Ticket
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)

# From this version on the client makes its member id (KIP-1082).
OWN_MEMBER_ID_FROM = 1
NOT_GIVEN = -1


def heartbeat_error(error: ErrorCode, message: str | None = None) -> ConsumerGroupHeartbeatResponse:
    """A refused heartbeat."""
    return ConsumerGroupHeartbeatResponse(error_code=error, error_message=error.message if message is None else message)


def consumer_heartbeat(
    shard: GroupCoordinatorShard, request: ConsumerGroupHeartbeatRequest, caller: Caller, ticket: Ticket, now: Now
) -> Effects:
    """Take a heartbeat; it is answered when all is committed that the answer rests on."""
    effects = Effects()
    try:
        check_request(request, caller.api_version, shard.config.consumer_assignors)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            change, response = _leave(shard, request, now, effects)
        else:
            change, response = _stay(shard, request, caller, now, effects)
    except Refused as refusal:
        # What was noted on the way has not come to be.
        effects = Effects()
        if refusal.note is not None:
            effects.notes.append((request.group_id, refusal.note))
        effects.reply(ticket, heartbeat_error(refusal.error, refusal.message))
        return effects
    effects.write(tuple(change.records), DeferredResponse(ticket, response, heartbeat_error), change.appended)
    return effects


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, assignors: Sequence[str]) -> None:
    """Raises Refused when the request contradicts itself, whatever the group is."""
    epoch = request.member_epoch
    if api_version >= OWN_MEMBER_ID_FROM or epoch > JOIN_EPOCH or epoch == LEAVE_EPOCH:
        _check_text(request.member_id, "MemberId")
    _check_text(request.group_id, "GroupId")
    _check_text(request.instance_id, "InstanceId")
    _check_text(request.rack_id, "RackId")
    invalid = ErrorCode.INVALID_REQUEST
    if epoch == JOIN_EPOCH:
        if request.rebalance_timeout_ms == NOT_GIVEN:
            raise Refused(invalid, "RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise Refused(invalid, "TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise Refused(
                invalid, "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
        raise Refused(invalid, "InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise Refused(invalid, "MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise Refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {', '.join(assignors)}.",
        )


def _check_text(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise Refused(ErrorCode.INVALID_REQUEST, f"{name} can't be empty.")


# --- staying


def _stay(
    shard: GroupCoordinatorShard,
    request: ConsumerGroupHeartbeatRequest,
    caller: Caller,
    now: Now,
    effects: Effects,
) -> tuple[GroupChange, ConsumerGroupHeartbeatResponse]:
    joins = request.member_epoch == JOIN_EPOCH
    change = open_group(shard, request.group_id, now, effects, create=joins)
    group = change.group
    change.check_room(shard.config.consumer_max_size, request.member_id, request.instance_id)
    member_id = request.member_id or caller.random_id
    claimed = _claimed(request.topic_partitions)
    before = _find_member(change, request, member_id, claimed, joins=joins)
    after = before._replace(subscription=_updated_subscription(before, request, caller))
    is_new = member_id not in group.members
    names_changed = before.subscription.topics != after.subscription.topics
    if is_new or before.subscription != after.subscription:
        change.check_memory(member_id, before.subscription, after.subscription)
        change.records.append(MemberRecord(group.group_id, member_id, after.subscription))
    regex_change = change_regex(change, before.subscription, after.subscription)
    refresh_regexes(change, before.subscription, after.subscription)
    reason = None
    if names_changed or regex_change is RegexChange.RESOLVED:
        reason = f"member {member_id} {'joins' if joins else 'has changed its subscription'}"
    rejoins = joins and bool(before.current.assigned) and before.epoch != JOIN_EPOCH
    if rejoins:
        # It has given up what it had: what it was about to commit in its epoch must not count in the next one.
        reason = reason or f"member {member_id} joins again"
    if reason is not None or group.needs_metadata_check():
        change.check_metadata(before.subscription, after.subscription, reason)
    target = change.update_target(before, after, rejoins=rejoins)
    after = change.reconcile(
        after,
        target,
        claimed,
        subscription_changed=names_changed or regex_change is not RegexChange.NONE,
        # In an earlier epoch it has not heard yet of what it was given in this one.
        claim_is_certain=joins or request.member_epoch < before.epoch,
        joins=joins,
    )
    settings = shard.consumer_settings(group.group_id)
    shard.timers.set(shard.timers_of(group.group_id, member_id).session, now.monotonic_ms + settings.session_timeout_ms)
    interval_ms = heartbeat_interval_ms(group, member_id, settings)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member_id, member_epoch=after.epoch, heartbeat_interval_ms=interval_ms
    )
    if joins or _is_full(request) or before.current.assigned != after.current.assigned:
        response.assignment = _assignment(after.current.assigned)
    return change, response


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Whether the member says all of itself, as it does when it may have missed an answer."""
    has_subscription = request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    return request.rebalance_timeout_ms != NOT_GIVEN and has_subscription and request.topic_partitions is not None


def _claimed(topics: Sequence[ConsumerGroupHeartbeatRequestTopicPartitions] | None) -> ClaimedPartitions | None:
    if topics is None:
        return None
    claimed: dict[bytes, set[int]] = {}
    for topic in topics:
        if topic.partitions:
            claimed.setdefault(topic.topic_id, set()).update(topic.partitions)
    return claimed


def _find_member(
    change: GroupChange,
    request: ConsumerGroupHeartbeatRequest,
    member_id: str,
    claimed: ClaimedPartitions | None,
    *,
    joins: bool,
) -> ConsumerMember:
    """The member as the group knows it, or will once `change.records` are in the log. Raises Refused."""
    group, instance_id = change.group, request.instance_id
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            if joins:
                change.note(f"member {member_id} joins with the consumer protocol")
                return ConsumerMember(member_id)
            raise unknown_member(group, member_id)
        check_epoch(member, request.member_epoch, claimed)
        return member
    static = group.static_member(instance_id)
    if joins:
        if static is None:
            change.note(f"static member {member_id}, {instance_id}, joins with the consumer protocol")
            return group.members.get(member_id) or ConsumerMember(member_id)
        if not static.uses_classic_protocol and static.epoch != LEAVE_STATIC_EPOCH:
            if static.member_id == member_id:
                # It has missed the answer to its first heartbeat, or was fenced. Kafka refuses it, and consumers end.
                return static
            raise Refused(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group because the instance"
                f" id is owned by {static.member_id} member.",
            )
        change.note(f"static member {instance_id} is back: {member_id} in place of {static.member_id}")
        return change.replace_static(static, member_id)
    static = find_static(group, instance_id, member_id)
    check_epoch(static, request.member_epoch, claimed)
    return static


def unknown_member(group: ConsumerGroup, member_id: str) -> Refused:
    """What somebody is told who is not a member."""
    return Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")


def find_static(group: ConsumerGroup, instance_id: str, member_id: str) -> ConsumerMember:
    """The static member. Raises Refused when there is none, or it has another member id by now."""
    static = group.static_member(instance_id)
    if static is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
    if static.member_id != member_id:
        raise Refused(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member {static.member_id}.",
        )
    return static


def check_epoch(member: ConsumerMember, epoch: int, claimed: ClaimedPartitions | None) -> None:
    """Raises Refused unless the member is in its epoch, or joins again, or is in the one before and has nothing that is
    not its own: it has missed the answer that told it of the next one."""
    if epoch in (JOIN_EPOCH, member.epoch):
        return
    if epoch == member.current.previous_epoch < member.epoch and _owns_all(claimed, member.current.assigned):
        return
    which = "greater" if epoch > member.epoch else "smaller"
    raise Refused(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {which} member epoch ({epoch}) than the one known by the group coordinator"
        f" ({member.epoch}). The member must abandon all its partitions and rejoin.",
    )


def _owns_all(claimed: ClaimedPartitions | None, owned: Owned) -> bool:
    return claimed is not None and all(
        topic_id in owned and claimed[topic_id] <= owned[topic_id].keys() for topic_id in claimed
    )


def _updated_subscription(
    before: ConsumerMember, request: ConsumerGroupHeartbeatRequest, caller: Caller
) -> Subscription:
    """What the member says of itself from now on: what it does not say, stays."""
    known = before.subscription
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return Subscription(
        instance_id=known.instance_id if request.instance_id is None else request.instance_id,
        rack_id=known.rack_id if request.rack_id is None else request.rack_id,
        client_id=caller.client_id,
        client_host=caller.client_host,
        topics=known.topics if names is None else frozenset(names),
        regex=known.regex if regex is None else regex,
        rebalance_timeout_ms=known.rebalance_timeout_ms if timeout_ms == NOT_GIVEN else timeout_ms,
        assignor=known.assignor if request.server_assignor is None else request.server_assignor,
        classic=None,
    )


def _assignment(assigned: Owned) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(topic_id=topic_id, partitions=sorted(assigned[topic_id]))
            for topic_id in sorted(assigned)
        ]
    )


# --- leaving


def _leave(
    shard: GroupCoordinatorShard, request: ConsumerGroupHeartbeatRequest, now: Now, effects: Effects
) -> tuple[GroupChange, ConsumerGroupHeartbeatResponse]:
    group = shard.consumer(request.group_id)
    if group is None:
        what = "is not a consumer group" if request.group_id in shard.groups else "not found"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {request.group_id} {what}.")
    change = GroupChange(shard, group, now, effects)
    member_id, instance_id = request.member_id, request.instance_id
    if instance_id is None:
        member = group.members.get(member_id)
        if member is None:
            raise unknown_member(group, member_id)
    else:
        member = find_static(group, instance_id, member_id)
    if instance_id is not None and request.member_epoch == LEAVE_STATIC_EPOCH:
        change.note(f"static member {instance_id} is away for a while")
        current = member.current
        # Should it come back, then under another member id, which has what it had from the beginning.
        assigned = {topic_id: dict.fromkeys(partitions, 0) for topic_id, partitions in current.assigned.items()}
        away = current._replace(epoch=LEAVE_STATIC_EPOCH, assigned=assigned, revoking=NOTHING)
        change.records.append(CurrentRecord(group.group_id, member.member_id, away))
    else:
        fence_members(change, [member], f"member {member_id} leaves")
    return change, ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
