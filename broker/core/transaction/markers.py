"""Which markers have yet to be written in which partitions, and what each answer to a WriteTxnMarkers means.

A transaction that is ending is here until all its partitions have their markers. A marker waits for the leader of its
partition in the queue of that broker; after a failure it waits a little and is given to whoever leads then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from raftlog.broker.core.coordinator.shared import NEVER
from raftlog.broker.core.transaction.state import TopicPartition
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import BrokerId, ProducerEpoch, ProducerId

MARKERS_PER_REQUEST_MAX = 100
"""An append for each: a request must not hold up the broker that serves it for more than a few milliseconds."""

REQUESTS_PER_BROKER_MAX = 5
"""Outstanding at a time: one that waits for a slow partition does not hold up all the others."""

RETRY_MS_MIN = 20
RETRY_MS_MAX = 1000

NO_LEADER = BrokerId(-1)

LeaderOf = Callable[[TopicPartition], BrokerId | None]
"""Who leads a partition: NO_LEADER if nobody does at the moment, None if there is no such partition."""


class _Meaning(Enum):
    WRITTEN = auto()
    RETRY = auto()
    REFUSED = auto()
    """In this partition the marker will never be written; the others are to have theirs."""
    FENCED = auto()
    """Another coordinator goes on with the transaction."""


_MEANINGS: Mapping[ErrorCode, _Meaning] = {
    ErrorCode.NONE: _Meaning.WRITTEN,
    # The partition takes no transactions, so it has nothing of this one.
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _Meaning.WRITTEN,
    # A newer epoch of this producer, or of this coordinator, has been there.
    ErrorCode.INVALID_PRODUCER_EPOCH: _Meaning.REFUSED,
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: _Meaning.FENCED,
}
"""All others, and no answer, are tried again: the partition's leader has changed, or cannot write at the moment."""


class EndingTransaction:
    """A transaction that is decided, and the partitions that lack its marker."""

    __slots__ = (
        "committed",
        "coordinator_epoch",
        "failures",
        "index",
        "producer_epoch",
        "producer_id",
        "refused",
        "remaining",
        "transaction_version",
        "transactional_id",
    )

    def __init__(
        self,
        index: int,
        transactional_id: str,
        partitions: Iterable[TopicPartition],
        *,
        producer_id: ProducerId,
        producer_epoch: ProducerEpoch,
        committed: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> None:
        """`index` is the partition of `__transaction_state`, and `coordinator_epoch` its leader epoch."""
        self.index = index
        self.transactional_id = transactional_id
        self.remaining = dict.fromkeys(sorted(partitions))
        # Those of the remaining ones that do not take it: with any of these the transaction is never done here.
        self.refused: set[TopicPartition] = set()
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.committed = committed
        self.coordinator_epoch = coordinator_epoch
        self.transaction_version = transaction_version
        # In a row.
        self.failures = 0


class Sent(NamedTuple):
    """Markers of one transaction in one request."""

    transaction: EndingTransaction
    partitions: list[TopicPartition]


class MarkerRequest:
    """One request to a broker."""

    __slots__ = ("broker", "sent")

    def __init__(self, broker: BrokerId, sent: list[Sent]) -> None:
        self.broker = broker
        self.sent = sent


class MarkerQueues:
    """Markers by the broker that is to write them.

    Invariant: each partition that a transaction lacks the marker of, and that has not refused it, is in one place:
    queued for a broker, in one of the few requests that a broker has to answer, or waiting to be tried again.
    """

    def __init__(self, leader_of: LeaderOf) -> None:
        self._leader_of = leader_of
        self._transactions: dict[EndingTransaction, None] = {}
        self._by_id: dict[tuple[int, str], EndingTransaction] = {}
        self._queued: dict[BrokerId, dict[EndingTransaction, list[TopicPartition]]] = {}
        self._outstanding: dict[BrokerId, dict[MarkerRequest, None]] = {}
        # (when, in which order, of which transaction, for which partition)
        self._retries: list[tuple[int, int, EndingTransaction, TopicPartition]] = []
        self._sequence = 0
        self._written: list[EndingTransaction] = []
        self._fenced: list[tuple[EndingTransaction, TopicPartition, ErrorCode]] = []

    # ── in ────────────────────────────────────────────────────────────────────────────────────────────────

    def add(self, transaction: EndingTransaction, now_ms: int) -> None:
        """Begin with a transaction."""
        self._transactions[transaction] = None
        self._by_id[transaction.index, transaction.transactional_id] = transaction
        for partition in list(transaction.remaining):
            self._place(transaction, partition, now_ms)
        self._finish_if_written(transaction)

    def cancel(self, index: int) -> None:
        """Forget what one partition of `__transaction_state` has decided: another coordinator will go on with it."""
        self._forget({known for known in self._transactions if known.index == index})

    def _forget(self, transactions: Set[EndingTransaction]) -> None:
        for transaction in transactions:
            self._remove(transaction)
            for queue in self._queued.values():
                queue.pop(transaction, None)
        self._retries = [retry for retry in self._retries if retry[2] not in transactions]
        heapify(self._retries)

    def _place(self, transaction: EndingTransaction, partition: TopicPartition, now_ms: int) -> None:
        leader = self._leader_of(partition)
        if leader is None:
            # Deleted, and with it what the transaction wrote.
            transaction.remaining.pop(partition, None)
        elif leader == NO_LEADER:
            self._retry(transaction, partition, now_ms)
        else:
            self._queued.setdefault(leader, {}).setdefault(transaction, []).append(partition)

    def _retry(self, transaction: EndingTransaction, partition: TopicPartition, now_ms: int) -> None:
        wait_ms = min(RETRY_MS_MIN << min(transaction.failures, 10), RETRY_MS_MAX)
        self._sequence += 1
        heappush(self._retries, (now_ms + wait_ms, self._sequence, transaction, partition))

    def _finish_if_written(self, transaction: EndingTransaction) -> None:
        if not transaction.remaining and transaction in self._transactions:
            self._remove(transaction)
            self._written.append(transaction)

    def _remove(self, transaction: EndingTransaction) -> None:
        del self._transactions[transaction]
        self._by_id.pop((transaction.index, transaction.transactional_id), None)

    # ── out ───────────────────────────────────────────────────────────────────────────────────────────────

    def ready(self) -> list[BrokerId]:
        """The brokers that a request can be sent to now."""
        return [
            broker
            for broker, queue in self._queued.items()
            if queue and len(self._outstanding.get(broker, ())) < REQUESTS_PER_BROKER_MAX
        ]

    def take(self, broker: BrokerId) -> MarkerRequest:
        """What goes into the next request to a broker; then `answered` or `failed` is called."""
        queue, room = self._queued[broker], MARKERS_PER_REQUEST_MAX
        sent: list[Sent] = []
        while queue and room:
            transaction = next(iter(queue))
            partitions = queue.pop(transaction)
            if len(partitions) > room:
                queue[transaction] = partitions[room:]
                del partitions[room:]
            room -= len(partitions)
            sent.append(Sent(transaction, partitions))
        request = MarkerRequest(broker, sent)
        self._outstanding.setdefault(broker, {})[request] = None
        return request

    def answered(
        self, request: MarkerRequest, errors: Mapping[ProducerId, Mapping[TopicPartition, ErrorCode]], now_ms: int
    ) -> None:
        """What a broker has answered."""
        del self._outstanding[request.broker][request]
        for transaction, partitions in request.sent:
            if transaction in self._transactions:
                self._take_answer(transaction, partitions, errors.get(transaction.producer_id, {}), now_ms)

    def _take_answer(
        self,
        transaction: EndingTransaction,
        partitions: Iterable[TopicPartition],
        errors: Mapping[TopicPartition, ErrorCode],
        now_ms: int,
    ) -> None:
        has_failed = False
        for partition in partitions:
            error = errors.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)
            meaning = _MEANINGS.get(error, _Meaning.RETRY)
            if meaning is _Meaning.WRITTEN:
                transaction.remaining.pop(partition, None)
            elif meaning is _Meaning.REFUSED:
                transaction.refused.add(partition)
                self._fenced.append((transaction, partition, error))
            elif meaning is _Meaning.FENCED:
                self._forget({transaction})
                self._fenced.append((transaction, partition, error))
                return
            else:
                has_failed = True
                self._retry(transaction, partition, now_ms)
        transaction.failures = transaction.failures + 1 if has_failed else 0
        self._finish_if_written(transaction)

    def failed(self, request: MarkerRequest, now_ms: int) -> None:
        """A broker has not answered."""
        self.answered(request, {}, now_ms)

    def retry(self, now_ms: int) -> None:
        """Give to their leaders again what has waited long enough."""
        while self._retries and self._retries[0][0] <= now_ms:
            _, _, transaction, partition = heappop(self._retries)
            self._place(transaction, partition, now_ms)
            self._finish_if_written(transaction)

    def next_retry_ms(self) -> int:
        """When `retry` has something to do; NEVER if nothing."""
        return self._retries[0][0] if self._retries else NEVER

    def leaders_changed(self, now_ms: int) -> None:
        """Give to their leaders of now all that is not on its way."""
        queued, self._queued = self._queued, {}
        retries, self._retries = self._retries, []
        for queue in queued.values():
            for transaction, partitions in queue.items():
                for partition in partitions:
                    self._place(transaction, partition, now_ms)
                self._finish_if_written(transaction)
        for _, _, transaction, partition in sorted(retries, key=lambda retry: retry[1]):
            self._place(transaction, partition, now_ms)
            self._finish_if_written(transaction)

    def drain_written(self) -> list[EndingTransaction]:
        """The transactions whose markers have all been written since this was asked last."""
        written, self._written = self._written, []
        return written

    def drain_fenced(self) -> list[tuple[EndingTransaction, TopicPartition, ErrorCode]]:
        """The transactions that were given up since this was asked last, or were refused in one partition: where, and
        why.
        """
        fenced, self._fenced = self._fenced, []
        return fenced

    def __len__(self) -> int:
        """How many transactions lack a marker."""
        return len(self._transactions)

    def remaining(self, transactional_id: str, index: int) -> Iterable[TopicPartition] | None:
        """The partitions that still lack the marker of a transaction; None when it is not here."""
        transaction = self._by_id.get((index, transactional_id))
        return None if transaction is None else transaction.remaining

    def check_invariants(self) -> None:
        """Raises InvariantViolation if a marker is lost or in two places."""
        if set(self._by_id.values()) != set(self._transactions):
            raise InvariantViolation("transactions by id are not those that lack markers")
        places = [
            (transaction, partition)
            for queue in self._queued.values()
            for transaction, partitions in queue.items()
            for partition in partitions
        ]
        places += [(transaction, partition) for _, _, transaction, partition in self._retries]
        for broker, requests in self._outstanding.items():
            if len(requests) > REQUESTS_PER_BROKER_MAX:
                raise InvariantViolation(f"{len(requests)} requests to broker {broker} are outstanding")
            for request in requests:
                markers = [(transaction, partition) for transaction, ps in request.sent for partition in ps]
                if len(markers) > MARKERS_PER_REQUEST_MAX:
                    raise InvariantViolation(f"{len(markers)} markers in one request to broker {broker}")
                places += [marker for marker in markers if marker[0] in self._transactions]
        if len(set(places)) != len(places):
            raise InvariantViolation("a marker is in two places")
        expected = {
            (transaction, partition)
            for transaction in self._transactions
            for partition in transaction.remaining.keys() - transaction.refused
        }
        if set(places) != expected:
            wrong = [(transaction.transactional_id, partition) for transaction, partition in set(places) ^ expected]
            raise InvariantViolation(f"markers {wrong} are lost, or not wanted")
