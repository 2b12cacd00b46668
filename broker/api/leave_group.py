"""LeaveGroup (key 13), v0 to v5: go, or have members removed.

Several members at once, static ones by their instance id (KIP-345, v3), reasons (KIP-800, v5).
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType
from typing import Any

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.group_answers import respond_either
from raftlog.broker.core.group.leave import leave
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_SEVERAL_MEMBERS_FROM = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> None:
    """Answered at once, or, for the last to go, when it is stored that the group is empty."""
    respond_either(context, _answer(context, request))


def _answer(
    context: RequestContext, request: LeaveGroupRequest
) -> LeaveGroupResponse | Coroutine[Any, Any, LeaveGroupResponse]:
    groups = context.services.groups
    version = context.api_version
    members = request.members
    if version < _SEVERAL_MEMBERS_FROM:
        members = [MemberIdentity(member_id=request.member_id)]
    answer = groups.ask(
        request.group_id,
        lambda shard: groups.park(
            shard, lambda ticket: leave(shard.shard, request.group_id, members, ticket, groups.now())
        ),
        lambda error: LeaveGroupResponse(error_code=error if request.group_id else ErrorCode.INVALID_GROUP_ID),
    )
    if isinstance(answer, CoroutineType):
        return _later(answer, version)
    assert isinstance(answer, LeaveGroupResponse)
    return _fit(answer, version)


async def _later(answer: Coroutine[Any, Any, LeaveGroupResponse], version: int) -> LeaveGroupResponse:
    return _fit(await answer, version)


def _fit(response: LeaveGroupResponse, version: int) -> LeaveGroupResponse:
    """Old versions have one error, that of their one member."""
    if version >= _SEVERAL_MEMBERS_FROM or not response.members:
        return response
    return LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
