"""DescribeConfigs (key 32), v1 to v4.

Settings of topics, of groups, of this broker, and of all brokers together, with synonyms and sources (KIP-226), types
and documentation (KIP-569, v3). Settings that raftlog does not support are not among a broker's settings.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from raftlog.broker.api.context import RequestContext, Response, responds_in_turns
from raftlog.broker.api.logger_configs import describe_loggers, refuse_other_broker
from raftlog.broker.api.pace import ENTRIES_PER_TURN, Pace
from raftlog.broker.api.pieces import Pieces
from raftlog.metadata.configs import DEFAULT_BROKER, ConfigEntry
from raftlog.metadata.records import ResourceType
from raftlog.metadata.topic_names import topic_name_error
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

_RESOURCES_PER_TURN = 8
"""So many take a few milliseconds; then others have their turn."""

Entries = Iterable[ConfigEntry] | tuple[ErrorCode, str]


@responds_in_turns
async def handle(context: RequestContext, request: DescribeConfigsRequest) -> Response:
    """Each resource succeeds or fails on its own. What is asked twice in the same words is answered once, where Kafka
    answers both: the answer stays in proportion to the question.
    """
    distinct: dict[tuple[int, str, frozenset[str]], DescribeConfigsResource] = {}
    pace = Pace()
    for wanted in request.resources:
        await pace.spend(1)
        keys = frozenset(wanted.configuration_keys or ())
        distinct.setdefault((wanted.resource_type, wanted.resource_name, keys), wanted)
    left = iter(distinct.values())
    pieces = Pieces(context)
    while together := list(islice(left, _RESOURCES_PER_TURN)):
        await pace.spend(ENTRIES_PER_TURN)
        results = [_result(context, request, wanted) for wanted in together]
        pieces.add(DescribeConfigsResponse(results=results), len(results))
    return pieces.body()


def _result(
    context: RequestContext, request: DescribeConfigsRequest, wanted: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=wanted.resource_type, resource_name=wanted.resource_name)
    if wanted.resource_type == ResourceType.BROKER_LOGGER:
        return _loggers(context, result, wanted)
    answer = _entries(context, wanted.resource_type, wanted.resource_name)
    if isinstance(answer, tuple):
        result.error_code, result.error_message = answer
        return result
    # Kafka takes an empty list of keys for all of them, too.
    keys = set(wanted.configuration_keys or ())
    result.configs = [_described(entry, request) for entry in answer if not keys or entry.name in keys]
    return result


def _loggers(
    context: RequestContext, result: DescribeConfigsResult, wanted: DescribeConfigsResource
) -> DescribeConfigsResult:
    refusal = refuse_other_broker(wanted.resource_name, context.services.node_id)
    if refusal is not None:
        result.error_code, result.error_message = ErrorCode.INVALID_REQUEST, refusal
    else:
        keys = set(wanted.configuration_keys or ())
        result.configs = [each for each in describe_loggers() if not keys or each.name in keys]
    return result


def _entries(context: RequestContext, resource_type: int, name: str) -> Entries:
    image = context.services.controller.image
    resolver = context.services.config.resolver
    match resource_type:
        case ResourceType.TOPIC:
            problem = topic_name_error(name)
            if problem is not None:
                return ErrorCode.INVALID_TOPIC_EXCEPTION, problem
            if name not in image.topics:
                return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist."
            return resolver.describe_topic(image, image.configs_of(ResourceType.TOPIC, name))
        case ResourceType.BROKER if name == DEFAULT_BROKER:
            return resolver.describe_default_broker(image)
        case ResourceType.BROKER if name == str(context.services.node_id):
            return resolver.describe_broker(image)
        case ResourceType.BROKER:
            own = context.services.node_id
            return (
                ErrorCode.INVALID_REQUEST,
                f"Unexpected broker id, expected {own} or empty string, but received {name}",
            )
        case ResourceType.GROUP if not name:
            return ErrorCode.INVALID_REQUEST, "Group name must not be empty"
        case ResourceType.GROUP:
            return resolver.describe_group(image, name)
        case ResourceType.CLIENT_METRICS:
            return iter(())  # nothing can be set on them yet
        case _:
            return ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource_type}"


def _described(entry: ConfigEntry, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    definition = entry.definition
    described = DescribeConfigsResourceResult(
        name=entry.name,
        value=None if definition.is_sensitive else entry.value,
        read_only=entry.is_read_only,
        config_source=int(entry.source),
        is_sensitive=definition.is_sensitive,
        config_type=int(definition.type),
        documentation=definition.documentation if request.include_documentation else None,
    )
    if request.include_synonyms:
        described.synonyms = [
            DescribeConfigsSynonym(name=synonym.name, value=synonym.value, source=int(synonym.source))
            for synonym in entry.synonyms
        ]
    return described
