"""CreateTopics (key 19), v2 to v7.

Defaults for partitions and replicas (KIP-464, v4), the configs in the answer (KIP-525, v5), topic ids (KIP-516, v7).
The answer comes when the topics are committed, so the timeout of the request never passes. A request with thousands of
topics becomes many commands, each with its own entry in the log, and its answer is made in pieces: nobody else waits.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from raftlog.broker.api.context import RequestContext, Response, responds_later
from raftlog.broker.api.pace import Pace
from raftlog.broker.api.pieces import Pieces
from raftlog.broker.api.request_timeouts import metadata_timeout_seconds
from raftlog.broker.runtime.controller import CHANGES_TOGETHER
from raftlog.metadata.commands import USE_DEFAULT, CreateTopics, NewTopic, TopicResult
from raftlog.metadata.topic_control import MAX_PARTITIONS_PER_REQUEST
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
async def handle(context: RequestContext, request: CreateTopicsRequest) -> Response:
    """Each topic succeeds or fails on its own."""
    services = context.services
    wanted, refused = await _checked(request.topics, services.config["num.partitions"])
    pieces = Pieces(context)
    for start in range(0, len(refused), CHANGES_TOGETHER):
        together = refused[start : start + CHANGES_TOGETHER]
        pieces.add(CreateTopicsResponse(topics=together), len(together))
        await asyncio.sleep(0)
    describe = _Describer(context)
    made: list[str] = []
    seconds = metadata_timeout_seconds(request.timeout_ms)

    def command(topics: tuple[CreatableTopic, ...]) -> CreateTopics:
        return CreateTopics(tuple(map(_new_topic, topics)), validate_only=request.validate_only)

    async for answer in services.controller.execute_in_parts(wanted, command, seconds):
        made += [f"{r.name} partitions={r.num_partitions}" for r in answer.results if r.error is ErrorCode.NONE]
        await asyncio.sleep(0)
        described = [describe.result(result) for result in answer.results]
        pieces.add(CreateTopicsResponse(topics=described), len(described))
    context.log_change("topics created", [] if request.validate_only else made)
    return pieces.body()


async def _checked(
    topics: Sequence[CreatableTopic], partitions_default: int
) -> tuple[list[CreatableTopic], list[CreatableTopicResult]]:
    """What has to be looked at in the request as a whole: what may be tried, and what is refused."""
    named = Counter(topic.name for topic in topics)
    wanted: list[CreatableTopic] = []
    partitions, pace = 0, Pace()
    for topic in topics:
        await pace.spend(1)
        if named[topic.name] > 1:
            continue
        count = topic.num_partitions if topic.num_partitions != USE_DEFAULT else partitions_default
        partitions += len(topic.assignments) or max(0, count)
        wanted.append(topic)
    if partitions > MAX_PARTITIONS_PER_REQUEST:
        error, message = ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        return [], await pace.each(topics, lambda topic: _refused(topic.name, error, message))
    error, message = ErrorCode.INVALID_REQUEST, "Duplicate topic name."
    twice = [name for name, count in named.items() if count > 1]
    return wanted, await pace.each(twice, lambda name: _refused(name, error, message))


def _refused(name: str, error: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error, error_message=message)


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        name=topic.name,
        num_partitions=topic.num_partitions,
        replication_factor=topic.replication_factor,
        assignments=tuple((a.partition_index, tuple(map(BrokerId, a.broker_ids))) for a in topic.assignments),
        configs=tuple((config.name, config.value) for config in topic.configs),
    )


class _Describer:
    """Makes the results of one request. Topics with the same settings are described once."""

    def __init__(self, context: RequestContext) -> None:
        self._context = context
        self._known: dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]] = {}

    def result(self, result: TopicResult) -> CreatableTopicResult:
        described = CreatableTopicResult(
            name=result.name, topic_id=result.topic_id, error_code=result.error, error_message=result.message
        )
        if result.error is not ErrorCode.NONE or self._context.api_version < _CONFIGS_FROM:
            return described
        described.num_partitions = result.num_partitions
        described.replication_factor = result.replication_factor
        described.configs = self._configs(tuple(result.configs))
        return described

    def _configs(self, configs: tuple[tuple[str, str], ...]) -> list[CreatableTopicConfigs]:
        known = self._known.get(configs)
        if known is None:
            services = self._context.services
            entries = services.config.resolver.describe_topic(services.controller.image, dict(configs))
            known = self._known[configs] = [
                CreatableTopicConfigs(
                    name=entry.name,
                    value=entry.value,
                    read_only=entry.is_read_only,
                    config_source=int(entry.source),
                    is_sensitive=entry.definition.is_sensitive,
                )
                for entry in entries
            ]
        return known
