"""What happens to a shard unasked: time is up, a write is committed or has failed, the shard is lost."""

from __future__ import annotations

from typing import assert_never

from raftlog.broker.core.coordinator.shared import Now, coordinator_error
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.consumer.fencing import expire_members
from raftlog.broker.core.group.effects import (
    Continuation,
    DeferredResponse,
    Effects,
    GenerationStored,
    GroupEmptied,
    MembersLeft,
    StaticMemberStored,
)
from raftlog.broker.core.group.join import static_member_stored
from raftlog.broker.core.group.member import Member
from raftlog.broker.core.group.rebalance import Rebalance
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.core.group.timers import Timer, TimerKind
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.leave_group import LeaveGroupResponse


def expire(shard: GroupCoordinatorShard, now: Now) -> Effects:
    """Do what is due: every timer whose deadline has come."""
    effects = Effects()
    # Members of one consumer group go together, or what is written for one would not know of the others.
    late: dict[str, list[Timer]] = {}
    for timer in shard.timers.expired(now.monotonic_ms):
        group = shard.groups.get(timer.group_id)
        if isinstance(group, ClassicGroup):
            _expire_one(Rebalance(shard, group, now, effects), timer)
        else:
            late.setdefault(timer.group_id, []).append(timer)
    for group_id, timers in late.items():
        expire_members(shard, group_id, timers, now, effects)
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
        case TimerKind.MEMBER_SESSION | TimerKind.MEMBER_REBALANCE | TimerKind.MEMBER_JOIN | TimerKind.MEMBER_SYNC:
            # Of a member of the consumer group that this was before.
            pass
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


def complete_write(shard: GroupCoordinatorShard, then: Continuation, error: ErrorCode, now: Now) -> Effects:
    """Go on after a write: `error` is NONE when its records are committed, else what went wrong with them."""
    effects = Effects()
    if isinstance(then, MembersLeft):
        if error is not ErrorCode.NONE:
            effects.reply(then.ticket, LeaveGroupResponse(error_code=coordinator_error(error)))
        else:
            effects.reply(then.ticket, then.response)
        return effects
    if isinstance(then, DeferredResponse):
        ok = error is ErrorCode.NONE
        effects.reply(then.ticket, then.response if ok else then.refusal(coordinator_error(error)))
        return effects
    group = shard.classic(then.group_id)
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


def unload(shard: GroupCoordinatorShard, now: Now) -> Effects:
    """The broker leads this partition no more: all who wait are sent to look for the new coordinator."""
    effects = Effects()
    for group in shard.classic_groups():
        _unload_group(Rebalance(shard, group, now, effects), group)
    for consumer_group in shard.consumer_groups():
        shard.memory.used -= consumer_group.member_bytes
    for timers in shard.timers_of_members.values():
        timers.cancel()
    shard.groups.clear()
    return effects


def _unload_group(steps: Rebalance, group: ClassicGroup) -> None:
    for member in list(group.members.values()):
        steps.answer_join(member, ErrorCode.NOT_COORDINATOR, member.member_id)
        steps.answer_sync(member, ErrorCode.NOT_COORDINATOR)
        group.remove(member)
    for member_id in list(group.pending_joins):
        group.forget_pending(member_id)
    group.join_timer.cancel()
    group.sync_timer.cancel()
    group.transition(GroupState.DEAD, steps.now)
