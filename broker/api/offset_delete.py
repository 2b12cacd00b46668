"""OffsetDelete (key 47), v0: forget how far a group has come in topics that it does not consume any more (KIP-496)."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.group_answers import respond_either
from raftlog.broker.core.group.offsets import delete_offsets
from raftlog.broker.runtime.group_shard_host import GroupShardHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse

_Answer = OffsetDeleteResponse | Coroutine[Any, Any, OffsetDeleteResponse]


def handle(context: RequestContext, request: OffsetDeleteRequest) -> None:
    """Answered when the removals are committed."""
    respond_either(context, _answer(context, request))


def _answer(context: RequestContext, request: OffsetDeleteRequest) -> _Answer:
    groups = context.services.groups

    def refuse(error: ErrorCode) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=error if request.group_id else ErrorCode.INVALID_GROUP_ID)

    def act(host: GroupShardHost) -> _Answer:
        decision = delete_offsets(host.shard, request, context.services.controller.image)
        return groups.settle(host, decision, refuse)

    return groups.ask(request.group_id, act, refuse)
