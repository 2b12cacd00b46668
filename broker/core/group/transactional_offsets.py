"""TxnOffsetCommit: offsets that count when the transaction of their producer commits (KIP-98, KIP-447)."""

from __future__ import annotations

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.group import Committer
from raftlog.broker.core.group.offsets import check_commit, check_partitions, committed_offset
from raftlog.broker.core.group.records import CoordinatorRecord, OffsetRecord
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.metadata.image import MetadataImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

# Clients from before this version take a loading coordinator for the end (KAFKA-7296).
LOADING_KNOWN_FROM = 2


def commit_in_transaction(
    shard: GroupCoordinatorShard, request: TxnOffsetCommitRequest, api_version: int, image: MetadataImage, now: Now
) -> Decision[TxnOffsetCommitResponse]:
    """Decide a TxnOffsetCommit, whose transaction was verified; its records are written as that producer's."""
    committer = Committer(
        request.member_id, request.group_instance_id, request.generation_id, api_version, is_transactional=True
    )
    group = shard.groups.get(request.group_id)
    error = check_commit(group, committer)
    if error is ErrorCode.NONE and group is not None:
        named = (
            (known.topic_id, partition.partition_index)
            for topic in request.topics
            if (known := image.topics.get(topic.name)) is not None
            for partition in topic.partitions
        )
        error = check_partitions(group, committer, named)
    if error is not ErrorCode.NONE:
        return Decision(refuse_in_transaction(request, error, api_version, image), [])
    metadata_max = shard.config.offset_metadata_max_bytes
    records: list[CoordinatorRecord] = []
    topics = []
    for topic in request.topics:
        if not topic.partitions:
            continue
        count = _partitions(topic, image)
        partitions = []
        for partition in topic.partitions:
            index = partition.partition_index
            error = ErrorCode.NONE
            if not 0 <= index < count:
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif len(partition.committed_metadata or "") > metadata_max:
                error = ErrorCode.OFFSET_METADATA_TOO_LARGE
            else:
                value = committed_offset(partition, image.topics[topic.name].topic_id, now)
                records.append(OffsetRecord(request.group_id, topic.name, index, value))
            partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=partitions))
    return Decision(TxnOffsetCommitResponse(topics=topics), records)


def _partitions(topic: TxnOffsetCommitRequestTopic, image: MetadataImage) -> int:
    found = image.topics.get(topic.name)
    return 0 if found is None else len(found.partitions)


def refuse_in_transaction(
    request: TxnOffsetCommitRequest, error: ErrorCode, api_version: int, image: MetadataImage
) -> TxnOffsetCommitResponse:
    """The answer in which every partition has `error`, but for those that are not there."""
    if error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and api_version < LOADING_KNOWN_FROM:
        error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=partition.partition_index,
                        error_code=error
                        if 0 <= partition.partition_index < _partitions(topic, image)
                        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
            if topic.partitions
        ]
    )


def commits_nothing(request: TxnOffsetCommitRequest, image: MetadataImage) -> bool:
    """Whether none of the partitions is there, so that nobody need be asked."""
    return not any(
        0 <= partition.partition_index < _partitions(topic, image)
        for topic in request.topics
        for partition in topic.partitions
    )
