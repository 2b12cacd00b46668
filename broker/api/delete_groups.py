"""DeleteGroups (key 42), v0 to v2: remove groups without members, and all their offsets (KIP-229)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.core.group.admin import delete_group
from raftlog.broker.runtime.group_shard_host import GroupShardHost
from raftlog.broker.server.limits import NAME_LENGTH_IN_LOGS_MAX
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)

_Answer = ErrorCode | Coroutine[Any, Any, ErrorCode]


@responds_later
async def handle(context: RequestContext, request: DeleteGroupsRequest) -> DeleteGroupsResponse:
    """Each group with its result; one that is named twice is removed once."""
    results = []
    for group_id in dict.fromkeys(request.groups_names):
        answer = _delete(context, group_id)
        error = answer if isinstance(answer, ErrorCode) else await answer
        results.append(DeletableGroupResult(group_id=group_id, error_code=error))
    gone = [repr(r.group_id[:NAME_LENGTH_IN_LOGS_MAX]) for r in results if r.error_code == ErrorCode.NONE]
    context.log_change("groups deleted", gone)
    return DeleteGroupsResponse(results=results)


def _delete(context: RequestContext, group_id: str) -> _Answer:
    groups = context.services.groups

    def refuse(error: ErrorCode) -> ErrorCode:
        return error

    def act(host: GroupShardHost) -> _Answer:
        return groups.settle(host, delete_group(host.shard, group_id), refuse)

    return groups.ask(group_id, act, refuse)
