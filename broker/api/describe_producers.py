"""DescribeProducers (key 61), v0 (KIP-664).

The idempotent and transactional producers that a partition remembers.
"""

from __future__ import annotations

from functools import partial

from raftlog.broker.api.context import RequestContext, responds_in_turns
from raftlog.broker.api.pace import Pace
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.metadata.topic_names import topic_name_error
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


@responds_in_turns
async def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse:
    """The active producers of each partition asked for."""
    wanted: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        wanted.setdefault(topic.name, {}).update(dict.fromkeys(topic.partition_indexes))
    pace = Pace()
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=name, partitions=await pace.each(indexes, partial(_answer, context, name)))
            for name, indexes in wanted.items()
        ]
    )


def _answer(context: RequestContext, topic: str, index: int) -> PartitionResponse:
    problem = topic_name_error(topic)
    if problem is not None:
        error = ErrorCode.INVALID_TOPIC_EXCEPTION
        return PartitionResponse(partition_index=index, error_code=error, error_message=problem)
    partition = context.services.partitions.find(topic, None, index)
    if isinstance(partition, ErrorCode):
        return PartitionResponse(partition_index=index, error_code=partition, error_message=partition.message)
    try:
        producers = partition.log.opened.producers
    except LogUnavailable as failure:
        return PartitionResponse(partition_index=index, error_code=failure.error, error_message=str(failure))
    return PartitionResponse(
        partition_index=index,
        error_code=ErrorCode.NONE,
        active_producers=[
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.last_timestamp,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_start,
            )
            for entry in producers
        ],
    )
