"""JoinGroup (key 11), v0 to v9: come into a group, and wait for the others.

Rebalance time-outs (KIP-62, v1), member ids given out first (KIP-394, v4), static members (KIP-345, v5), protocol type
in the answer (KIP-559, v7), reasons (KIP-800, v8), a static leader that need not assign (KIP-814, v9).
"""

from __future__ import annotations

import uuid
from collections.abc import Coroutine
from types import CoroutineType
from typing import Any

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.group_answers import respond_either
from raftlog.broker.core.group.join import Caller, join
from raftlog.broker.core.group.responses import join_error
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse

_NULLABLE_PROTOCOL_FROM = 7


def handle(context: RequestContext, request: JoinGroupRequest) -> None:
    """Answered when the join phase ends, or at once when nobody is to be waited for."""
    respond_either(context, _answer(context, request))


def _answer(
    context: RequestContext, request: JoinGroupRequest
) -> JoinGroupResponse | Coroutine[Any, Any, JoinGroupResponse]:
    groups = context.services.groups
    version = context.api_version
    # As Java prints an address, which is what tools show.
    host = f"/{context.client_host}"
    caller = Caller(context.client_id or "", host, version, str(uuid.uuid4()))
    answer = groups.ask(
        request.group_id,
        lambda shard: groups.park(
            shard, lambda ticket: join(shard.shard, request, caller, ticket, groups.now())
        ),
        lambda error: _refused(request, error),
    )
    if isinstance(answer, CoroutineType):
        return _later(answer, version)
    assert isinstance(answer, JoinGroupResponse)
    return _fit(answer, version)


def _refused(request: JoinGroupRequest, error: ErrorCode) -> JoinGroupResponse:
    return join_error(error if request.group_id else ErrorCode.INVALID_GROUP_ID, request.member_id)


async def _later(answer: Coroutine[Any, Any, JoinGroupResponse], version: int) -> JoinGroupResponse:
    return _fit(await answer, version)


def _fit(response: JoinGroupResponse, version: int) -> JoinGroupResponse:
    """Old versions have no null: an unsettled protocol is the empty text there."""
    if response.protocol_name is None and version < _NULLABLE_PROTOCOL_FROM:
        response.protocol_name = ""
    return response
