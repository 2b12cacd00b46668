"""AlterPartitionReassignments (key 45), v0 and v1: move partitions to other brokers, or call that off (KIP-455).

The client may forbid a change of the replication factor (KIP-860, v1). The answer says that a move has begun, or was
called off, not that it is complete: ListPartitionReassignments shows what is under way.
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.cluster_commands import AlterReassignments, Reassignment
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
    command = AlterReassignments(reassignments, request.allow_replication_factor_change)
    answer = await context.services.controller.execute(command, metadata_timeout_seconds(request.timeout_ms))
    topics: dict[str, list[ReassignablePartitionResponse]] = {}
    for topic, index, error, message in answer.results:
        response = ReassignablePartitionResponse(partition_index=index, error_code=error, error_message=message)
        topics.setdefault(topic, []).append(response)
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=answer.error,
        error_message=answer.message,
        responses=[ReassignableTopicResponse(name=name, partitions=found) for name, found in topics.items()],
    )
