"""DeleteRecords (key 21), v0 to v2 (KIP-107).

Moves the start of a partition's log forward; -1 stands for the high watermark.
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    """The new log start offset of each partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name, partitions=[_answer(context, topic.name, wanted) for wanted in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _answer(context: RequestContext, topic: str, wanted: DeleteRecordsPartition) -> DeleteRecordsPartitionResult:
    def refused(error: ErrorCode) -> DeleteRecordsPartitionResult:
        return DeleteRecordsPartitionResult(
            partition_index=wanted.partition_index, low_watermark=-1, error_code=error
        )

    image = context.services.controller.image.topics.get(topic)
    if image is not None and image.internal:
        return refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    partition = context.services.partitions.find(topic, None, wanted.partition_index)
    if isinstance(partition, ErrorCode):
        return refused(partition)
    log = partition.log
    # Kafka refuses on a topic that is only compacted: its records are not deleted by age or offset.
    if not log.config.delete and log.config.compact:
        return refused(ErrorCode.POLICY_VIOLATION)
    before = log.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
    if not 0 <= before <= log.high_watermark:
        return refused(ErrorCode.OFFSET_OUT_OF_RANGE)
    try:
        log.delete_records_before(before)
    except LogUnavailable as failure:
        return refused(failure.error)
    partition.notify()
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=log.log_start_offset, error_code=ErrorCode.NONE
    )
