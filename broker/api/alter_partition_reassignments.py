"""AlterPartitionReassignments (key 45), v0 and v1: move partitions to other brokers, or call that off (KIP-455).

The client may forbid a change of the replication factor (KIP-860, v1). The answer says that a move has begun, or was
called off, not that it is complete: ListPartitionReassignments shows what is under way.
"""

from __future__ import annotations

from itertools import starmap

from raftlog.broker.api.by_topic import ByTopic
from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.cluster_commands import AlterReassignments, Reassignment
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId
from raftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


@responds_later
async def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Each partition succeeds or fails on its own."""
    may_change_factor = request.allow_replication_factor_change
    response = AlterPartitionReassignmentsResponse(allow_replication_factor_change=may_change_factor)
    topics = ByTopic(lambda name: ReassignableTopicResponse(name=name))

    def command(wanted: tuple[tuple[str, ReassignablePartition], ...]) -> AlterReassignments:
        return AlterReassignments(tuple(starmap(_reassignment, wanted)), may_change_factor)

    wanted = [(topic.name, partition) for topic in request.topics for partition in topic.partitions]
    seconds = metadata_timeout_seconds(request.timeout_ms)
    async for answer in context.services.controller.execute_in_parts(wanted, command, seconds):
        if answer.error is not ErrorCode.NONE:
            # What has begun already is no reason not to ask for all of it again.
            response.error_code, response.error_message = answer.error, answer.message
            return response
        for name, index, error, message in answer.results:
            topics[name].partitions.append(
                ReassignablePartitionResponse(partition_index=index, error_code=error, error_message=message)
            )
    response.responses = list(topics.values())
    return response


def _reassignment(topic: str, partition: ReassignablePartition) -> Reassignment:
    replicas = None if partition.replicas is None else tuple(map(BrokerId, partition.replicas))
    return Reassignment(topic, partition.partition_index, replicas)
