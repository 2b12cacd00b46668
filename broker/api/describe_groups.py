"""DescribeGroups (key 15), v0 to v6: groups with their members.

Authorized operations (KIP-430, v3: all of them, there is no authorizer), static members (KIP-345, v4), an error for a
group that is not there (KIP-1043, v6).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.parts import in_parts
from raftlog.broker.core.group.admin import describe_group
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.state import GroupState
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)

# The bits of Kafka's AclOperation READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS.
ALL_OPERATIONS = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11


def handle(context: RequestContext, request: DescribeGroupsRequest) -> None:
    """Each group as it is, or with an error of its own."""

    def done(described: list[DescribedGroup]) -> None:
        for group in described:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OPERATIONS
        context.respond(DescribeGroupsResponse(groups=described))

    # One asked for a thousand times is described once.
    in_parts(list(dict.fromkeys(request.groups)), partial(_describe, context), done)


def _describe(context: RequestContext, group_id: str, answer: Callable[[DescribedGroup], None]) -> None:
    def describe(host: GroupHost) -> None:
        host.commit(Decision(describe_group(host.shard, group_id, context.api_version), []), answer, refuse)

    def refuse(error: ErrorCode) -> None:
        answer(DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value, error_code=error))

    context.services.groups.run(group_id, describe, refuse)
