"""What is to be sent to one partition, in order, each record once (KIP-98, KIP-360).

The rule that keeps order and stores nothing twice: a batch gets its sequence numbers when it is first sent, and keeps
them as long as it may be stored. Up to five are under way at a time (what a broker remembers); when one comes back to
be sent again, nothing new leaves before all have come back. A batch that was given up on leaves a gap that no later
batch of this epoch can pass: those that the broker refuses for it are numbered anew, from 0, under the next epoch.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from raftlog.client.core.errors import KafkaError, Rejected, TimedOut
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.producer_batch import ProducerBatch, ProducerIdentity
from raftlog.wire.batch import NO_SEQUENCE
from raftlog.wire.errors import ErrorCode, InvariantViolation

IN_FLIGHT_MAX = 5
"""Batches under way to one partition: as many as brokers remember of a producer, to recognise one sent twice."""
SEQUENCE_MASK = 0x7FFFFFFF

STORED_BEFORE = ErrorCode.DUPLICATE_SEQUENCE_NUMBER
LEADER_UNKNOWN = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    }
)
"""What makes a client ask anew who leads."""


class Verdict(Enum):
    """What became of one attempt."""

    DONE = "done"
    AGAIN = "again"
    FAILED = "failed"


class PartitionQueue:
    """`waiting`: to be sent, the next one first. `in_flight`: sent, without an answer, in the order of sequences."""

    def __init__(self, partition: TopicPartition, *, idempotent: bool) -> None:
        self.partition = partition
        self.waiting: deque[ProducerBatch] = deque()
        self.in_flight: list[ProducerBatch] = []
        self.identity: ProducerIdentity | None = None
        """Under which numbers were given last."""
        self.next_sequence = 0
        self.has_gap = False
        """A batch of this identity was given up on, and later numbers cannot be stored."""
        self.retry_at = 0.0
        self._idempotent = idempotent
        self._added = 0
        self._acknowledged = False
        """Whether a batch under this identity was stored: before, a broker takes any first sequence number."""

    def add(self, batch: ProducerBatch) -> None:
        """Behind all that is there."""
        self._added += 1
        batch.order = (self._added,)
        self.waiting.append(batch)

    @property
    def is_idle(self) -> bool:
        return not self.waiting and not self.in_flight

    def due(self, now: float, linger: float, identity: ProducerIdentity | None, *, flush: bool = False) -> float | None:
        """When the next batch may leave: `now` or earlier for at once, None for not before something else happens."""
        if not self.waiting or len(self.in_flight) >= IN_FLIGHT_MAX:
            return None
        first = self._next()
        if self._idempotent and first.base_sequence == NO_SEQUENCE:
            if identity is None or (self.in_flight and (self.identity != identity or not self._acknowledged)):
                return None
            if self.has_gap and self.identity == identity:
                return None  # the next epoch is on its way
        elif first.attempts and self.in_flight:
            return None
        if self.retry_at > now:
            return self.retry_at
        is_ready = flush or first.is_full or len(self.waiting) > 1
        return now if is_ready else first.created + linger

    def take(self, identity: ProducerIdentity | None) -> ProducerBatch:
        """The next batch, numbered, now in flight. Only when `due` says so."""
        batch = self._next()
        self.waiting.remove(batch)
        batch.is_full = True
        if self._idempotent and batch.base_sequence == NO_SEQUENCE:
            if identity is None:
                raise InvariantViolation("a batch is sent before there is a producer id")
            if identity != self.identity:
                self._begin(identity)
            batch.number(identity, self.next_sequence)
            self.next_sequence = self.next_sequence + batch.count & SEQUENCE_MASK
        batch.attempts += 1
        batch.was_sent = True
        self.in_flight.append(batch)
        return batch

    def answered(self, batch: ProducerBatch, code: ErrorCode, base_offset: int, log_append_time: int) -> Verdict:
        """A broker answered. FAILED leaves it to the caller to call `give_up`."""
        if code in (ErrorCode.NONE, STORED_BEFORE):
            self.in_flight.remove(batch)
            if batch.identity == self.identity:
                self._acknowledged = True
            batch.complete(base_offset if code == ErrorCode.NONE or base_offset >= 0 else -1, log_append_time)
            return Verdict.DONE
        if code == ErrorCode.MESSAGE_TOO_LARGE and batch.count > 1:
            self._split(batch)
            return Verdict.AGAIN
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._idempotent:
            if batch.identity == self.identity and self.has_gap:
                self._put_back(batch)
                batch.unnumber()  # what is missing before it never comes
                return Verdict.AGAIN
            if self._is_behind_another(batch):
                self._put_back(batch)
                return Verdict.AGAIN
            return Verdict.FAILED
        if code.retriable:
            self._put_back(batch)
            return Verdict.AGAIN
        return Verdict.FAILED

    def unanswered(self, batch: ProducerBatch) -> None:
        """The connection was lost: whether it is stored is unknown, and it is sent again exactly as it was."""
        self._put_back(batch)

    def give_up(self, batch: ProducerBatch, failure: KafkaError, errors: dict[int, str | None] | None = None) -> bool:
        """Fail a batch; says whether the producer needs another epoch before this partition can go on."""
        if batch in self.in_flight:
            self.in_flight.remove(batch)
        else:
            self.waiting.remove(batch)
        leaves_gap = batch.base_sequence != NO_SEQUENCE and batch.identity == self.identity
        if leaves_gap:
            self.has_gap = True
        batch.fail(failure, errors)
        return leaves_gap

    def expire(self, now: float, timeout: float) -> list[ProducerBatch]:
        """Those waiting batches that are older than `timeout` seconds."""
        return [batch for batch in self.waiting if now - batch.created >= timeout]

    def reset(self) -> None:
        """A transaction began under another epoch: numbers begin at 0."""
        self.identity = None
        self.has_gap = False

    def check_invariants(self) -> None:
        sent = [*self.in_flight, *(batch for batch in self.waiting if batch.base_sequence != NO_SEQUENCE)]
        if len(self.in_flight) > IN_FLIGHT_MAX:
            raise InvariantViolation(f"{len(self.in_flight)} batches in flight")
        numbers = {(batch.identity, batch.base_sequence) for batch in sent if batch.base_sequence != NO_SEQUENCE}
        if self._idempotent and len(numbers) != len(sent):
            raise InvariantViolation("two batches have the same sequence number")
        if [batch.order for batch in self.waiting] != sorted(batch.order for batch in self.waiting):
            raise InvariantViolation("batches wait out of order")

    def _next(self) -> ProducerBatch:
        """What may be stored already comes first where later numbers cannot be used: its outcome has to be known."""
        if self.has_gap:
            for batch in self.waiting:
                if batch.base_sequence != NO_SEQUENCE:
                    return batch
        return self.waiting[0]

    def _begin(self, identity: ProducerIdentity) -> None:
        self.identity = identity
        self.next_sequence = 0
        self.has_gap = False
        self._acknowledged = False

    def _is_behind_another(self, batch: ProducerBatch) -> bool:
        """Whether an earlier number of the same identity is still to be stored."""
        others = [*self.in_flight, *self.waiting]
        return any(
            other is not batch
            and other.identity == batch.identity
            and other.base_sequence != NO_SEQUENCE
            and 0 < (batch.base_sequence - other.base_sequence & SEQUENCE_MASK) < SEQUENCE_MASK // 2
            for other in others
        )

    def _put_back(self, batch: ProducerBatch) -> None:
        """Into its place."""
        self.in_flight.remove(batch)
        at = sum(other.order < batch.order for other in self.waiting)
        self.waiting.insert(at, batch)

    def _split(self, batch: ProducerBatch) -> None:
        """Its halves share its numbers: the broker has stored none of it."""
        self.in_flight.remove(batch)
        halves = batch.split()
        if batch.identity is not None:
            halves[0].number(batch.identity, batch.base_sequence)
            halves[1].number(batch.identity, batch.base_sequence + halves[0].count & SEQUENCE_MASK)
        for at, half in enumerate(halves):
            half.order = (*batch.order, at)
            half.attempts = batch.attempts
            self.in_flight.append(half)
            self._put_back(half)


def too_late(batch: ProducerBatch, timeout: float, trouble: KafkaError | None = None) -> TimedOut:
    """`trouble`: what the last attempt failed with."""
    topic, index = batch.partition
    doubt = "; it may be stored all the same" if batch.was_sent else ""
    why = f": {trouble}" if trouble is not None else ""
    return TimedOut(f"{topic}[{index}] did not take the records within {timeout:g} s{doubt}{why}")


def refusal(batch: ProducerBatch, code: ErrorCode, message: str | None) -> Rejected:
    """In a transaction it is one that has to be aborted, unless the producer is done."""
    topic, index = batch.partition
    error = Rejected(code, f"{topic}[{index}]", message)
    error.abortable = error.abortable or (batch.transactional and not error.fatal)
    return error
