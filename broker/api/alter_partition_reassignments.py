"""AlterPartitionReassignments (key 45), v0 and v1: move partitions to other brokers, or call that off (KIP-455).

The client may forbid a change of the replication factor (KIP-860, v1). The answer says that a move has begun, or was
called off, not that it is complete: ListPartitionReassignments shows what is under way.
"""

from __future__ import annotations

from functools import partial

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.cluster_commands import AlterReassignments, Reassignment
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId
from raftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@responds_later
async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Each partition succeeds or fails on its own."""
    reassignments = tuple(
        Reassignment(
            topic.name,
            partition.partition_index,
            None if partition.replicas is None else tuple(map(BrokerId, partition.replicas)),
        )
        for topic in request.topics
        for partition in topic.partitions
    )
    command = partial(AlterReassignments, allow_replication_factor_change=request.allow_replication_factor_change)
    seconds = metadata_timeout_seconds(request.timeout_ms)
    response = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change
    )
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    async for answer in context.services.controller.execute_in_parts(reassignments, command, seconds):
        if answer.error is not ErrorCode.NONE:
            # What has begun already is no reason not to ask for all of it again.
            response.error_code, response.error_message = answer.error, answer.message
            return response
        for topic, index, error, message in answer.results:
            altered = ReassignablePartitionResponse(partition_index=index, error_code=error, error_message=message)
            topics.setdefault(topic, []).append(altered)
    response.responses = [ReassignableTopicResponse(name=name, partitions=found) for name, found in topics.items()]
    return response
