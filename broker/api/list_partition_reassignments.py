"""ListPartitionReassignments (key 46), v0: the moves of partitions that are under way (KIP-455)."""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.broker.api.context import RequestContext, responds_in_turns
from raftlog.broker.api.pace import Pace
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


@responds_in_turns
async def handle(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """Those asked for, or all; partitions that do not move, or do not exist, are left out."""
    image = context.services.controller.image
    wanted: dict[str, Sequence[int]]
    if request.topics is None:
        wanted = {name: range(len(topic.partitions)) for name, topic in image.topics.items()}
    else:
        wanted = {topic.name: topic.partition_indexes for topic in request.topics}
    topics, pace = [], Pace()
    for name, indexes in wanted.items():
        await pace.spend(1 + len(indexes))
        ongoing = [_described(partition) for index in indexes if (partition := _moving(image, name, index)) is not None]
        if ongoing:
            topics.append(OngoingTopicReassignment(name=name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(topics=topics)


def _moving(image: MetadataImage, topic: str, index: int) -> PartitionState | None:
    partition = image.partition(topic, index)
    if partition is None or not (partition.adding_replicas or partition.removing_replicas):
        return None
    return partition


def _described(partition: PartitionState) -> OngoingPartitionReassignment:
    return OngoingPartitionReassignment(
        partition_index=partition.partition_id,
        replicas=list(partition.replicas),
        adding_replicas=list(partition.adding_replicas),
        removing_replicas=list(partition.removing_replicas),
    )
