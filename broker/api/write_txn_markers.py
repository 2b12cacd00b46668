"""WriteTxnMarkers (key 27), v1 and v2: a transaction coordinator, or an operator, ends transactions in the partitions
that this broker leads (KIP-98).

v2 tells the version of the transaction, by which the marker's epoch is checked (KIP-1228).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeAlias

from raftlog.broker.api.context import RequestContext
from raftlog.broker.api.gather import gather
from raftlog.broker.core.coordinator.shared import GROUP_TOPIC
from raftlog.broker.core.log.producers import TransactionEnd
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.timer_wheel import TimedWait
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

COMMIT_SECONDS_MAX = 30.0
"""For how long a marker may wait for its commit: Kafka's request.timeout.ms. The coordinator sends it again."""

# A transaction coordinator knows what may be wrong with logs, and not what may be wrong with coordinators.
_IN_WORDS_OF_LOGS = {
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_COORDINATOR: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}

Part: TypeAlias = tuple[TransactionEnd, str, int]
"""What has ended, in which partition of which topic."""


def handle(context: RequestContext, request: WriteTxnMarkersRequest) -> None:
    """The answer comes when all markers are committed, or have failed to be."""
    parts = [part for marker in request.markers for part in _parts(marker)]
    gather(context, parts, partial(_end, context), lambda errors: context.respond(_response(parts, errors)))


def _parts(marker: WritableTxnMarker) -> list[Part]:
    end = TransactionEnd(
        producer_id=ProducerId(marker.producer_id),
        producer_epoch=ProducerEpoch(marker.producer_epoch),
        committed=marker.transaction_result,
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
    return [(end, topic.name, index) for topic in marker.topics for index in dict.fromkeys(topic.partition_indexes)]


def _end(context: RequestContext, part: Part, respond: Callable[[ErrorCode], None]) -> None:
    end, topic, index = part
    services = context.services
    names_nobody = end.producer_id < 0 or end.producer_epoch < 0
    if topic == GROUP_TOPIC and not names_nobody:
        def answer(error: ErrorCode) -> None:
            respond(_IN_WORDS_OF_LOGS.get(error, error))

        # Through the coordinator, so that what counts of a group and its log move together.
        services.groups.run_at(index, lambda host: host.complete_transaction(end, answer), answer)
        return
    partition = services.partitions.find(topic, None, index)
    if isinstance(partition, ErrorCode):
        respond(partition)
        return
    if names_nobody:
        respond(ErrorCode.INVALID_REQUEST)
        return
    result = partition.append_marker(end, services.clock.now_ms())
    if result.error is not ErrorCode.NONE:
        respond(result.error)
        return
    if partition.log.high_watermark > result.last_offset:
        respond(ErrorCode.NONE)
        return
    wait = TimedWait(services.timers, COMMIT_SECONDS_MAX, respond)
    wait.watch(partition, Mark.HIGH_WATERMARK, result.last_offset + 1)


def _response(parts: list[Part], errors: list[ErrorCode]) -> WriteTxnMarkersResponse:
    """By producer, then topic: of a producer that is named twice the later marker counts, and one that is named with no
    partition is left out, as in Kafka.
    """
    by_producer: dict[int, dict[str, dict[int, ErrorCode]]] = {}
    for (end, topic, index), error in zip(parts, errors, strict=True):
        by_producer.setdefault(end.producer_id, {}).setdefault(topic, {})[index] = error
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error)
                            for index, error in partitions.items()
                        ],
                    )
                    for topic, partitions in topics.items()
                ],
            )
            for producer_id, topics in by_producer.items()
        ]
    )
