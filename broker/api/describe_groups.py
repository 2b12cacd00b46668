"""DescribeGroups (key 15), v0 to v6: groups with their members.

Authorized operations (KIP-430, v3: all of them, there is no authorizer), static members (KIP-345, v4), an error for a
group that is not there (KIP-1043, v6).
"""

from __future__ import annotations

from collections.abc import Coroutine
from types import CoroutineType
from typing import Any

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.core.group.admin import describe_group
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.runtime.group_shard_host import GroupShardHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

# The bits of Kafka's AclOperation READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
_ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11

_Answer = DescribedGroup | Coroutine[Any, Any, DescribedGroup]


@responds_later
async def handle(context: RequestContext, request: DescribeGroupsRequest) -> DescribeGroupsResponse:
    """Each group as it is, or with an error of its own."""
    described = []
    for group_id in dict.fromkeys(request.groups):  # one asked for a thousand times is described once
        answer = _describe(context, group_id)
        group = await answer if isinstance(answer, CoroutineType) else answer
        assert isinstance(group, DescribedGroup)
        if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
            group.authorized_operations = _ALL_OPERATIONS
        described.append(group)
    return DescribeGroupsResponse(groups=described)


def _describe(context: RequestContext, group_id: str) -> _Answer:
    groups = context.services.groups

    def refuse(error: ErrorCode) -> DescribedGroup:
        return DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value, error_code=error)

    def act(host: GroupShardHost) -> _Answer:
        described = describe_group(host.shard, group_id, context.api_version)
        return groups.settle(host, Decision(described, []), refuse)

    return groups.ask(group_id, act, refuse)
