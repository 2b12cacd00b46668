"""Heartbeat (key 12), v0 to v4: say that one is alive, and hear whether to join again.

Static members (KIP-345, v3).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.group_answers import respond_either
from raftlog.broker.core.group.sync import heartbeat
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(context: RequestContext, request: HeartbeatRequest) -> None:
    """Answered at once."""
    respond_either(context, _answer(context, request))


def _answer(
    context: RequestContext, request: HeartbeatRequest
) -> HeartbeatResponse | Coroutine[Any, Any, HeartbeatResponse]:
    groups = context.services.groups
    return groups.ask(
        request.group_id,
        lambda shard: HeartbeatResponse(error_code=heartbeat(shard.shard, request, groups.now())),
        lambda error: _refused(request, error),
    )


def _refused(request: HeartbeatRequest, error: ErrorCode) -> HeartbeatResponse:
    if not request.group_id:
        return HeartbeatResponse(error_code=ErrorCode.INVALID_GROUP_ID)
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        # Its session begins anew when loading ends; until then all is well.
        return HeartbeatResponse()
    return HeartbeatResponse(error_code=error)
