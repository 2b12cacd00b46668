"""FindCoordinator (key 10), v0 to v6: which broker keeps a group, or a transactional id.

Several keys at once (KIP-699, v4). Share groups (KIP-932, v6) have no coordinator here; their keys are refused in
words. The topic in which a coordinator keeps what it knows is created when it is first asked for.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.metadata import client_brokers
from raftlog.broker.api.pace import Pace
from raftlog.broker.core.coordinator.shared import GROUP_TOPIC, TRANSACTION_TOPIC, coordinator_partition
from raftlog.metadata.image import TopicImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_TOPICS = {0: GROUP_TOPIC, 1: TRANSACTION_TOPIC}
"""Where the keys of each type are kept."""

_SHARE = 2
_SEVERAL_KEYS_FROM = 4
_NO_NODE = -1


class _Place(NamedTuple):
    """Where a coordinator is, or why that cannot be said."""

    error: ErrorCode
    message: str
    node_id: int = _NO_NODE
    host: str = ""
    port: int = -1


_NO_LEADER = _Place(
    ErrorCode.COORDINATOR_NOT_AVAILABLE, "The partition that keeps this key has no leader at the moment."
)


def handle(context: RequestContext, request: FindCoordinatorRequest) -> None:
    """The leader of each key's partition, at the address that this client is to use."""
    name = _TOPICS.get(request.key_type)
    if name is None:
        context.in_turns(_answer(context, request, _refused(request.key_type)), context.respond)
    elif (topic := context.services.controller.image.topics.get(name)) is not None:
        context.in_turns(_answer(context, request, topic), context.respond)
    else:
        context.respond_with(_create_and_answer(context, request, name))


def _refused(key_type: int) -> _Place:
    if key_type == _SHARE:
        return _Place(ErrorCode.INVALID_REQUEST, "Share groups are not supported by this broker.")
    return _Place(ErrorCode.INVALID_REQUEST, f"There is no coordinator of type {key_type}.")


async def _create_and_answer(
    context: RequestContext, request: FindCoordinatorRequest, name: str
) -> FindCoordinatorResponse:
    controller = context.services.controller
    result = await controller.ensure_internal_topic(name)
    topic = controller.image.topics.get(name)
    if topic is None:
        return await _answer(context, request, _Place(ErrorCode.COORDINATOR_NOT_AVAILABLE, result.message or ""))
    return await _answer(context, request, topic)


async def _answer(
    context: RequestContext, request: FindCoordinatorRequest, where: _Place | TopicImage
) -> FindCoordinatorResponse:
    places = {} if isinstance(where, _Place) else _places(context)
    if context.api_version < _SEVERAL_KEYS_FROM:
        place = where if isinstance(where, _Place) else _locate(where, places, request.key)
        return FindCoordinatorResponse(
            error_code=place.error,
            # Kafka's clients were written against this word; with several keys it is an empty text.
            error_message=place.message or ErrorCode.NONE.name,
            node_id=place.node_id,
            host=place.host,
            port=place.port,
        )
    coordinators, pace = [], Pace()
    for key in request.coordinator_keys:
        await pace.spend(1)
        place = where if isinstance(where, _Place) else _locate(where, places, key)
        coordinators.append(
            Coordinator(
                key=key,
                node_id=place.node_id,
                host=place.host,
                port=place.port,
                error_code=place.error,
                error_message=place.message,
            )
        )
    return FindCoordinatorResponse(coordinators=coordinators)


def _places(context: RequestContext) -> dict[int, _Place]:
    """Where each broker is that this client can use, for all keys of a request: there may be thousands."""
    suspects = context.services.suspects.current()
    brokers = client_brokers(context, context.services.controller.image)
    return {
        broker_id: _Place(ErrorCode.NONE, "", broker_id, host, port)
        for broker_id, host, port, _ in brokers
        if broker_id not in suspects
    }


def _locate(topic: TopicImage, places: dict[int, _Place], key: str) -> _Place:
    leader = topic.partitions[coordinator_partition(key, len(topic.partitions))].leader
    return places.get(leader, _NO_LEADER)
