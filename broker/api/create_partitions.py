"""CreatePartitions (key 37), v0 to v3 (KIP-195). The answer comes when the partitions are committed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.pace import Pace
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.commands import CreatePartitions, MorePartitions
from raftlog.metadata.decision import repeated
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.topic_control import MAX_PARTITIONS_PER_REQUEST
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId
from raftlog.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

Result: TypeAlias = tuple[str, ErrorCode, str | None]
"""A topic, and what became of it."""


@responds_later
async def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Each topic succeeds or fails on its own."""
    controller, validate_only = context.services.controller, request.validate_only
    pace = Pace()
    results = await _refused(request.topics, controller.image, pace)
    wanted = [topic for topic in request.topics if topic.name not in results]
    grown: list[str] = []

    def command(topics: tuple[CreatePartitionsTopic, ...]) -> CreatePartitions:
        return CreatePartitions(tuple(map(_more, topics)), validate_only=validate_only)

    async for answer in controller.execute_in_parts(wanted, command, metadata_timeout_seconds(request.timeout_ms)):
        results.update((result[0], result) for result in answer.results)
        grown += [name for name, error, _ in answer.results if error is ErrorCode.NONE]
    counts = {topic.name: topic.count for topic in wanted}
    grown = [f"{name} partitions={counts[name]}" for name in grown]
    context.log_change("partitions added", [] if validate_only else grown)
    names = dict.fromkeys([topic.name for topic in request.topics])
    return CreatePartitionsResponse(results=await pace.each(names, lambda name: _described(*results[name])))


def _described(name: str, error: ErrorCode, message: str | None) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=name, error_code=error, error_message=message)


async def _refused(topics: Sequence[CreatePartitionsTopic], image: MetadataImage, pace: Pace) -> dict[str, Result]:
    """What has to be refused for the request as a whole; the controller sees parts of it."""
    twice = repeated(topic.name for topic in topics)
    refused: dict[str, Result] = {
        name: (name, ErrorCode.INVALID_REQUEST, "Duplicate topic name.") for name in twice
    }
    added = 0
    for topic in topics:
        await pace.spend(1)
        existing = image.topics.get(topic.name)
        if existing is None or topic.name in twice:
            continue
        added += max(0, topic.count - len(existing.partitions))
        if added > MAX_PARTITIONS_PER_REQUEST:
            message = "Excessively large number of partitions per request."
            refused[topic.name] = topic.name, ErrorCode.POLICY_VIOLATION, message
    return refused


def _more(topic: CreatePartitionsTopic) -> MorePartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = tuple(tuple(map(BrokerId, assignment.broker_ids)) for assignment in topic.assignments)
    return MorePartitions(topic.name, topic.count, assignments)
