"""Committed offsets: OffsetCommit, OffsetFetch and OffsetDelete, and when offsets expire.

KIP-211, KIP-447, KIP-496, KIP-709, KIP-848 for the error codes, KIP-1106.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.group import Committer, Group
from raftlog.broker.core.group.records import (
    NO_EXPIRY,
    CommittedOffset,
    CoordinatorRecord,
    OffsetRecord,
)
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.topic_offsets import commit_together
from raftlog.metadata.image import MetadataImage, TopicImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import LeaderEpoch, Offset
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from raftlog.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from raftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequestPartition
from raftlog.wire.schema import ZERO_UUID

# From this version on topics are named by id only (KIP-848).
TOPIC_IDS_FROM = 10
# From this version on a group that is not there is called so (KIP-848).
GROUP_NOT_FOUND_FROM = 9
NO_OFFSET, NO_EPOCH = Offset(-1), LeaderEpoch(-1)
NO_RETENTION_TIME = -1
INT64_MAX = (1 << 63) - 1


# --- OffsetCommit


def check_commit(group: Group | None, committer: Committer) -> ErrorCode:
    """Whether this one may commit; to a group that is not there everybody who does not take it for one with members."""
    if group is not None:
        return group.check_commit(committer)
    if committer.generation < 0:
        return ErrorCode.NONE
    knows_not_found = committer.api_version >= GROUP_NOT_FOUND_FROM and not committer.is_transactional
    return ErrorCode.GROUP_ID_NOT_FOUND if knows_not_found else ErrorCode.ILLEGAL_GENERATION


def check_partitions(group: Group, committer: Committer, partitions: Iterable[tuple[bytes, int]]) -> ErrorCode:
    """Whether who may commit may do so for all of these partitions, by topic id and index."""
    check = group.partition_check(committer)
    if check is None:
        return ErrorCode.NONE
    errors = (check(topic_id, index) for topic_id, index in partitions)
    return next((error for error in errors if error is not ErrorCode.NONE), ErrorCode.NONE)


def _partitions_of(request: OffsetCommitRequest, api_version: int, image: MetadataImage) -> Iterator[tuple[bytes, int]]:
    """Topic id and index of all that is committed, as far as there are such topics."""
    for topic in request.topics:
        found, _ = _find_topic(topic, api_version, image)
        if found is not None:
            yield from ((found.topic_id, partition.partition_index) for partition in topic.partitions)


def commit_offsets(
    shard: GroupCoordinatorShard, request: OffsetCommitRequest, api_version: int, image: MetadataImage, now: Now
) -> Decision[OffsetCommitResponse]:
    """Decide an OffsetCommit. `image` says which topics there are."""
    group_id = request.group_id
    group = shard.groups.get(group_id)
    generation = request.generation_id_or_member_epoch
    committer = Committer(request.member_id, request.group_instance_id, generation, api_version)
    error = check_commit(group, committer)
    if error is ErrorCode.NONE and group is not None:
        error = check_partitions(group, committer, _partitions_of(request, api_version, image))
    if error is not ErrorCode.NONE:
        return Decision(refuse_commit(request, error, api_version, image), [])
    if isinstance(group, ClassicGroup) and (member := group.members.get(request.member_id)) is not None:
        shard.keep_alive(member, now)
    expires_ms = NO_EXPIRY
    if request.retention_time_ms != NO_RETENTION_TIME:
        expires_ms = min(now.wall_ms + max(request.retention_time_ms, 0), INT64_MAX)
    metadata_max = shard.config.offset_metadata_max_bytes
    records: list[CoordinatorRecord] = []
    topics = []
    for topic in request.topics:
        if not topic.partitions:
            continue
        found, missing = _find_topic(topic, api_version, image)
        count = 0 if found is None else len(found.partitions)
        if found is not None and expires_ms == NO_EXPIRY:
            together = commit_together(group_id, found, topic.partitions, now)
            if together:
                records += together
                topics.append(_answered(topic, ErrorCode.NONE, missing, count))
                continue
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            if found is None or not 0 <= index < count:
                partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=missing))
                continue
            if len(partition.committed_metadata or "") > metadata_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                error = ErrorCode.NONE
                value = committed_offset(partition, found.topic_id, now, expires_ms)
                records.append(OffsetRecord(group_id, found.name, index, value))
            partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=error))
        topics.append(OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return Decision(OffsetCommitResponse(topics=topics), records)


def committed_offset(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: bytes,
    now: Now,
    expires_ms: int = NO_EXPIRY,
) -> CommittedOffset:
    """What is kept of one partition of a commit."""
    return CommittedOffset(
        Offset(partition.committed_offset),
        LeaderEpoch(partition.committed_leader_epoch),
        partition.committed_metadata or "",
        now.wall_ms,
        expires_ms,
        # The form of record that has an expiry time has no room for the id.
        topic_id if expires_ms == NO_EXPIRY else ZERO_UUID,
    )


def _find_topic(
    topic: OffsetCommitRequestTopic, api_version: int, image: MetadataImage
) -> tuple[TopicImage | None, ErrorCode]:
    """The topic, and what to say of it if it, or a partition, is not there."""
    if api_version >= TOPIC_IDS_FROM:
        found = image.topics_by_id.get(topic.topic_id)
        return found, ErrorCode.UNKNOWN_TOPIC_ID if found is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return image.topics.get(topic.name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def refuse_commit(
    request: OffsetCommitRequest, error: ErrorCode, api_version: int, image: MetadataImage
) -> OffsetCommitResponse:
    """The answer in which every partition has `error`, but for those that are not there. A topic without partitions is
    left out, as by Kafka.
    """
    topics = []
    for topic in request.topics:
        if topic.partitions:
            found, missing = _find_topic(topic, api_version, image)
            topics.append(_answered(topic, error, missing, 0 if found is None else len(found.partitions)))
    return OffsetCommitResponse(topics=topics)


def _answered(
    topic: OffsetCommitRequestTopic, error: ErrorCode, missing: ErrorCode, count: int
) -> OffsetCommitResponseTopic:
    """`missing` is what is said of partitions beyond the `count` that there are."""
    indexes = [partition.partition_index for partition in topic.partitions]
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[_answered_partition(index, error if 0 <= index < count else missing) for index in indexes],
    )


@lru_cache(maxsize=4096)
def _answered_partition(index: int, error: ErrorCode) -> OffsetCommitResponsePartition:
    """Shared by responses, for a commit of a thousand partitions spends as long making these as on all it decides."""
    return OffsetCommitResponsePartition(partition_index=index, error_code=error)


# --- OffsetFetch


class TopicQuery(NamedTuple):
    """The partitions of one topic that are asked for. `name` is None when no topic has the id that was asked for."""

    name: str | None
    topic_id: bytes
    partitions: Sequence[int]


class FetchedOffset(NamedTuple):
    """What is known of one partition; `offset` is NO_OFFSET when nothing was committed for it."""

    partition: int
    offset: Offset
    leader_epoch: LeaderEpoch
    metadata: str
    error: ErrorCode


class FetchedTopic(NamedTuple):
    """What is known of one topic, as it was when that was asked: of each of the partitions its offset, or why there is
    none to tell. To keep them takes much less time than to put them into words, which may wait."""

    name: str
    topic_id: bytes
    indexes: Sequence[int]
    known: Sequence[CommittedOffset | ErrorCode | None]

    def each(self) -> Iterator[FetchedOffset]:
        """One partition after the other."""
        for index, known in zip(self.indexes, self.known, strict=True):
            yield _fetched(index, known, self.topic_id)

    @property
    def partitions(self) -> list[FetchedOffset]:
        """All of them."""
        return list(self.each())


def fetch_offsets(
    shard: GroupCoordinatorShard, group_id: str, queries: Sequence[TopicQuery], *, require_stable: bool = False
) -> Iterator[FetchedTopic]:
    """The committed offsets of the partitions asked for, in that order. A group that is not there has none. They are
    looked up now, all of them; what is told of each topic is made when it is its turn.

    With `require_stable`, one that an open transaction may change is UNSTABLE_OFFSET_COMMIT (KIP-447).
    """
    group = shard.groups.get(group_id)
    by_topic: Mapping[str, Mapping[int, CommittedOffset]] = {} if group is None else group.offsets.by_topic
    nothing: Mapping[int, CommittedOffset] = {}
    known: list[CommittedOffset | ErrorCode | None]
    known = [by_topic.get(name or "", nothing).get(index) for name, _, partitions in queries for index in partitions]
    return _by_topic(queries, _stable(queries, known, group, require_stable=require_stable))


def refused_offsets(queries: Iterable[TopicQuery], error: ErrorCode) -> Iterator[FetchedTopic]:
    """That error for each partition; of NONE no topics."""
    if error is not ErrorCode.NONE:
        for name, topic_id, partitions in queries:
            yield FetchedTopic(name or "", topic_id, partitions, [error] * len(partitions))


def _by_topic(
    queries: Iterable[TopicQuery], known: Sequence[CommittedOffset | ErrorCode | None]
) -> Iterator[FetchedTopic]:
    first = 0
    for name, topic_id, partitions in queries:
        end = first + len(partitions)
        if name is None:
            yield FetchedTopic("", topic_id, partitions, [ErrorCode.UNKNOWN_TOPIC_ID] * len(partitions))
        else:
            yield FetchedTopic(name, topic_id, partitions, known[first:end])
        first = end


def _stable(
    queries: Iterable[TopicQuery],
    known: list[CommittedOffset | ErrorCode | None],
    group: Group | None,
    *,
    require_stable: bool,
) -> list[CommittedOffset | ErrorCode | None]:
    """What is known of these partitions, without what an open transaction may change."""
    unstable = group.offsets.pending if require_stable and group is not None else None
    if not unstable:
        return known
    error = ErrorCode.UNSTABLE_OFFSET_COMMIT
    named = ((name, index) for name, _, partitions in queries for index in partitions)
    return [error if each in unstable else found for each, found in zip(named, known, strict=True)]


def fetch_all_offsets(
    shard: GroupCoordinatorShard, group_id: str, image: MetadataImage, *, require_stable: bool = False
) -> list[FetchedTopic]:
    """All that the group has committed. A topic that is not there any more has an id of zeros."""
    group = shard.groups.get(group_id)
    queries: list[TopicQuery] = []
    known: list[CommittedOffset | ErrorCode | None] = []
    for name, offsets in () if group is None else group.offsets.by_topic.items():
        topic = image.topics.get(name)
        queries.append(TopicQuery(name, ZERO_UUID if topic is None else topic.topic_id, list(offsets)))
        known += offsets.values()
    return list(_by_topic(queries, _stable(queries, known, group, require_stable=require_stable)))


def _fetched(partition: int, known: CommittedOffset | ErrorCode | None, topic_id: bytes) -> FetchedOffset:
    if isinstance(known, ErrorCode):
        return _no_offset(partition, known)
    if known is None or (known.topic_id != topic_id and ZERO_UUID not in (known.topic_id, topic_id)):
        # Of another topic that had this name before, the offset says nothing.
        return _no_offset(partition, ErrorCode.NONE)
    return FetchedOffset(partition, known.offset, known.leader_epoch, known.metadata, ErrorCode.NONE)


def _no_offset(partition: int, error: ErrorCode) -> FetchedOffset:
    return FetchedOffset(partition, NO_OFFSET, NO_EPOCH, "", error)


# --- OffsetDelete


def delete_offsets(
    shard: GroupCoordinatorShard, request: OffsetDeleteRequest, image: MetadataImage
) -> Decision[OffsetDeleteResponse]:
    """Decide an OffsetDelete: topics that members may be consuming are refused (KIP-496)."""
    if not request.group_id:
        return Decision(OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID), [])
    group = shard.groups.get(request.group_id)
    if group is None:
        return Decision(OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND), [])
    error = group.check_delete_offsets()
    if error is not ErrorCode.NONE:
        return Decision(OffsetDeleteResponse(error_code=error), [])
    records: list[CoordinatorRecord] = []
    topics = []
    for topic in request.topics:
        if not topic.partitions:
            continue
        found = image.topics.get(topic.name)
        count = 0 if found is None else len(found.partitions)
        subscribed = group.is_subscribed_to(topic.name)
        known = group.offsets.of_topic(topic.name)
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            error = ErrorCode.NONE
            if not 0 <= index < count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif subscribed:
                error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            elif index in known or group.offsets.is_pending(topic.name, index):
                records.append(OffsetRecord(group.group_id, topic.name, index, None))
            partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
    return Decision(OffsetDeleteResponse(topics=topics), records)


# --- expiry


def expire_group(config: GroupConfig, group: Group, now: Now) -> list[CoordinatorRecord]:
    """Removals for the offsets of a group that have expired (KIP-211), and for the group when it has none left."""
    records: list[CoordinatorRecord] = []
    offsets = group.offsets
    for topic, partition in _expired(group, config.offsets_retention_ms, now):
        records.append(OffsetRecord(group.group_id, topic, partition, None))
    left = sum(map(len, offsets.by_topic.values())) - len(records)
    if left == 0 and not offsets.pending and group.is_empty and not group.is_awaited:
        records += group.removals()
    return records


def _expired(group: Group, retention_ms: int, now: Now) -> Iterator[tuple[str, int]]:
    """(topic, partition) of the committed offsets whose time is over, and which no transaction is about to change."""
    offsets = group.offsets
    for topic, partitions in offsets.by_topic.items():
        for partition, known in partitions.items():
            unused_since_ms = group.unused_since_ms(topic, known)
            if unused_since_ms is None:
                continue
            expires_ms = known.expire_timestamp_ms
            if expires_ms == NO_EXPIRY:
                expires_ms = unused_since_ms + retention_ms
            if now.wall_ms >= expires_ms and not offsets.is_pending(topic, partition):
                yield topic, partition


def forget_topics(shard: GroupCoordinatorShard, topics: Iterable[str]) -> list[CoordinatorRecord]:
    """Removals for all offsets of topics that were deleted."""
    names = list(topics)
    return [
        OffsetRecord(group.group_id, name, partition, None)
        for group in shard.groups.values()
        for name in names
        for partition in group.offsets.partitions_of(name)
    ]


def forget_missing_topics(group: Group, image: MetadataImage) -> list[CoordinatorRecord]:
    """Removals for offsets of topics that are not there: they were deleted while nobody led this shard.

    `image` must be no older than the one in which this broker became leader. Whoever took the commit before knew an
    older one, or it would not have taken itself for the leader, and the topic was in that.
    """
    is_gone: dict[tuple[str, int], bool] = {}
    for name, partition, known in group.offsets.values():
        # A removal takes all that there is of a partition, and a topic of that name may be there again.
        is_gone[name, partition] = is_gone.get((name, partition), True) and _is_gone(name, known.topic_id, image)
    return [OffsetRecord(group.group_id, *partition, None) for partition, gone in is_gone.items() if gone]


def _is_gone(name: str, topic_id: bytes, image: MetadataImage) -> bool:
    if topic_id != ZERO_UUID:
        return topic_id not in image.topics_by_id
    return name not in image.topics
