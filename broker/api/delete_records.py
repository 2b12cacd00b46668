"""DeleteRecords (key 21), v0 to v2 (KIP-107).

Moves the start of a partition's log forward, and waits for the followers to do the same; -1 stands for the high
watermark.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.api.context import RequestContext
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from raftlog.broker.runtime.partition import Partition

_HIGH_WATERMARK = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> None:
    """The new log start offset of each partition, the least of all its replicas."""
    waiting: list[tuple[Partition, DeleteRecordsPartitionResult]] = []
    response = DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[_answer(context, topic.name, wanted, waiting) for wanted in topic.partitions],
            )
            for topic in request.topics
        ]
    )
    gone = [
        f"{topic.name}-{partition.partition_index} below {partition.low_watermark}"
        for topic in response.topics
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    ]
    context.log_change("records deleted", gone)
    if waiting:
        context.respond_with(_when_all_have(waiting, request.timeout_ms, response))
    else:
        context.respond(response)


async def _when_all_have(
    waiting: list[tuple[Partition, DeleteRecordsPartitionResult]], timeout_ms: int, response: DeleteRecordsResponse
) -> DeleteRecordsResponse:
    """Wait for the followers, or for the time-out."""
    loop = asyncio.get_running_loop()
    futures = []
    for partition, answer in waiting:
        done: asyncio.Future[None] = loop.create_future()
        partition.wait(Mark.LOW_WATERMARK, answer.low_watermark, partial(_finish, done))
        futures.append(done)
    await asyncio.wait(futures, timeout=max(timeout_ms, 0) / 1000)
    for (partition, answer), done in zip(waiting, futures, strict=True):
        if not done.done():
            answer.error_code = ErrorCode.REQUEST_TIMED_OUT
            done.cancel()
        elif partition.error is not ErrorCode.NONE:
            answer.error_code = partition.error
        answer.low_watermark = partition.low_watermark
    return response


def _finish(done: asyncio.Future[None], _: ErrorCode) -> None:
    if not done.done():
        done.set_result(None)


def _answer(
    context: RequestContext,
    topic: str,
    wanted: DeleteRecordsPartition,
    waiting: list[tuple[Partition, DeleteRecordsPartitionResult]],
) -> DeleteRecordsPartitionResult:
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
    partition.try_complete_delayed()
    answer = DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=log.log_start_offset, error_code=ErrorCode.NONE
    )
    if partition.low_watermark < answer.low_watermark:
        waiting.append((partition, answer))
    return answer
