"""Heartbeat (key 12), v0 to v4: say that one is alive, and hear whether to join again.

Static members (KIP-345, v3).
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.group.sync import heartbeat
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> None:
    """Answered at once."""

    def beat(host: GroupHost) -> None:
        context.respond(HeartbeatResponse(error_code=heartbeat(host.shard, request, host.now())))

    def refuse(error: ErrorCode) -> None:
        if not request.group_id:
            error = ErrorCode.INVALID_GROUP_ID
        elif error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Its session begins anew when loading ends; until then all is well.
            error = ErrorCode.NONE
        context.respond(HeartbeatResponse(error_code=error))

    context.services.groups.run(request.group_id, beat, refuse)
