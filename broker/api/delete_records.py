"""DeleteRecords (key 21), v0 to v2 (KIP-107).

Moves the start of a partition's log forward, and waits for the followers to do the same; -1 stands for the high
watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from raftlog.broker.api.by_topic import ByTopic
from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.gather import gather
from raftlog.broker.api.pace import Pace
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.runtime.timer_wheel import TimedWait
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

_HIGH_WATERMARK = -1


def handle(context: RequestContext, request: DeleteRecordsRequest) -> None:
    """The new log start offset of each partition, the least of all its replicas."""
    deleted: list[str] = []
    seconds = max(request.timeout_ms, 0) / 1000

    def begin(part: tuple[str, DeleteRecordsPartition], answer: Callable[[DeleteRecordsPartitionResult], None]) -> None:
        topic, wanted = part
        partition = _delete(context, topic, wanted)
        if isinstance(partition, ErrorCode):
            answer(_result(wanted, partition, -1))
            return
        start = partition.log.log_start_offset
        deleted.append(f"{topic}-{wanted.partition_index} below {start}")
        wait = TimedWait(
            context.services.timers,
            seconds,
            lambda error: answer(_result(wanted, error, partition.low_watermark)),
        )
        wait.watch(partition, Mark.LOW_WATERMARK, start)

    # One that is named again counts as it was named last, as in Kafka.
    last = {(topic.name, wanted.partition_index): wanted for topic in request.topics for wanted in topic.partitions}
    parts = [(topic, wanted) for (topic, _), wanted in last.items()]

    def done(results: list[DeleteRecordsPartitionResult]) -> None:
        context.in_turns(_response(parts, results), context.respond)

    gather(context, parts, begin, done, lambda: context.log_change("records deleted", deleted))


async def _response(
    parts: Sequence[tuple[str, DeleteRecordsPartition]], results: Sequence[DeleteRecordsPartitionResult]
) -> DeleteRecordsResponse:
    topics = ByTopic(lambda name: DeleteRecordsTopicResult(name=name))
    pace = Pace()
    for (name, _), result in zip(parts, results, strict=True):
        await pace.spend(1)
        topics[name].partitions.append(result)
    return DeleteRecordsResponse(topics=list(topics.values()))


def _result(wanted: DeleteRecordsPartition, error: ErrorCode, low_watermark: int) -> DeleteRecordsPartitionResult:
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=low_watermark, error_code=error
    )


def _delete(context: RequestContext, topic: str, wanted: DeleteRecordsPartition) -> Partition | ErrorCode:
    """The partition, whose log now begins where it shall."""
    image = context.services.controller.image.topics.get(topic)
    if image is not None and image.internal:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    partition = context.services.partitions.find(topic, None, wanted.partition_index)
    if isinstance(partition, ErrorCode):
        return partition
    log = partition.log
    # Kafka refuses on a topic that is only compacted: its records are not deleted by age or offset.
    if not log.config.delete and log.config.compact:
        return ErrorCode.POLICY_VIOLATION
    before = log.high_watermark if wanted.offset == _HIGH_WATERMARK else wanted.offset
    if not 0 <= before <= log.high_watermark:
        return ErrorCode.OFFSET_OUT_OF_RANGE
    try:
        log.delete_records_before(before)
    except LogUnavailable as failure:
        return failure.error
    partition.try_complete_delayed()
    return partition
