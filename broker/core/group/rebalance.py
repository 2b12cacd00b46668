"""How a group gets from one generation to the next."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from raftlog.broker.core.coordinator.shared import Now, coordinator_error
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.effects import Effects, GenerationStored, GroupEmptied
from raftlog.broker.core.group.member import NO_ASSIGNMENT, Member
from raftlog.broker.core.group.records import GroupRecord
from raftlog.broker.core.group.responses import (
    JoinAnswers,
    join_error,
    make_sync_answer,
    sync_error,
)
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode

REBALANCEABLE = frozenset({GroupState.EMPTY, GroupState.COMPLETING_REBALANCE, GroupState.STABLE})
"""The states from which a rebalance can begin; in PreparingRebalance one is under way."""

STATIC_MEMBERS_WAIT_MS_MIN = 1_000
"""How long static members are waited for once more when none has come, though their rebalance time-out may be none:
as time does not go on within an event, that one would never end.
"""

NAMED_MEMBERS_MAX = 5
"""How many members one note names: a group may have thousands."""


def name_some(member_ids: Iterable[str]) -> str:
    """The members, or the first of them and how many more."""
    names = list(member_ids)
    rest = len(names) - NAMED_MEMBERS_MAX
    return ", ".join(names[:NAMED_MEMBERS_MAX]) + (f" and {rest} more" if rest > 0 else "")


class Rebalance:
    """The steps of one event on one group: what the event is told of shard, group, time and effects, once."""

    __slots__ = ("effects", "group", "now", "shard")

    def __init__(self, shard: GroupCoordinatorShard, group: ClassicGroup, now: Now, effects: Effects) -> None:
        self.shard = shard
        self.group = group
        self.now = now
        self.effects = effects

    def note(self, text: str) -> None:
        """Tell the operator what happens to the group."""
        self.effects.notes.append((self.group.group_id, text))

    # --- answering

    def answer_join(self, member: Member, error: ErrorCode, member_id: str) -> None:
        """Refuse the member's delayed JoinGroup, if there is one."""
        ticket = self.group.take_join(member)
        if ticket is not None:
            self.effects.reply_late(ticket, partial(join_error, error, member_id))

    def answer_sync(self, member: Member, error: ErrorCode) -> None:
        """Answer the member's delayed SyncGroup, if there is one."""
        ticket, member.sync_ticket = member.sync_ticket, None
        if ticket is None:
            return
        if error is ErrorCode.NONE:
            group = self.group
            make = partial(make_sync_answer, group.protocol_type, group.protocol, member.assignment)
            self.effects.reply_late(ticket, make)
        else:
            self.effects.reply_late(ticket, partial(sync_error, error))
        # While it waited, the member had no session time-out that counted.
        self.shard.keep_alive(member, self.now)

    def has_room(self, more: int) -> bool:
        """Whether so many bytes more still fit into the memory for members; if not, the client is to come again."""
        return self.shard.memory.has_room(more, self.shard.config.members_max_bytes, self.note)

    def dismiss(self, member: Member) -> None:
        """Take a member out of the group. Should it still wait for an answer, it is told to join as a new one."""
        self.answer_join(member, ErrorCode.UNKNOWN_MEMBER_ID, "")
        self.answer_sync(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.group.remove(member)

    # --- the join phase

    def rebalance_or_complete(self, reason: str) -> None:
        """Begin a rebalance if none is under way; if one is, end its join phase when nobody is missing."""
        if self.group.state in REBALANCEABLE:
            self.prepare(reason)
        else:
            self.complete_if_all_joined()

    def prepare(self, reason: str) -> None:
        """Begin the join phase: everybody has to join again."""
        group, config = self.group, self.shard.config
        self.note(f"rebalance after generation {group.generation}: {reason}")
        group.remember_rebalance(self.now.wall_ms, group.generation + 1, reason)
        if group.state is GroupState.COMPLETING_REBALANCE:
            for member in group.members.values():
                group.assign(member, NO_ASSIGNMENT)
                self.answer_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_syncs.clear()
        group.sync_timer.cancel()
        initial = group.state is GroupState.EMPTY
        group.transition(GroupState.PREPARING_REBALANCE, self.now)
        self.effects.rejoins.append(group.group_id)
        if initial:
            group.new_member_added = False
            group.initial_delay_ms = config.initial_rebalance_delay_ms
            group.initial_remaining_ms = max(group.rebalance_timeout_ms - config.initial_rebalance_delay_ms, 0)
            if group.initial_delay_ms > 0:
                self._set_join_timer(group.initial_delay_ms)
            else:
                self.complete()
        elif group.all_joined:
            self.complete()
        else:
            self._set_join_timer(group.rebalance_timeout_ms)

    def _set_join_timer(self, delay_ms: int) -> None:
        self.shard.timers.set(self.group.join_timer, self.now.monotonic_ms + delay_ms)

    def complete_if_all_joined(self) -> None:
        """End the join phase if nobody is missing. The first one of a group lasts its time: more may come."""
        group = self.group
        if group.state is GroupState.PREPARING_REBALANCE and not group.is_initial_rebalance and group.all_joined:
            self.complete()

    def join_time_is_up(self) -> None:
        """The join timer has expired."""
        group = self.group
        if group.state is not GroupState.PREPARING_REBALANCE:
            return
        if group.is_initial_rebalance and group.new_member_added and group.initial_remaining_ms > 0:
            # Somebody came during the delay, so perhaps more will; up to the rebalance time-out in all.
            group.new_member_added = False
            delay_ms = min(self.shard.config.initial_rebalance_delay_ms, group.initial_remaining_ms)
            group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
            group.initial_delay_ms = delay_ms
            self._set_join_timer(delay_ms)
        else:
            self.complete()

    def complete(self) -> None:
        """End the join phase: dynamic members that did not join are out, and the next generation begins."""
        group = self.group
        group.join_timer.cancel()
        late = [m for m in group.members.values() if m.join_ticket is None and not m.is_static]
        if late:
            self.note(f"did not join in time and are out: {name_some(m.member_id for m in late)}")
        for member in late:
            self.dismiss(member)
        if group.members and not group.elect_joined_leader():
            # Only static members are left, and none has come: keep them until they come or their sessions end.
            self._set_join_timer(max(group.rebalance_timeout_ms, STATIC_MEMBERS_WAIT_MS_MIN))
            return
        group.start_generation(self.now)
        if group.state is GroupState.EMPTY:
            self.note(f"generation {group.generation} is empty")
            record = GroupRecord(group.group_id, group.metadata({}))
            self.effects.write((record,), GroupEmptied(group.group_id))
            return
        answers = JoinAnswers(group)
        for member in group.members.values():
            ticket = group.take_join(member)
            if ticket is not None:
                self.effects.reply_late(ticket, partial(answers.answer, member.member_id))
            member.is_new = False
            self.shard.keep_alive(member, self.now)
            group.pending_syncs[member.member_id] = None
        self.shard.timers.set(group.sync_timer, self.now.monotonic_ms + group.rebalance_timeout_ms)

    # --- the sync phase

    def synced(self, member: Member) -> None:
        """The member has sent its SyncGroup."""
        group = self.group
        group.pending_syncs.pop(member.member_id, None)
        if not group.pending_syncs:
            group.sync_timer.cancel()

    def sync_time_is_up(self) -> None:
        """The sync timer has expired: members that did not ask for their assignment are out."""
        group = self.group
        missing = list(group.pending_syncs)
        for member_id in missing:
            self.dismiss(group.members[member_id])
        self.rebalance_or_complete(f"did not ask for their assignment in time: {name_some(missing)}")

    def store_generation(self, assignments: dict[str, bytes]) -> None:
        """Write the leader's assignment; members get theirs when it is committed."""
        group = self.group
        record = GroupRecord(group.group_id, group.metadata(assignments))
        self.effects.write((record,), GenerationStored(group.group_id, group.generation))

    def generation_stored(self, generation: int, error: ErrorCode) -> None:
        """The assignment is committed, or could not be."""
        group = self.group
        if group.state is not GroupState.COMPLETING_REBALANCE or group.generation != generation:
            # A new rebalance has begun meanwhile, and has answered everybody.
            return
        if error is not ErrorCode.NONE:
            for member in group.members.values():
                self.answer_sync(member, coordinator_error(error))
            self.prepare(f"the assignment could not be stored: {error.name}")
            return
        stored = group.stored
        assert stored is not None and stored.generation == generation
        for stored_member in stored.members:
            group.assign(group.members[stored_member.member_id], stored_member.assignment)
        group.transition(GroupState.STABLE, self.now)
        self.note(f"generation {generation} is stable with {len(group.members)} members")
        for member in group.members.values():
            self.answer_sync(member, ErrorCode.NONE)
