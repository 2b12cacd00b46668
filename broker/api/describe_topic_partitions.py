"""DescribeTopicPartitions (key 75), v0.

Topics and partitions a page at a time, in the order of their names, with eligible leader replicas (KIP-966). Never
creates a topic.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial

from raftlog.broker.api.context import RequestContext, responds_in_turns
from raftlog.broker.api.pace import Pace
from raftlog.broker.api.topics_encoding import TOPIC_OPERATIONS
from raftlog.metadata.image import NO_LEADER, MetadataImage, PartitionState, TopicImage
from raftlog.metadata.topic_names import topic_name_error
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)


@responds_in_turns
async def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse:
    """One page, and where the next one begins."""
    image = context.services.controller.image
    page_size_max = context.services.config["max.request.partition.size.limit"]
    left = max(1, min(page_size_max, request.response_partition_limit))
    names = sorted({topic.name for topic in request.topics} or image.topics)
    cursor, pace = request.cursor, Pace()
    if cursor is not None and (cursor.partition_index < 0 or (request.topics and cursor.topic_name not in names)):
        # As in Kafka a page begins in one of the topics that were asked for.
        errors = await pace.each(names, partial(_error_topic, error=ErrorCode.INVALID_REQUEST))
        return DescribeTopicPartitionsResponse(topics=errors)
    response = DescribeTopicPartitionsResponse()
    for name in names[bisect_left(names, cursor.topic_name) :] if cursor is not None else names:
        await pace.spend(1)
        start = cursor.partition_index if cursor is not None and name == cursor.topic_name else 0
        if left == 0:
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=start)
            break
        topic = image.topics.get(name)
        if topic is None:
            invalid = topic_name_error(name) is not None
            error = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            response.topics.append(_error_topic(name, error))
            continue
        page = topic.partitions[start : start + left]
        response.topics.append(_described(image, topic, page))
        left -= len(page)
        if start + len(page) < len(topic.partitions):
            following = start + len(page)
            response.next_cursor = DescribeTopicPartitionsResponseCursor(topic_name=name, partition_index=following)
            break
    return response


def _error_topic(name: str, error: ErrorCode) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name, error_code=error, topic_authorized_operations=TOPIC_OPERATIONS
    )


def _described(
    image: MetadataImage, topic: TopicImage, page: tuple[PartitionState, ...]
) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(image, partition) for partition in page],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(image: MetadataImage, partition: PartitionState) -> DescribeTopicPartitionsResponsePartition:
    away = tuple(b for b in partition.replicas if b not in image.brokers or image.brokers[b].fenced)
    has_leader = partition.leader != NO_LEADER and partition.leader not in away
    return DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.NONE if has_leader else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=partition.partition_id,
        leader_id=partition.leader if has_leader else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=list(partition.eligible_leader_replicas),
        last_known_elr=[],
        offline_replicas=list(away),
    )
