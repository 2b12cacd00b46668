"""CreateTopics (key 19), v2 to v7.

Defaults for partitions and replicas (KIP-464, v4), the configs in the answer (KIP-525, v5), topic ids (KIP-516, v7).
The answer comes when the topics are committed, so the timeout of the request never passes.
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_later
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.metadata.commands import CreateTopics, NewTopic, TopicResult
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId
from raftlog.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_CONFIGS_FROM = 5


@responds_later
async def handle(context: RequestContext, request: CreateTopicsRequest) -> CreateTopicsResponse:
    """Each topic succeeds or fails on its own."""
    command = CreateTopics(tuple(map(_new_topic, request.topics)), validate_only=request.validate_only)
    answer = await context.services.controller.execute(command, metadata_timeout_seconds(request.timeout_ms))
    made = [f"{r.name} partitions={r.num_partitions}" for r in answer.results if r.error is ErrorCode.NONE]
    context.log_change("topics created", [] if request.validate_only else made)
    return CreateTopicsResponse(topics=[_result(context, result) for result in answer.results])


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((a.partition_index, tuple(map(BrokerId, a.broker_ids))) for a in topic.assignments),
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


def _result(context: RequestContext, result: TopicResult) -> CreatableTopicResult:
    described = CreatableTopicResult(
        name=result.name, topic_id=result.topic_id, error_code=result.error, error_message=result.message
    )
    if result.error is not ErrorCode.NONE or context.api_version < _CONFIGS_FROM:
        return described
    described.num_partitions = result.num_partitions
    described.replication_factor = result.replication_factor
    entries = context.services.config.resolver.describe_topic(context.services.controller.image, dict(result.configs))
    described.configs = [
        CreatableTopicConfigs(
            name=entry.name,
            value=entry.value,
            read_only=entry.is_read_only,
            config_source=int(entry.source),
            is_sensitive=entry.definition.is_sensitive,
        )
        for entry in entries
    ]
    return described
