"""LeaveGroup: members go, or an administrator removes them."""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.consumer.change import GroupChange
from raftlog.broker.core.group.consumer.classic_members import leave_consumer_group
from raftlog.broker.core.group.effects import (
    Effects,
    MembersLeft,
)
from raftlog.broker.core.group.member import Ticket
from raftlog.broker.core.group.rebalance import Rebalance, name_some
from raftlog.broker.core.group.responses import leave_error
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse


def leave(
    shard: GroupCoordinatorShard, group_id: str, members: Sequence[MemberIdentity], ticket: Ticket, now: Now
) -> Effects:
    """Take a LeaveGroup; if it empties the group, it is answered when that is stored (KIP-345, KIP-800)."""
    effects = Effects()
    if not group_id:
        effects.reply(ticket, leave_error(ErrorCode.INVALID_GROUP_ID))
        return effects
    consumer_group = shard.consumer(group_id)
    if consumer_group is not None:
        leave_consumer_group(GroupChange(shard, consumer_group, now, effects), members, ticket)
        return effects
    group = shard.classic(group_id)
    if group is None:
        answers = [_left(member, ErrorCode.UNKNOWN_MEMBER_ID) for member in members]
        effects.reply(ticket, LeaveGroupResponse(members=answers))
        return effects
    steps = Rebalance(shard, group, now, effects)
    members_before = len(group.members)
    answers = [_left(member, _leave_one(steps, member)) for member in members]
    if len(group.members) < members_before:
        gone = [m.member_id or m.group_instance_id or "" for m in answers if m.error_code == ErrorCode.NONE]
        steps.rebalance_or_complete(f"members left: {name_some(gone)}")
        effects.rejoins_soon, effects.rejoins = effects.rejoins, []
    else:
        # Perhaps an id that was given out is no longer waited for.
        steps.complete_if_all_joined()
    response = LeaveGroupResponse(members=answers)
    if effects.writes:
        # All that leaving can write is that the group is empty, and this client waits for that.
        write = effects.writes.pop()
        effects.writes.append(write._replace(then=MembersLeft(ticket, response)))
    else:
        effects.reply(ticket, response)
        shard.discard_if_unused(group)
    return effects


def _left(member: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error)


def _leave_one(steps: Rebalance, identity: MemberIdentity) -> ErrorCode:
    group = steps.group
    member_id = identity.member_id
    if not member_id:
        # An administrator removes a static member, whose member id nobody outside knows.
        member_id = group.static_members.get(identity.group_instance_id or "", "")
        if not member_id:
            return ErrorCode.UNKNOWN_MEMBER_ID
    elif group.forget_pending(member_id):
        return ErrorCode.NONE
    else:
        error = group.check_member(member_id, identity.group_instance_id)
        if error is not ErrorCode.NONE:
            return error
    steps.dismiss(group.members[member_id])
    return ErrorCode.NONE
