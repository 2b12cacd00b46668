"""JoinGroup: who may come in, under which id, and whether that needs a rebalance.

KIP-62, KIP-345, KIP-394, KIP-800, KIP-814.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from raftlog.broker.core.coordinator.shared import Now, coordinator_error
from raftlog.broker.core.group.caller import Caller
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.consumer.change import GroupChange
from raftlog.broker.core.group.consumer.classic_members import join_consumer_group
from raftlog.broker.core.group.effects import Effects, StaticMemberStored
from raftlog.broker.core.group.member import MEMBER_BYTES, Member, Protocols, Ticket, size_of
from raftlog.broker.core.group.rebalance import Rebalance
from raftlog.broker.core.group.records import GroupRecord
from raftlog.broker.core.group.responses import join_answer, join_error
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

# From this version on a client joins twice: first for an id, then with it (KIP-394).
MEMBER_ID_REQUIRED_FROM = 4
# From this version on a static leader that came back is told not to assign anew (KIP-814).
SKIP_ASSIGNMENT_FROM = 9
REASON_CHARACTERS_MAX = 255
NAME_CHARACTERS_MAX = 255
"""How much of a client's name goes into a member id, which has to fit into a text of 32 KiB with it."""


class _Join(NamedTuple):
    """One JoinGroup on its way through this file."""

    request: JoinGroupRequest
    caller: Caller
    ticket: Ticket
    protocols: Protocols
    rebalance_timeout_ms: int

    @property
    def reason(self) -> str:
        """Why the client says it joins (KIP-800), to stand at the end of a log line."""
        said = self.request.reason
        return f", says {said[:REASON_CHARACTERS_MAX]!r}" if said else ""

    def new_member_id(self) -> str:
        name = self.request.group_instance_id
        name = self.caller.client_id if name is None else name
        return f"{name[:NAME_CHARACTERS_MAX]}-{self.caller.random_id}"


def join(shard: GroupCoordinatorShard, request: JoinGroupRequest, caller: Caller, ticket: Ticket, now: Now) -> Effects:
    """Take a JoinGroup; it is answered at once, or delayed until the join phase ends."""
    effects = Effects()
    config = shard.config
    error = ErrorCode.NONE
    if not request.group_id:
        error = ErrorCode.INVALID_GROUP_ID
    elif not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        error = ErrorCode.INVALID_SESSION_TIMEOUT
    elif request.member_id and request.group_id not in shard.groups:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if error is not ErrorCode.NONE:
        effects.reply(ticket, join_error(error, request.member_id))
        return effects
    consumer_group = shard.consumer(request.group_id)
    if consumer_group is not None and consumer_group.is_empty:
        # Nobody speaks its protocol any more: a classic group takes its place.
        anew = partial(_join_anew, shard, request, caller=caller, ticket=ticket)
        effects.write(tuple(consumer_group.removals()), None, anew)
        return effects
    if consumer_group is not None:
        change = GroupChange(shard, consumer_group, now, effects)
        join_consumer_group(change, request, caller, ticket, _protocols(request))
        return effects
    # Version 0 has no rebalance time-out.
    timeout_ms = request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms
    attempt = _Join(request, caller, ticket, _protocols(request), timeout_ms)
    group = shard.make_classic(request.group_id)
    steps = Rebalance(shard, group, now, effects)
    if _is_full(group, request.member_id, config.max_size):
        effects.reply(ticket, join_error(ErrorCode.GROUP_MAX_SIZE_REACHED))
        _drop_rejected(steps, request.member_id)
    elif not group.supports(request.protocol_type, [name for name, _ in attempt.protocols]):
        effects.reply(ticket, join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif not _has_room(steps, attempt):
        effects.reply(ticket, join_error(ErrorCode.COORDINATOR_NOT_AVAILABLE, request.member_id))
    elif request.member_id:
        _join_known(steps, attempt)
    else:
        _join_new(steps, attempt)
    shard.discard_if_unused(group)
    return effects


def _join_anew(
    shard: GroupCoordinatorShard,
    request: JoinGroupRequest,
    error: ErrorCode,
    now: Now,
    *,
    caller: Caller,
    ticket: Ticket,
) -> Effects:
    """The consumer group that was here is removed, or `error` says why it could not be."""
    if error is ErrorCode.NONE:
        return join(shard, request, caller, ticket, now)
    effects = Effects()
    effects.reply(ticket, join_error(coordinator_error(error), request.member_id))
    return effects


def _protocols(request: JoinGroupRequest) -> Protocols:
    """The protocols in order, copied out of the request; of two with one name the first counts."""
    found: dict[str, bytes] = {}
    for protocol in request.protocols:
        found.setdefault(protocol.name, bytes(protocol.metadata))
    return tuple(found.items())


def _is_full(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """Whether group.max.size keeps the caller out.

    During the join phase those who already wait count, and not the members: should the limit have been lowered, the
    last ones to join are the ones to go.
    """
    if group.state is GroupState.EMPTY:
        return False
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        waiting = member is not None and member.join_ticket is not None
        return not waiting and group.awaiting_join_count >= max_size
    return member is None and len(group.members) >= max_size


def _has_room(steps: Rebalance, attempt: _Join) -> bool:
    """Whether what the caller brings still fits in; if not, it is told to come again later."""
    group, instance_id = steps.group, attempt.request.group_instance_id
    known = attempt.request.member_id if instance_id is None else group.static_members.get(instance_id, "")
    member = group.members.get(known)
    if member is not None:
        return steps.has_room(size_of(attempt.protocols) - size_of(member.protocols))
    more = size_of(attempt.protocols, attempt.caller.client_id, instance_id)
    return steps.has_room(more - MEMBER_BYTES if known in group.pending_joins else more)


def _drop_rejected(steps: Rebalance, member_id: str) -> None:
    """A member or a pending one that does not fit in any more is out, and must not be waited for."""
    group = steps.group
    member = group.members.get(member_id)
    if member is not None:
        steps.dismiss(member)
    elif not group.forget_pending(member_id):
        return
    steps.complete_if_all_joined()


# --- without a member id


def _join_new(steps: Rebalance, attempt: _Join) -> None:
    group, request = steps.group, attempt.request
    if request.group_instance_id is not None:
        current = group.static_members.get(request.group_instance_id)
        if current is None:
            _add(steps, attempt, attempt.new_member_id())
        else:
            _replace_static(steps, attempt, group.members[current])
    elif attempt.caller.api_version < MEMBER_ID_REQUIRED_FROM:
        _add(steps, attempt, attempt.new_member_id())
    else:
        member_id = attempt.new_member_id()
        steps.shard.timers.set(group.add_pending(member_id), steps.now.monotonic_ms + request.session_timeout_ms)
        steps.effects.reply(attempt.ticket, join_error(ErrorCode.MEMBER_ID_REQUIRED, member_id))


def _add(steps: Rebalance, attempt: _Join, member_id: str) -> None:
    """Take in a new member, which makes everybody join again."""
    group, request = steps.group, attempt.request
    member = Member(
        group.group_id,
        member_id,
        group_instance_id=request.group_instance_id,
        client_id=attempt.caller.client_id,
        client_host=attempt.caller.client_host,
        rebalance_timeout_ms=attempt.rebalance_timeout_ms,
        session_timeout_ms=request.session_timeout_ms,
        protocols=attempt.protocols,
    )
    member.is_new = True
    if group.is_initial_rebalance:
        group.new_member_added = True
    group.add(member, request.protocol_type)
    group.delay_join(member, attempt.ticket)
    steps.shard.timers.set(member.session, steps.now.monotonic_ms + steps.shard.config.new_member_join_timeout_ms)
    steps.rebalance_or_complete(f"member {member_id} is new{attempt.reason}")


def _replace_static(steps: Rebalance, attempt: _Join, old: Member) -> None:
    """A static member has restarted: it takes over its own place under a new id, and the old id is fenced."""
    group = steps.group
    before = StaticMemberStored(
        group_id=group.group_id,
        group_instance_id=attempt.request.group_instance_id or "",
        old_member_id=old.member_id,
        new_member_id=attempt.new_member_id(),
        old_leader=group.leader or "",
        old_protocols=old.protocols,
        old_rebalance_timeout_ms=old.rebalance_timeout_ms,
        old_session_timeout_ms=old.session_timeout_ms,
        api_version=attempt.caller.api_version,
    )
    # Should there be two processes of this name, the older one must stop.
    steps.answer_join(old, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
    steps.answer_sync(old, ErrorCode.FENCED_INSTANCE_ID)
    member = group.rename(old, before.new_member_id)
    _update(steps, attempt, member)
    steps.shard.keep_alive(member, steps.now)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may be assigning to the old id right now; only another generation has the new one.
        steps.prepare(f"static member {member.group_instance_id} restarted while partitions were being assigned")
    elif group.state is not GroupState.STABLE:
        steps.complete_if_all_joined()
    elif group.select_protocol() != group.protocol:
        steps.prepare(f"static member {member.group_instance_id} restarted and prefers another protocol")
    else:
        assignments = {other.member_id: other.assignment for other in group.members.values()}
        steps.effects.write((GroupRecord(group.group_id, group.metadata(assignments)),), before)


def static_member_stored(steps: Rebalance, stored: StaticMemberStored, error: ErrorCode) -> None:
    """The new id of a static member is committed, or could not be."""
    group = steps.group
    member = group.members.get(stored.new_member_id)
    if member is None:
        # Replaced once more or gone, and answered then.
        return
    ticket = group.take_join(member) if group.state is GroupState.STABLE else None
    if error is not ErrorCode.NONE:
        if ticket is not None:
            steps.effects.reply(ticket, join_error(coordinator_error(error)))
            # While it waited, the member had no session time-out that counted.
            steps.shard.keep_alive(member, steps.now)
        _undo_replacement(steps, stored, member)
        return
    if ticket is None:
        # A rebalance has begun; it answers, or has done so.
        return
    if stored.api_version >= SKIP_ASSIGNMENT_FROM:
        response = join_answer(group, member, skip_assignment=member.member_id == group.leader)
    else:
        # Clients from before KIP-814 must not take themselves for the leader, or they would assign anew.
        response = JoinGroupResponse(
            generation_id=group.generation,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol,
            leader=stored.old_leader,
            member_id=member.member_id,
        )
    steps.effects.reply(ticket, response)
    steps.shard.keep_alive(member, steps.now)


def _undo_replacement(steps: Rebalance, stored: StaticMemberStored, member: Member) -> None:
    """Give the place back to the old id, unless the log has the new one already and may yet commit it."""
    group = steps.group
    if group.state is not GroupState.STABLE or group.stored is None:
        return
    if any(known.member_id == member.member_id for known in group.stored.members):
        return
    group.update(
        member,
        stored.old_protocols,
        rebalance_timeout_ms=stored.old_rebalance_timeout_ms,
        session_timeout_ms=stored.old_session_timeout_ms,
    )
    steps.shard.keep_alive(group.rename(member, stored.old_member_id), steps.now)


# --- with a member id


def _join_known(steps: Rebalance, attempt: _Join) -> None:
    group, request = steps.group, attempt.request
    member_id = request.member_id
    if member_id in group.pending_joins and request.group_instance_id is None:
        _add(steps, attempt, member_id)
        return
    error = group.check_member(member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        steps.effects.reply(attempt.ticket, join_error(error, member_id))
        return
    member = group.members[member_id]
    if _needs_rebalance(group, member, attempt):
        _update(steps, attempt, member)
        steps.rebalance_or_complete(f"member {member_id} joins again{attempt.reason}")
    else:
        # It has missed our answer, or only asks again: it is told of the generation that it is in.
        steps.shard.keep_alive(member, steps.now)
        steps.effects.reply(attempt.ticket, join_answer(group, member))


def _needs_rebalance(group: ClassicGroup, member: Member, attempt: _Join) -> bool:
    """Whether the join of a member changes anything.

    A leader of a stable group joins to have partitions assigned anew, for example because a topic has grown.
    """
    if group.state is GroupState.PREPARING_REBALANCE or member.protocols != attempt.protocols:
        return True
    return group.state is GroupState.STABLE and member.member_id == group.leader


def _update(steps: Rebalance, attempt: _Join, member: Member) -> None:
    """Take over what the request says, and delay it."""
    group = steps.group
    group.update(
        member,
        attempt.protocols,
        rebalance_timeout_ms=attempt.rebalance_timeout_ms,
        session_timeout_ms=attempt.request.session_timeout_ms,
    )
    previous = group.delay_join(member, attempt.ticket)
    if previous is not None:
        steps.effects.reply(previous, join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
