"""SyncGroup and Heartbeat: a member collects its assignment, and says that it is alive."""

from __future__ import annotations

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.consumer.classic_members import beat_in_consumer_group, sync_consumer_group
from raftlog.broker.core.group.effects import Effects
from raftlog.broker.core.group.member import Ticket
from raftlog.broker.core.group.rebalance import Rebalance
from raftlog.broker.core.group.responses import sync_answer, sync_error
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.sync_group import SyncGroupRequest

# From this version on the client says which protocol it believes was chosen (KIP-559).
PROTOCOL_REQUIRED_FROM = 5


def sync(
    shard: GroupCoordinatorShard, request: SyncGroupRequest, api_version: int, ticket: Ticket, now: Now
) -> Effects:
    """Take a SyncGroup; it is answered at once, or delayed until the leader's assignment is stored."""
    effects = Effects()
    group = shard.classic(request.group_id)
    error = _check_sync(group, request, api_version)
    consumer_group = shard.consumer(request.group_id)
    if consumer_group is not None and error is ErrorCode.UNKNOWN_MEMBER_ID:
        return sync_consumer_group(shard, consumer_group, request, ticket, now)
    if group is None or error is not ErrorCode.NONE:
        effects.reply(ticket, sync_error(error))
        return effects
    steps = Rebalance(shard, group, now, effects)
    member = group.members[request.member_id]
    if group.state is GroupState.PREPARING_REBALANCE:
        effects.reply(ticket, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
        return effects
    # If the leader asks again while its assignment is on the way to disk, the first one stands.
    is_stored = group.stored is not None and group.stored.generation == group.generation
    assignments = None
    if member.member_id == group.leader and not is_stored:
        assignments = {item.member_id: bytes(item.assignment) for item in request.assignments}
        if not steps.has_room(group.bytes_more(assignments)):
            effects.reply(ticket, sync_error(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return effects
    steps.synced(member)
    if group.state is GroupState.STABLE:
        shard.keep_alive(member, now)
        effects.reply(ticket, sync_answer(group, member))
        return effects
    previous = group.delay_sync(member, ticket)
    if previous is not None:
        effects.reply(previous, sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    if assignments is not None:
        steps.store_generation(assignments)
    return effects


def _check_sync(group: ClassicGroup | None, request: SyncGroupRequest, api_version: int) -> ErrorCode:
    if api_version >= PROTOCOL_REQUIRED_FROM and (request.protocol_type is None or request.protocol_name is None):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    if _differ(request.protocol_type, group.protocol_type) or _differ(request.protocol_name, group.protocol):
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    return ErrorCode.NONE


def _differ(said: str | None, known: str | None) -> bool:
    return said is not None and known is not None and said != known


def heartbeat(shard: GroupCoordinatorShard, request: HeartbeatRequest, now: Now) -> ErrorCode:
    """Take a Heartbeat: the member's session begins anew, and it is told whether it has to join again."""
    consumer_group = shard.consumer(request.group_id)
    if consumer_group is not None:
        return beat_in_consumer_group(shard, consumer_group, request, now)
    group = shard.classic(request.group_id)
    if group is None:
        return ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is not ErrorCode.NONE:
        return error
    if request.generation_id != group.generation:
        return ErrorCode.ILLEGAL_GENERATION
    shard.keep_alive(group.members[request.member_id], now)
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE
