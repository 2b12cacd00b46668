"""ConsumerGroupDescribe (key 69), v0 and v1: consumer groups with their members (KIP-848).

Which protocol a member uses (KIP-1099, v1).
"""

from __future__ import annotations

from raftlog.broker.api.consumer_group_heartbeat import has_consumer_protocol
from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.group_descriptions import describe_groups
from raftlog.broker.core.group.consumer.describe import describe_consumer_group
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(context: RequestContext, request: ConsumerGroupDescribeRequest) -> None:
    """See `describe_groups`."""

    def describe(host: GroupHost, group_id: str) -> DescribedGroup:
        if not group_id:
            return refused(group_id, ErrorCode.INVALID_GROUP_ID)
        return describe_consumer_group(host.shard, group_id)

    def refused(group_id: str, error: ErrorCode) -> DescribedGroup:
        return DescribedGroup(group_id=group_id, error_code=error)

    def done(described: list[DescribedGroup]) -> None:
        context.respond(ConsumerGroupDescribeResponse(groups=described))

    if not has_consumer_protocol(context.services):
        done([refused(group_id, ErrorCode.UNSUPPORTED_VERSION) for group_id in request.group_ids])
        return
    with_operations = request.include_authorized_operations
    describe_groups(context, request.group_ids, describe, refused, done, with_operations=with_operations)
