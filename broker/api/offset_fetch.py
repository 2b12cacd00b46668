"""OffsetFetch (key 9), v1 to v10: how far groups have come.

All topics (KIP-88, v2), leader epochs (KIP-320, v5), no offsets that a transaction may still change (KIP-447, v7),
several groups (KIP-709, v8), topic ids (KIP-848, v10).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.gather import gather
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.offsets import (
    TOPIC_IDS_FROM,
    FetchedTopic,
    TopicQuery,
    fetch_all_offsets,
    fetch_offsets,
)
from raftlog.broker.runtime.group_host import GroupHost
from raftlog.broker.runtime.group_lag import Lags
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
    Rebalance,
)
from raftlog.wire.schema import ZERO_UUID

_SEVERAL_GROUPS_FROM = 8
_GROUP_ERROR_FROM = 2


def handle(context: RequestContext, request: OffsetFetchRequest) -> None:
    """Answered when all that the answer rests on is committed: an offset that was told is never taken back."""
    version = context.api_version
    groups = _distinct(request.groups) if version >= _SEVERAL_GROUPS_FROM else [_as_group(request)]

    def done(fetched: list[OffsetFetchResponseGroup]) -> None:
        response = _response(version, fetched, request)
        if request.with_lag:
            _add_lag(context, request.group_id, response)
        else:
            context.respond(response)

    gather(context, groups, partial(_fetch, context, require_stable=request.require_stable), done)


def _add_lag(context: RequestContext, group_id: str, response: OffsetFetchResponse) -> None:
    """What raftlog's own client asks for: how far the group is behind, and why it rebalanced lately."""
    fetched = {
        (topic.name, each.partition_index, each.committed_offset): each
        for topic in response.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }

    def add_rebalances(host: GroupHost) -> None:
        group = host.shard.groups.get(group_id)
        response.rebalances = [
            Rebalance(timestamp_ms=when, generation=generation, reason=reason)
            for when, generation, reason in (group.rebalances if group is not None else ())
        ]

    def take(lags: Lags) -> None:
        now_ms = context.services.clock.now_ms()
        for position, lag in lags.items():
            partition = fetched[position]
            partition.high_watermark, partition.last_stable_offset = lag.high_watermark, lag.last_stable_offset
            partition.lag_ms = lag.milliseconds(now_ms)
        context.respond(response)

    # If the group is no longer kept here, the offsets were the last that was known of it.
    context.services.groups.run(group_id, add_rebalances, lambda _: None)
    context.services.lags.find(list(fetched), take)


def _distinct(groups: Sequence[OffsetFetchRequestGroup]) -> list[OffsetFetchRequestGroup]:
    """Each group once for each member that asks, with all that is asked for of it: a small request must not have a
    large answer over and over."""
    asked: dict[tuple[str, str | None, int], list[OffsetFetchRequestTopics] | None] = {}
    for group in groups:
        sender = (group.group_id, group.member_id, group.member_epoch)
        wanted = asked.setdefault(sender, [])
        if group.topics is None:
            asked[sender] = None
        elif wanted is not None:
            wanted.extend(group.topics)
    return [
        OffsetFetchRequestGroup(group_id=group_id, member_id=member_id, member_epoch=member_epoch, topics=topics)
        for (group_id, member_id, member_epoch), topics in asked.items()
    ]


def _distinct_topics(topics: Sequence[OffsetFetchRequestTopics]) -> list[OffsetFetchRequestTopics]:
    """Each topic once, with each of its partitions once."""
    merged: dict[tuple[str, bytes], dict[int, None]] = {}
    for topic in topics:
        merged.setdefault((topic.name, topic.topic_id), {}).update(dict.fromkeys(topic.partition_indexes))
    return [
        OffsetFetchRequestTopics(name=name, topic_id=topic_id, partition_indexes=list(indexes))
        for (name, topic_id), indexes in merged.items()
    ]


def _as_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    """The one group of an old request, in the form of the new ones."""
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=t.name, partition_indexes=t.partition_indexes) for t in topics],
    )


def _fetch(
    context: RequestContext,
    group: OffsetFetchRequestGroup,
    answer: Callable[[OffsetFetchResponseGroup], None],
    *,
    require_stable: bool,
) -> None:
    by_id = context.api_version >= TOPIC_IDS_FROM

    def fetch(host: GroupHost) -> None:
        image = context.services.controller.image
        known = host.shard.groups.get(group.group_id)
        error = ErrorCode.NONE if known is None else known.check_fetch(group.member_id, group.member_epoch)
        if error is not ErrorCode.NONE:
            refuse(error)
            return
        if group.topics is None:
            fetched = fetch_all_offsets(host.shard, group.group_id, image, require_stable=require_stable)
            if by_id:
                fetched = [topic for topic in fetched if topic.topic_id != ZERO_UUID]
        else:
            queries = [_query(topic, image, by_id=by_id) for topic in _distinct_topics(group.topics)]
            fetched = fetch_offsets(host.shard, group.group_id, queries, require_stable=require_stable)
        host.commit(Decision(_group_response(group.group_id, fetched), []), answer, refuse)

    def refuse(error: ErrorCode) -> None:
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # Consumers before Kafka 3.9 take that one here for final; this one they understand.
            error = ErrorCode.NOT_COORDINATOR
        answer(OffsetFetchResponseGroup(group_id=group.group_id, error_code=error))

    context.services.groups.run(group.group_id, fetch, refuse)


def _query(topic: OffsetFetchRequestTopics, image: MetadataImage, *, by_id: bool) -> TopicQuery:
    if by_id:
        found = image.topics_by_id.get(topic.topic_id)
        return TopicQuery(None if found is None else found.name, topic.topic_id, topic.partition_indexes)
    found = image.topics.get(topic.name)
    return TopicQuery(topic.name, ZERO_UUID if found is None else found.topic_id, topic.partition_indexes)


def _group_response(group_id: str, fetched: list[FetchedTopic]) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(
        group_id=group_id,
        topics=[
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=partition.partition,
                        committed_offset=partition.offset,
                        committed_leader_epoch=partition.leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in fetched
        ],
    )


def _response(version: int, groups: list[OffsetFetchResponseGroup], request: OffsetFetchRequest) -> OffsetFetchResponse:
    if version >= _SEVERAL_GROUPS_FROM:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    topics = group.topics
    if group.error_code and version < _GROUP_ERROR_FROM:
        # The oldest version has no place for an error but the partitions.
        topics = _refused_topics(request, group.error_code)
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in topics
        ],
    )


def _refused_topics(request: OffsetFetchRequest, error: int) -> list[OffsetFetchResponseTopics]:
    return [
        OffsetFetchResponseTopics(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartitions(partition_index=index, committed_offset=-1, metadata="", error_code=error)
                for index in topic.partition_indexes
            ],
        )
        for topic in request.topics or ()
    ]
