"""How members go: LeaveGroup, time that is up, and the loss of the whole shard."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from raftlog.broker.core.group.effects import (
    Continuation,
    Effects,
    GenerationStored,
    GroupEmptied,
    MembersLeft,
    StaticMemberStored,
    Write,
)
from raftlog.broker.core.group.errors import coordinator_error
from raftlog.broker.core.group.group import Group
from raftlog.broker.core.group.join import static_member_stored
from raftlog.broker.core.group.member import Member, Ticket
from raftlog.broker.core.group.rebalance import Rebalance, name_some
from raftlog.broker.core.group.shard import GroupShard
from raftlog.broker.core.group.state import GroupState, Now
from raftlog.broker.core.group.timers import Timer, TimerKind
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity, MemberResponse


def leave(
    shard: GroupShard, group_id: str, members: Sequence[MemberIdentity], ticket: Ticket, now: Now
) -> Effects:
    """Take a LeaveGroup; if it empties the group, it is answered when that is stored (KIP-345, KIP-800)."""
    effects = Effects()
    group = shard.groups.get(group_id)
    if not group_id:
        effects.reply(ticket, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return effects
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
    else:
        # Perhaps an id that was given out is no longer waited for.
        steps.complete_if_all_joined()
    response = LeaveGroupResponse(members=answers)
    if effects.writes:
        # All that leaving can write is that the group is empty, and this client waits for that.
        records, _ = effects.writes.pop()
        effects.writes.append(Write(records, MembersLeft(ticket, response)))
    else:
        effects.reply(ticket, response)
        shard.discard_if_unused(group)
    return effects


def _left(member: MemberIdentity, error: ErrorCode) -> MemberResponse:
    return MemberResponse(
        member_id=member.member_id, group_instance_id=member.group_instance_id, error_code=error
    )


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


def expire(shard: GroupShard, now: Now) -> Effects:
    """Do what is due: every timer whose deadline has come."""
    effects = Effects()
    for timer in shard.timers.expired(now.monotonic_ms):
        group = shard.groups.get(timer.group_id)
        if group is not None:
            _expire_one(Rebalance(shard, group, now, effects), timer)
    return effects


def _expire_one(steps: Rebalance, timer: Timer) -> None:
    group = steps.group
    match timer.kind:
        case TimerKind.JOIN:
            steps.join_time_is_up()
        case TimerKind.SYNC:
            steps.sync_time_is_up()
        case TimerKind.PENDING_JOIN:
            if group.forget_pending(timer.member_id):
                _complete_without(steps)
        case TimerKind.SESSION:
            member = group.members.get(timer.member_id)
            if member is not None and member.session is timer and not member.is_waiting:
                _expire_session(steps, member)
        case _:
            assert_never(timer.kind)


def _expire_session(steps: Rebalance, member: Member) -> None:
    what = f"member {member.member_id} was not heard of in time"
    steps.dismiss(member)
    if steps.group.state is GroupState.PREPARING_REBALANCE:
        steps.note(f"{what} and is out")
        _complete_without(steps)
    else:
        steps.rebalance_or_complete(what)


def _complete_without(steps: Rebalance) -> None:
    """Somebody who was waited for will not come. If that was the last one, even the first join phase ends."""
    group = steps.group
    if group.state is GroupState.PREPARING_REBALANCE and group.all_joined:
        steps.complete()
    steps.shard.discard_if_unused(group)


def written(shard: GroupShard, then: Continuation, error: ErrorCode, now: Now) -> Effects:
    """Go on after a write: `error` is NONE when its records are committed, else what went wrong with them."""
    effects = Effects()
    if isinstance(then, MembersLeft):
        if error is not ErrorCode.NONE:
            effects.reply(then.ticket, LeaveGroupResponse(error_code=coordinator_error(error)))
        else:
            effects.reply(then.ticket, then.response)
        return effects
    group = shard.groups.get(then.group_id)
    if group is None:
        return effects
    steps = Rebalance(shard, group, now, effects)
    match then:
        case GenerationStored():
            steps.generation_stored(then.generation, error)
        case StaticMemberStored():
            static_member_stored(steps, then, error)
        case GroupEmptied():
            pass
        case _:
            assert_never(then)
    return effects


def unload(shard: GroupShard, now: Now) -> Effects:
    """The broker leads this partition no more: all who wait are sent to look for the new coordinator."""
    effects = Effects()
    for group in shard.groups.values():
        _unload_group(Rebalance(shard, group, now, effects), group)
    shard.groups.clear()
    return effects


def _unload_group(steps: Rebalance, group: Group) -> None:
    for member in list(group.members.values()):
        steps.answer_join(member, ErrorCode.NOT_COORDINATOR, member.member_id)
        steps.answer_sync(member, ErrorCode.NOT_COORDINATOR)
        group.remove(member)
    for member_id in list(group.pending_joins):
        group.forget_pending(member_id)
    group.join_timer.cancel()
    group.sync_timer.cancel()
    group.transition(GroupState.DEAD, steps.now)
