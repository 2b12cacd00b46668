"""Metadata (key 3), v0 to v13.

All topics, or those named (v12: by id, KIP-516), with their leaders; creates topics that are not there when both
the client (v4) and the broker allow it, and describes them in the same answer. A broker tells each client its own
address as the one that the client connected to, unless one is configured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.pace import Pace
from raftlog.broker.api.topics_encoding import (
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    encode_all_topics,
    encode_length,
    encode_topic_error,
    encode_topics,
)
from raftlog.metadata.image import MetadataImage, TopicImage
from raftlog.metadata.topic_names import topic_name_error
from raftlog.wire.codec import encode
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)
from raftlog.wire.schema import ZERO_UUID

CLUSTER_OPERATIONS = 0x1FA0
"""CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS and IDEMPOTENT_WRITE (KIP-430)."""

_BY_ID_FROM = 12
_TOPICS_TOGETHER = 100


def handle(context: RequestContext, request: MetadataRequest) -> None:
    """The whole body, already encoded; later only when topics have to be created first."""
    version, wanted = context.api_version, request.topics
    if wanted is None or (version == 0 and not wanted):
        context.respond(_all(context, request))
        return
    if any(_is_invalid(topic, version) for topic in wanted):
        context.in_turns(_invalid(context, request, wanted), context.respond)
        return
    ids = tuple(dict.fromkeys(topic.topic_id for topic in wanted if topic.topic_id != ZERO_UUID))
    if ids:
        context.in_turns(_by_id(context, request, ids), context.respond)
        return
    image = context.services.controller.image
    names = tuple(dict.fromkeys(topic.name for topic in wanted if topic.name is not None))
    missing = [name for name in names if name not in image.topics]
    if missing and request.allow_auto_topic_creation and context.services.config["auto.create.topics.enable"]:
        context.respond_with(_created(context, request, names, missing))
    else:
        context.in_turns(_by_name(context, request, names, {}), context.respond)


def _all(context: RequestContext, request: MetadataRequest) -> bytes:
    image, version = context.services.controller.image, context.api_version
    suspects = context.services.suspects.current()
    operations = _operations(request)
    if operations == NO_OPERATIONS:
        return _reply(context, request, encode_all_topics(image, version, suspects))
    every = encode_topics(image, image.topics.values(), version, operations, suspects=suspects)
    return _reply(context, request, encode_length(len(image.topics), version) + every)


def _is_invalid(topic: MetadataRequestTopic, version: int) -> bool:
    if version < _BY_ID_FROM:
        return topic.name is None or topic.topic_id != ZERO_UUID
    return topic.name is None and topic.topic_id == ZERO_UUID


async def _invalid(context: RequestContext, request: MetadataRequest, wanted: Sequence[MetadataRequestTopic]) -> bytes:
    error, version = ErrorCode.INVALID_REQUEST, context.api_version
    topics = await Pace().each(
        wanted, lambda topic: encode_topic_error(topic.name, topic.topic_id, error, version)
    )
    return _reply(context, request, b"".join((encode_length(len(topics), version), *topics)))


def _operations(request: MetadataRequest) -> int:
    return TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS


async def _by_id(context: RequestContext, request: MetadataRequest, ids: Sequence[bytes]) -> bytes:
    image, version = context.services.controller.image, context.api_version
    found = [topic for topic_id in ids if (topic := image.topics_by_id.get(topic_id)) is not None]
    unknown = await Pace().each(
        [topic_id for topic_id in ids if topic_id not in image.topics_by_id],
        lambda topic_id: encode_topic_error(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, version),
    )
    return await _described(context, request, image, found, unknown)


async def _created(
    context: RequestContext, request: MetadataRequest, names: Sequence[str], missing: Sequence[str]
) -> bytes:
    results = await context.services.controller.create_automatically(missing)
    made = [f"{r.name} partitions={r.num_partitions}" for r in results if r.error is ErrorCode.NONE]
    context.log_change("topics created on first use", made)
    await asyncio.sleep(0)
    return await _by_name(context, request, names, {result.name: result.error for result in results})


async def _by_name(
    context: RequestContext, request: MetadataRequest, names: Sequence[str], errors: Mapping[str, ErrorCode]
) -> bytes:
    image, version = context.services.controller.image, context.api_version
    pace = Pace()
    known = await pace.each(names, image.topics.get)
    existing = [topic for topic in known if topic is not None]
    refused: list[bytes] = []
    if len(existing) < len(names):
        refused = await pace.each(
            [name for name, topic in zip(names, known, strict=True) if topic is None],
            lambda name: encode_topic_error(name, ZERO_UUID, errors.get(name) or _missing(name), version),
        )
    return await _described(context, request, image, existing, refused)


def _missing(name: str) -> ErrorCode:
    if topic_name_error(name) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def _described(
    context: RequestContext,
    request: MetadataRequest,
    image: MetadataImage,
    topics: Sequence[TopicImage],
    errors: Sequence[bytes],
) -> bytes:
    """The reply about these topics as they are in the image, with what is encoded already about others."""
    version, operations = context.api_version, _operations(request)
    suspects = context.services.suspects.current()
    pace = Pace()
    described = []
    for start in range(0, len(topics), _TOPICS_TOGETHER):
        together = topics[start : start + _TOPICS_TOGETHER]
        if start:
            await pace.spend(sum([len(topic.partitions) for topic in together]))
        described.append(encode_topics(image, together, version, operations, suspects=suspects))
    return _reply(
        context, request, b"".join((encode_length(len(topics) + len(errors), version), *described, *errors))
    )


# -- around the topics ------------------------------------------------------------------------------


def client_brokers(
    context: RequestContext, image: MetadataImage, *, fenced: bool = False
) -> list[tuple[int, str, int, str | None]]:
    """Id, host, port and rack of every broker that this client can use, as it should see them; or of those that are
    `fenced`."""
    brokers: list[tuple[int, str, int, str | None]] = []
    for broker in image.brokers.values():
        if broker.fenced is not fenced:
            continue
        if broker.broker_id == context.services.node_id:
            brokers.append((broker.broker_id, *context.advertised, broker.rack))
            continue
        endpoint = broker.endpoint(context.listener_name)
        if endpoint is not None:
            # A broker that listens everywhere and says nothing else is most likely where this one was found.
            host = endpoint.host or context.advertised[0]
            brokers.append((broker.broker_id, host, endpoint.port, broker.rack))
    return brokers


def client_controller_id(context: RequestContext, image: MetadataImage) -> int:
    """The broker that decides on metadata, or -1 when nobody does. Another one, who will ask it, where clients cannot
    use it: it may be fenced because its disk is full, and decides all the same.
    """
    leader, own_id = context.services.controller.controller_id, context.services.node_id
    if leader < 0:
        return -1
    for broker_id in (leader, own_id):
        broker = image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            return broker_id
    return min((broker_id for broker_id, broker in image.brokers.items() if not broker.fenced), default=-1)


def _reply(context: RequestContext, request: MetadataRequest, topics: bytes) -> bytes:
    image = context.services.controller.image
    response = MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in client_brokers(context, image)
        ],
        cluster_id=image.cluster_id,
        controller_id=client_controller_id(context, image),
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return _splice(encode(response, context.api_version), topics, context.api_version)


def _splice(frame: bytes, topics: bytes, version: int) -> bytes:
    """Put the topics (with their length) in the place of the empty array near the end of an encoded response."""
    after = 0
    if version >= 13:
        after = 2 + 1  # error code, tags
    elif version >= 9:
        after = 1 + (4 if version <= 10 else 0)  # tags, cluster's operations
    elif version == 8:
        after = 4
    empty_array = 1 if version >= 9 else 4
    end = len(frame) - after
    return b"".join((frame[: end - empty_array], topics, frame[end:]))
