"""OffsetForLeaderEpoch (key 23), v2 to v4.

Where a leader epoch ended in our log (KIP-101, KIP-279); consumers use it to notice that a log was truncated
(KIP-320).
"""

from __future__ import annotations

from functools import partial

from raftlog.broker.api.context import RequestContext, responds_in_turns
from raftlog.broker.api.pace import Pace
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopicResult,
)


@responds_in_turns
async def handle(context: RequestContext, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
    """The end of the largest epoch that is not larger than the one asked for, for each partition."""
    pace = Pace()
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic, partitions=await pace.each(topic.partitions, partial(_answer, context, topic.topic))
            )
            for topic in request.topics
        ]
    )


def _answer(context: RequestContext, topic: str, wanted: OffsetForLeaderPartition) -> EpochEndOffset:
    partition = context.services.partitions.find(topic, None, wanted.partition)
    if isinstance(partition, ErrorCode):
        return EpochEndOffset(partition=wanted.partition, error_code=partition)
    error = partition.check_leader_epoch(wanted.current_leader_epoch)
    if error is ErrorCode.NONE and not partition.leads_for_certain:
        # A consumer whose position lies beyond the answer begins again.
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    if error is not ErrorCode.NONE:
        return EpochEndOffset(partition=wanted.partition, error_code=error)
    try:
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    except LogUnavailable as failure:
        return EpochEndOffset(partition=wanted.partition, error_code=failure.error)
    return EpochEndOffset(partition=wanted.partition, leader_epoch=epoch, end_offset=end_offset)
