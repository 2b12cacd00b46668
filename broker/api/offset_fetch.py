"""OffsetFetch (key 9), v1 to v10: how far groups have come.

All topics (KIP-88, v2), leader epochs (KIP-320, v5), no offsets that a transaction may still change (KIP-447, v7),
several groups (KIP-709, v8), topic ids (KIP-848, v10).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.gather import gather
from raftlog.broker.api.pace import ENTRIES_PER_TURN, Pace
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.offsets import (
    TOPIC_IDS_FROM,
    FetchedOffset,
    FetchedTopic,
    TopicQuery,
    fetch_all_offsets,
    fetch_offsets,
    refused_offsets,
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
_UNSTABLE_FROM = 7


def handle(context: RequestContext, request: OffsetFetchRequest) -> None:
    """Answered when all that the answer rests on is committed: an offset that was told is never taken back."""
    version = context.api_version
    groups = _distinct(request.groups) if version >= _SEVERAL_GROUPS_FROM else [_as_group(request)]

    def done(fetched: list[OffsetFetchResponseGroup]) -> None:
        context.in_turns(_response(version, fetched), finish)

    def finish(response: OffsetFetchResponse) -> None:
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


async def _queries(context: RequestContext, topics: Sequence[OffsetFetchRequestTopics]) -> list[TopicQuery]:
    """Each topic once, with each of its partitions once."""
    image, by_id, pace = context.services.controller.image, context.api_version >= TOPIC_IDS_FROM, Pace()
    merged: dict[tuple[str, bytes], dict[int, None]] = {}

    def add(topic: OffsetFetchRequestTopics) -> None:
        merged.setdefault((topic.name, topic.topic_id), {}).update(dict.fromkeys(topic.partition_indexes))

    await pace.each(topics, add)
    return await pace.each(merged.items(), lambda item: _query(*item[0], list(item[1]), image, by_id=by_id))


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
    """What is answered is what was known in one turn; before and after that others have theirs."""
    by_id = context.api_version >= TOPIC_IDS_FROM

    def fetch(queries: list[TopicQuery], host: GroupHost) -> None:
        image = context.services.controller.image
        known = host.shard.groups.get(group.group_id)
        error = ErrorCode.NONE if known is None else known.check_fetch(group.member_id, group.member_epoch)
        if error is not ErrorCode.NONE:
            refuse(queries, error)
            return
        if group.topics is None:
            every = fetch_all_offsets(host.shard, group.group_id, image, require_stable=require_stable)
            fetched = iter([topic for topic in every if not by_id or topic.topic_id != ZERO_UUID])
        else:
            fetched = fetch_offsets(host.shard, group.group_id, queries, require_stable=require_stable)
        host.commit(Decision(fetched, []), tell, partial(refuse, queries))

    def tell(fetched: Iterator[FetchedTopic]) -> None:
        context.in_turns(_group_response(context, group.group_id, fetched, ErrorCode.NONE), answer)

    def refuse(queries: list[TopicQuery], error: ErrorCode) -> None:
        if error is ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # Consumers before Kafka 3.9 take that one here for final; this one they understand.
            error = ErrorCode.NOT_COORDINATOR
        fetched = refused_offsets(queries, _refusal_of_partitions(context.api_version, error))
        context.in_turns(_group_response(context, group.group_id, fetched, error), answer)

    def run(queries: list[TopicQuery]) -> None:
        context.services.groups.run(group.group_id, partial(fetch, queries), partial(refuse, queries))

    context.in_turns(_queries(context, group.topics or ()), run)


def _refusal_of_partitions(version: int, error: ErrorCode) -> ErrorCode:
    """What is said of each partition when its group is refused; NONE for nothing. Kafka says nothing from v2 on.

    aiokafka, which speaks v3, looks only there, and takes partitions that are not named for partitions without an
    offset. librdkafka asks another coordinator, but does not ask it for the offsets again, unless they were unstable.
    """
    if version < _UNSTABLE_FROM:
        return error
    return ErrorCode.UNSTABLE_OFFSET_COMMIT if error is ErrorCode.NOT_COORDINATOR else ErrorCode.NONE


def _query(
    name: str, topic_id: bytes, partitions: Sequence[int], image: MetadataImage, *, by_id: bool
) -> TopicQuery:
    if by_id:
        found = image.topics_by_id.get(topic_id)
        return TopicQuery(None if found is None else found.name, topic_id, partitions)
    found = image.topics.get(name)
    return TopicQuery(name, ZERO_UUID if found is None else found.topic_id, partitions)


async def _group_response(
    context: RequestContext, group_id: str, fetched: Iterator[FetchedTopic], error: ErrorCode
) -> OffsetFetchResponseGroup:
    pace = Pace()
    topics = [
        OffsetFetchResponseTopics(
            name=topic.name, topic_id=topic.topic_id, partitions=await pace.each(topic.each(), _partition)
        )
        for topic in fetched
    ]
    # The request may have been as small as one that names no topics.
    context.is_large = context.is_large or sum([len(topic.partitions) for topic in topics]) > ENTRIES_PER_TURN
    return OffsetFetchResponseGroup(group_id=group_id, topics=topics, error_code=error)


def _partition(fetched: FetchedOffset) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=fetched.partition,
        committed_offset=fetched.offset,
        committed_leader_epoch=fetched.leader_epoch,
        metadata=fetched.metadata,
        error_code=fetched.error,
    )


async def _response(version: int, groups: list[OffsetFetchResponseGroup]) -> OffsetFetchResponse:
    if version >= _SEVERAL_GROUPS_FROM:
        return OffsetFetchResponse(groups=groups)
    (group,) = groups
    pace = Pace()
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name, partitions=await pace.each(topic.partitions, _partition_of_old_version)
            )
            for topic in group.topics
        ],
    )


def _partition_of_old_version(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition:
    return OffsetFetchResponsePartition(
        partition_index=partition.partition_index,
        committed_offset=partition.committed_offset,
        committed_leader_epoch=partition.committed_leader_epoch,
        metadata=partition.metadata,
        error_code=partition.error_code,
    )
