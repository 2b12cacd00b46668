"""DeleteGroups (key 42), v0 to v2: remove groups without members, and all their offsets (KIP-229)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.gather import gather
from raftlog.broker.api.pace import Pace
from raftlog.broker.core.group.admin import delete_group
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.broker.server.limits import NAME_LENGTH_IN_LOGS_MAX
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)


def handle(context: RequestContext, request: DeleteGroupsRequest) -> None:
    """Each group with its result; one that is named twice is removed once."""
    group_ids = list(dict.fromkeys(request.groups_names))

    def done(errors: list[ErrorCode]) -> None:
        results = list(zip(group_ids, errors, strict=True))
        gone = [repr(group_id[:NAME_LENGTH_IN_LOGS_MAX]) for group_id, error in results if error is ErrorCode.NONE]
        context.log_change("groups deleted", gone)
        context.in_turns(_response(results), context.respond)

    gather(context, group_ids, partial(_delete, context), done)


async def _response(results: Sequence[tuple[str, ErrorCode]]) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=await Pace().each(results, lambda each: DeletableGroupResult(group_id=each[0], error_code=each[1]))
    )


def _delete(context: RequestContext, group_id: str, answer: Callable[[ErrorCode], None]) -> None:
    def delete(host: GroupHost) -> None:
        host.commit(delete_group(host.shard, group_id), answer, answer)

    context.services.groups.run(group_id, delete, answer)
