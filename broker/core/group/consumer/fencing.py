"""Members of a consumer group go: they leave, are not heard of in time, or do not give up partitions in time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.consumer.change import GroupChange, topics_without
from raftlog.broker.core.group.consumer.member import ConsumerMember
from raftlog.broker.core.group.consumer.migration import downgrade, is_left_to_classic_members
from raftlog.broker.core.group.effects import Effects
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.timers import Timer, TimerKind
from raftlog.wire.errors import ErrorCode

RETRY_MS = 500
"""When it is tried again to take out a member, if that could not be written."""

_REASONS = {
    TimerKind.MEMBER_SESSION: "was not heard of in time",
    TimerKind.MEMBER_REBALANCE: "did not give up partitions in time",
    TimerKind.MEMBER_JOIN: "did not join again in time",
    TimerKind.MEMBER_SYNC: "did not ask for its assignment in time",
}


def fence_members(change: GroupChange, members: Sequence[ConsumerMember], reason: str) -> None:
    """Take the members out of the group. If only classic ones are left, it becomes a classic group."""
    if not members:
        return
    if is_left_to_classic_members(change, members):
        downgrade(change, members, None, f"{reason}, and no member of the consumer protocol is left")
        return
    group = change.group
    for member in members:
        change.remove_member(member.member_id)
    leaving = [member.subscription for member in members]
    unused = change.drop_regexes(leaving)
    change.bump_epoch(topics_without(group, leaving, unused), reason)


def expire_members(
    shard: GroupCoordinatorShard, group_id: str, timers: Sequence[Timer], now: Now, effects: Effects
) -> None:
    """Take out the members of a group whose time is up."""
    group = shard.consumer(group_id)
    late: dict[str, Timer] = {}
    expired: list[Timer] = []
    for timer in timers:
        member = None if group is None else group.members.get(timer.member_id)
        if member is None:
            # It did not come to be a member, or is none any more.
            shard.timers_of_members.pop((group_id, timer.member_id), None)
        elif timer.kind is not TimerKind.MEMBER_REBALANCE or _is_revoking(shard, group_id, member):
            late.setdefault(timer.member_id, timer)
            expired.append(timer)
    if group is None or not late:
        return
    change = GroupChange(shard, group, now, effects)
    first = next(iter(late.values()))
    others = f", and {len(late) - 1} more" if len(late) > 1 else ""
    reason = f"member {first.member_id} {_REASONS[first.kind]}{others}"
    fence_members(change, [group.members[member_id] for member_id in late], reason)
    retry = partial(_written, shard, expired, change)
    effects.write(tuple(change.records), None, retry)


def _is_revoking(shard: GroupCoordinatorShard, group_id: str, member: ConsumerMember) -> bool:
    """Whether the member is still in the epoch in which it was to give up partitions."""
    return member.epoch == shard.timers_of(group_id, member.member_id).revoking_epoch


def _written(
    shard: GroupCoordinatorShard, timers: Sequence[Timer], change: GroupChange, error: ErrorCode, now: Now
) -> Effects:
    if error is not ErrorCode.NONE:
        for timer in timers:
            shard.timers.set(timer, now.monotonic_ms + RETRY_MS)
    return Effects() if change.appended is None else change.appended(error, now)
