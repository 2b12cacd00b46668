"""LeaveGroup (key 13), v0 to v5: go, or have members removed.

Several members at once, static ones by their instance id (KIP-345, v3), reasons (KIP-800, v5).
"""

from __future__ import annotations

from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.group.leave import leave
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_SEVERAL_MEMBERS_FROM = 3


def handle(context: RequestContext, request: LeaveGroupRequest) -> None:
    """Answered at once, or, for the last to go, when it is stored that the group is empty."""
    members = request.members
    if context.api_version < _SEVERAL_MEMBERS_FROM:
        members = [MemberIdentity(member_id=request.member_id)]

    def begin(host: GroupHost) -> None:
        host.take(partial(leave, host.shard, request.group_id, members), respond)

    def refuse(error: ErrorCode) -> None:
        respond(LeaveGroupResponse(error_code=error if request.group_id else ErrorCode.INVALID_GROUP_ID))

    def respond(response: LeaveGroupResponse) -> None:
        if context.api_version < _SEVERAL_MEMBERS_FROM and response.members:
            # Old versions have one error, that of their one member.
            response = LeaveGroupResponse(error_code=response.error_code or response.members[0].error_code)
        context.respond(response)

    context.services.groups.run(request.group_id, begin, refuse)
