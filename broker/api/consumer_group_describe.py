"""ConsumerGroupDescribe (key 69), v0 and v1: consumer groups with their members (KIP-848).

Which protocol a member uses (KIP-1099, v1).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raftlog.broker.api.consumer_group_heartbeat import has_consumer_protocol
from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.describe_groups import ALL_OPERATIONS
from raftlog.broker.api.parts import in_parts
from raftlog.broker.core.group.consumer.describe import describe_consumer_group
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> None:
    """Each group as it is, or with an error of its own."""

    def done(described: list[DescribedGroup]) -> None:
        for group in described:
            if request.include_authorized_operations and group.error_code == ErrorCode.NONE:
                group.authorized_operations = ALL_OPERATIONS
        context.respond(ConsumerGroupDescribeResponse(groups=described))

    # One asked for a thousand times is described once.
    in_parts(list(dict.fromkeys(request.group_ids)), partial(_describe, context), done)


def _describe(context: RequestContext, group_id: str, answer: Callable[[DescribedGroup], None]) -> None:
    def describe(host: GroupHost) -> None:
        host.commit(Decision(describe_consumer_group(host.shard, group_id), []), answer, refuse)

    def refuse(error: ErrorCode) -> None:
        answer(DescribedGroup(group_id=group_id, error_code=error))

    if not has_consumer_protocol(context.services):
        refuse(ErrorCode.UNSUPPORTED_VERSION)
    elif not group_id:
        refuse(ErrorCode.INVALID_GROUP_ID)
    else:
        context.services.groups.run(group_id, describe, refuse)
