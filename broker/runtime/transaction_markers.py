"""Has the leaders of partitions write the markers of transactions that have ended.

What comes up for a broker in one turn goes into one request; this broker's own partitions are asked in the same way,
without the network (`broker_requests.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.core.coordinator.shared import NEVER
from raftlog.broker.core.transaction.markers import NO_LEADER, EndingTransaction, MarkerQueues, MarkerRequest, Sent
from raftlog.broker.core.transaction.records import by_topic
from raftlog.broker.core.transaction.state import TopicPartition
from raftlog.broker.runtime.broker_requests import RequestFailure
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId, ProducerId
from raftlog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from raftlog.broker.runtime.broker_requests import RequestSender
    from raftlog.broker.runtime.timer_wheel import TimerWheel
    from raftlog.metadata.image import MetadataImage

log = logging.getLogger("raftlog.transactions")

REQUEST_VERSION = 2
"""Of WriteTxnMarkers: with the version of the transaction protocol (KIP-1228)."""


class TransactionMarkers:
    """The markers that this broker's coordinators have to get written."""

    def __init__(
        self,
        sender: RequestSender,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        *,
        image: Callable[[], MetadataImage],
        now_ms: Callable[[], int],
        written: Callable[[EndingTransaction], None],
    ) -> None:
        """`now_ms` is monotonic. `written` is told of each transaction whose markers are all there."""
        self.queues = MarkerQueues(self._leader_of)
        self._sender = sender
        self._loop = loop
        self._timers = timers
        self._image = image
        self._now_ms = now_ms
        self._written = written
        self._is_scheduled = False
        # When the timer wheel gives this its turn.
        self._look_ms = NEVER
        self._tick = 0

    def begin(self, transaction: EndingTransaction) -> None:
        """Have the markers of a transaction written."""
        self.queues.add(transaction, self._now_ms())
        self._schedule()

    def cancel(self, index: int) -> None:
        """Stop with what one partition of `__transaction_state` has decided."""
        self.queues.cancel(index)

    def leaders_changed(self) -> None:
        """Other brokers may lead the partitions now, or there may be fewer of them."""
        if len(self.queues):
            self.queues.leaders_changed(self._now_ms())
            self._schedule()

    def _leader_of(self, partition: TopicPartition) -> BrokerId | None:
        topic, index = partition
        state = self._image().partition(topic, index)
        if state is None:
            return None
        return NO_LEADER if state.leader < 0 else BrokerId(state.leader)

    # ── sending ───────────────────────────────────────────────────────────────────────────────────────────

    def _schedule(self) -> None:
        """Not here: what else comes up in this turn goes into the same requests."""
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._run)

    def _run(self) -> None:
        self._is_scheduled = False
        for transaction, (topic, index), error in self.queues.drain_fenced():
            log.error(
                "transactional.id=%s %s, for partition=%s-%d has refused one: %s. Somebody else has ended this"
                " transaction; `raftlog txn describe` shows what is left of it",
                transaction.transactional_id,
                "it lacks a marker for good" if transaction.refused else "no more markers are sent",
                topic,
                index,
                error.name,
            )
        for transaction in self.queues.drain_written():
            self._written(transaction)
        for broker in self.queues.ready():
            request = self.queues.take(broker)
            self._sender.send(broker, _message(request.sent), REQUEST_VERSION, partial(self._answered, request))
        self._schedule_retry()

    def _answered(self, request: MarkerRequest, answer: WriteTxnMarkersResponse | RequestFailure) -> None:
        if answer is RequestFailure.CLOSED:
            return
        if isinstance(answer, RequestFailure):
            self.queues.failed(request, self._now_ms())
        else:
            self.queues.answered(request, _errors(answer), self._now_ms())
        self._schedule()

    def _schedule_retry(self) -> None:
        look_ms = self.queues.next_retry_ms()
        if look_ms < self._look_ms:
            if self._look_ms != NEVER:
                self._timers.remove(self, self._tick)
            self._look_ms = look_ms
            self._tick = self._timers.add_after(self, (look_ms - self._now_ms()) / 1000)

    def expire(self) -> None:
        """See Expiring."""
        self._look_ms = NEVER
        self.queues.retry(self._now_ms())
        self._schedule()


def _message(sent: list[Sent]) -> WriteTxnMarkersRequest:
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                transaction_result=transaction.committed,
                topics=[
                    WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic(partitions).items()
                ],
                coordinator_epoch=transaction.coordinator_epoch,
                transaction_version=transaction.transaction_version,
            )
            for transaction, partitions in sent
        ]
    )


def _errors(response: WriteTxnMarkersResponse) -> dict[ProducerId, dict[TopicPartition, ErrorCode]]:
    return {
        ProducerId(marker.producer_id): {
            (topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
            for topic in marker.topics
            for partition in topic.partitions
        }
        for marker in response.markers
    }
