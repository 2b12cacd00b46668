"""CreatePartitions (key 37), v0 to v3 (KIP-195). The answer comes when the partitions are committed."""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.commands import CreatePartitions, MorePartitions
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId
from raftlog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


@responds_later
async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Each topic succeeds or fails on its own."""
    command = CreatePartitions(tuple(map(_more, request.topics)), validate_only=request.validate_only)
    answer = await context.services.controller.execute(command, metadata_timeout_seconds(request.timeout_ms))
    counts = {topic.name: topic.count for topic in request.topics}
    grown = [f"{name} partitions={counts[name]}" for name, error, _ in answer.results if error is ErrorCode.NONE]
    context.log_change("partitions added", [] if request.validate_only else grown)
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=name, error_code=error, error_message=message)
            for name, error, message in answer.results
        ]
    )


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(map(BrokerId, assignment.broker_ids)) for assignment in topic.assignments)
    return MorePartitions(topic.name, topic.count, assignments)
