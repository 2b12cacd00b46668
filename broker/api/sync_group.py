"""SyncGroup (key 14), v0 to v5: hand in the assignment, or wait for one's own.

Static members (KIP-345, v3), the protocol that the client believes in (KIP-559, v5).
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.group_answers import respond_either
from raftlog.broker.core.group.responses import sync_error
from raftlog.broker.core.group.sync import sync
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse


def handle(context: RequestContext, request: SyncGroupRequest) -> None:
    """Answered when the leader's assignment is stored."""
    respond_either(context, _answer(context, request))


def _answer(
    context: RequestContext, request: SyncGroupRequest
) -> SyncGroupResponse | Coroutine[Any, Any, SyncGroupResponse]:
    groups = context.services.groups
    version = context.api_version
    return groups.ask(
        request.group_id,
        lambda shard: groups.park(
            shard, lambda ticket: sync(shard.shard, request, version, ticket, groups.now())
        ),
        lambda error: sync_error(error if request.group_id else ErrorCode.INVALID_GROUP_ID),
    )
