"""Heartbeat (key 12), v0 to v4: say that one is alive, and hear whether to join again.

Static members (KIP-345, v3).
"""

from __future__ import annotations

from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.group.sync import heartbeat
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.broker.runtime.held_heartbeats import goes_on_meanwhile
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> None:
    """Answered at once, or when there is news for a client that does not wait for it."""
    groups = context.services.groups

    def tell(error: ErrorCode) -> None:
        context.respond(HeartbeatResponse(error_code=error))

    def refuse(error: ErrorCode) -> None:
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Its session begins anew when loading ends; until then all is well.
            error = ErrorCode.NONE
        tell(error)

    def beat(host: GroupHost) -> None:
        now = host.now()
        error = heartbeat(host.shard, request, now)
        group = host.shard.classic(request.group_id)
        if error is not ErrorCode.NONE or group is None or not may_hold():
            tell(error)
            return
        session_ms = group.members[request.member_id].session_timeout_ms
        # As of now: nothing is heard of it until then.
        then = partial(groups.run, request.group_id, lambda host: tell(heartbeat(host.shard, request, now)), refuse)
        context.when_early = host.held_heartbeats.hold(request.group_id, request.member_id, session_ms, then)

    def may_hold() -> bool:
        return context.can_be_early and goes_on_meanwhile(context.connection.software)

    groups.run(request.group_id, beat, refuse)
