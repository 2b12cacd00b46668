"""DescribeGroups (key 15), v0 to v6: groups with their members.

Authorized operations (KIP-430, v3: all of them, there is no authorizer), static members (KIP-345, v4), an error for a
group that is not there (KIP-1043, v6).
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.group_descriptions import describe_groups
from raftlog.broker.core.group.admin import describe_group
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(context: RequestContext, request: DescribeGroupsRequest) -> None:
    """See `describe_groups`."""

    def describe(host: GroupHost, group_id: str) -> DescribedGroup:
        return describe_group(host.shard, group_id, context.api_version)

    def refused(group_id: str, error: ErrorCode) -> DescribedGroup:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value, error_code=error)

    def done(described: list[DescribedGroup]) -> None:
        context.respond(DescribeGroupsResponse(groups=described))

    with_operations = request.include_authorized_operations
    describe_groups(context, request.groups, describe, refused, done, with_operations=with_operations)
