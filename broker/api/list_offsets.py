"""ListOffsets (key 2), v1 to v11.

Isolation level (KIP-98, v2), leader epochs (KIP-320, v4), OFFSET_NOT_AVAILABLE from a new leader (KIP-207, v5), the
offset of the largest timestamp (KIP-734, v7), special timestamps of tiered storage (KIP-405, v8 and v9; KIP-1023, v11),
of which there is none here: the local log is the whole log, and nothing is tiered.
"""

from __future__ import annotations

from collections import Counter

from raftlog.broker.api.context import RequestContext, responds_in_turns
from raftlog.broker.api.pace import ENTRIES_PER_TURN, Pace, wait_for
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.store.timestamp_search import NeedsUnpacking, UnpackedBatches
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3
EARLIEST_LOCAL = -4
LATEST_TIERED = -5
EARLIEST_PENDING_UPLOAD = -6

# A special timestamp is understood from this version on; another one below 0 in none.
_SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_NEVER = 1 << 15
_LEADER_EPOCH_SINCE = 4
_NOT_AVAILABLE_SINCE = 5
_ALWAYS_KNOWN = (EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD)
SEARCHES_PER_TURN = 8
"""Searches by time of one request: a tenth of a millisecond each, and hundreds where no index knows the time."""

_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_CONSUMER = -1


@responds_in_turns
async def handle(context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    """One offset for each partition asked for."""
    pace = Pace()
    asked: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        await pace.spend(len(topic.partitions))
        asked.update([(topic.name, wanted.partition_index) for wanted in topic.partitions])
    topics = []
    for topic in request.topics:
        answers = []
        for wanted in topic.partitions:
            searched = wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP
            await pace.spend(ENTRIES_PER_TURN // SEARCHES_PER_TURN if searched else 1)
            if asked[topic.name, wanted.partition_index] > 1:
                answers.append(_failed(wanted, ErrorCode.INVALID_REQUEST))
            else:
                answers.append(await _find_out(context, request, topic.name, wanted))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    return ListOffsetsResponse(topics=topics)


async def _find_out(
    context: RequestContext, request: ListOffsetsRequest, topic: str, wanted: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    """The answer, once all is unpacked that has to be for it."""
    known: UnpackedBatches = {}
    while True:
        try:
            return _answer(context, request, topic, wanted, known)
        except NeedsUnpacking as needs:
            key, work = needs.key, needs.work
        known[key] = await wait_for(context.services.batch_checks.run(work))


def _failed(wanted: ListOffsetsPartition, error: ErrorCode) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=error)


def _answer(
    context: RequestContext,
    request: ListOffsetsRequest,
    topic: str,
    wanted: ListOffsetsPartition,
    known: UnpackedBatches,
) -> ListOffsetsPartitionResponse:
    if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        return _failed(wanted, ErrorCode.UNKNOWN_SERVER_ERROR)
    timestamp = wanted.timestamp
    if timestamp < 0 and context.api_version < _SINCE.get(timestamp, _NEVER):
        return _failed(wanted, ErrorCode.UNSUPPORTED_VERSION)
    partition = context.services.partitions.find(topic, None, wanted.partition_index)
    if isinstance(partition, ErrorCode):
        return _failed(wanted, partition)
    error = partition.check_leader_epoch(wanted.current_leader_epoch)
    if error is not ErrorCode.NONE:
        return _failed(wanted, error)
    bound = partition.log.log_end_offset
    if request.replica_id == _CONSUMER:
        committed = request.isolation_level == _READ_COMMITTED
        bound = partition.log.last_stable_offset if committed else partition.log.high_watermark
    try:
        found_offset, found_timestamp, epoch = _find(partition, timestamp, bound, known)
        is_behind = 0 <= wanted.consumed_offset < found_offset and timestamp == LATEST
        consumed_timestamp = partition.timestamp_at(wanted.consumed_offset) if is_behind else -1
    except LogUnavailable as failure:
        return _failed(wanted, failure.error)
    if (
        request.replica_id == _CONSUMER
        and (timestamp == LATEST or (found_offset < 0 and timestamp not in _ALWAYS_KNOWN))
        and partition.is_reestablishing
    ):
        # Earlier leaders may have told a later end than we can vouch for yet (KIP-207).
        since = context.api_version >= _NOT_AVAILABLE_SINCE
        return _failed(wanted, ErrorCode.OFFSET_NOT_AVAILABLE if since else ErrorCode.LEADER_NOT_AVAILABLE)
    answer = ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index, timestamp=found_timestamp, offset=found_offset
    )
    if context.api_version >= _LEADER_EPOCH_SINCE:
        answer.leader_epoch = epoch
    if wanted.consumed_offset >= 0 and timestamp == LATEST:
        answer.last_stable_offset = partition.log.last_stable_offset
        answer.consumed_timestamp = consumed_timestamp
    return answer


def _find(partition: Partition, timestamp: int, bound: int, known: UnpackedBatches) -> tuple[int, int, int]:
    """(offset, timestamp, leader epoch), each -1 when there is none. `bound` is what the reader may not see."""
    log = partition.log
    if timestamp == LATEST:
        return bound, -1, partition.leader_epoch
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return log.log_start_offset, -1, log.epoch_at(log.log_start_offset)
    if timestamp == MAX_TIMESTAMP:
        found = log.offset_of_max_timestamp(known)
    elif timestamp < 0:
        return -1, -1, -1
    else:
        found = log.offset_for_timestamp(timestamp, known)
    if found is None or found.offset >= bound:
        return -1, -1, -1
    return found.offset, found.timestamp, found.leader_epoch
