"""Records on their way to be sent: batches by partition, the room they may take, and which may leave when."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.core.metadata import NO_LEADER, TopicPartition
from raftlog.client.core.partition_queue import PartitionQueue
from raftlog.client.core.producer_batch import (
    HeaderPairs,
    PackedRecords,
    ProducerBatch,
    ProducerIdentity,
    encoded_size,
)
from raftlog.wire.batch import HEADER_SIZE, NO_SEQUENCE
from raftlog.wire.errors import ErrorCode, InvariantViolation

NEVER = float("inf")


class Limits(NamedTuple):
    """Sizes in bytes, times in seconds; the names are Kafka's (batch.size, linger.ms, buffer.memory, …)."""

    batch_size: int = 128 * 1024
    batch_records: int = 10_000
    linger: float = 0.005
    buffer_memory: int = 32 * 1024 * 1024
    max_request_size: int = 1024 * 1024
    delivery_timeout: float = 120.0


class Departure(NamedTuple):
    """What may leave now, by leader; `unled` partitions wait for one to be known; look again at `next_at`."""

    requests: dict[int, list[ProducerBatch]]
    unled: list[TopicPartition]
    next_at: float


class Accumulator:
    """`buffered` bytes are those of all batches without an outcome; of one that was split, until all of it has one.

    Times are seconds of any one clock.
    """

    def __init__(self, limits: Limits, *, idempotent: bool) -> None:
        self.limits = limits
        self.buffered = 0
        self.queues: dict[TopicPartition, PartitionQueue] = {}
        self.transactional = False
        self._idempotent = idempotent
        self._open: dict[TopicPartition, ProducerBatch] = {}
        self._busy: dict[TopicPartition, PartitionQueue] = {}
        """Queues in which something waits."""

    @property
    def is_idle(self) -> bool:
        return not self._busy and all(queue.is_idle for queue in self.queues.values())

    def has_room(self, size: int) -> bool:
        return self.buffered + size <= self.limits.buffer_memory or not self.buffered

    def size_of(self, topic: str, key: bytes | None, value: bytes | None, headers: HeaderPairs) -> int:
        """Bytes that a record may take. Raises Rejected (MESSAGE_TOO_LARGE) for one that no request has room for."""
        size = encoded_size(key, value, headers)
        if size + HEADER_SIZE > self.limits.max_request_size:
            reason = f"a record of {size} bytes is larger than max_request_size ({self.limits.max_request_size})"
            raise Rejected(ErrorCode.MESSAGE_TOO_LARGE, f"topic {topic!r}", reason)
        return size

    def append(
        self,
        partition: TopicPartition,
        key: bytes | None,
        value: bytes | None,
        *,
        size: int,
        headers: HeaderPairs,
        timestamp: int,
        now: float,
    ) -> tuple[ProducerBatch, int, bool]:
        """The record's batch, its index there, and whether the batch was begun, or has become full (see `depart`)."""
        batch = self._open.get(partition)
        begun_or_full = False
        if batch is None or batch.is_full or (batch.size + size > self.limits.batch_size and batch.count):
            batch = self.open_batch(partition, now)
            begun_or_full = True
        before = batch.size
        index = batch.append(key, value, headers, timestamp)
        self.buffered += batch.size - before
        if batch.size >= self.limits.batch_size or batch.count >= self.limits.batch_records:
            batch.is_full = True
            begun_or_full = True
        return batch, index, begun_or_full

    def append_packed(self, partition: TopicPartition, packed: PackedRecords, now: float) -> ProducerBatch:
        """A batch of its own, behind all that is there."""
        batch = self.open_batch(partition, now)
        batch.fill(packed)
        self.buffered += batch.size
        return batch

    def open_batch(self, partition: TopicPartition, now: float) -> ProducerBatch:
        """An empty batch at the end of the partition's queue."""
        batch = ProducerBatch(partition, now, transactional=self.transactional)
        batch.listeners.append(lambda: self._release(batch))
        queue = self.queues.get(partition)
        if queue is None:
            queue = self.queues[partition] = PartitionQueue(partition, idempotent=self._idempotent)
        queue.add(batch)
        self._busy[partition] = queue
        self._open[partition] = batch
        return batch

    def depart(
        self,
        now: float,
        leader: Callable[[TopicPartition], int],
        identity: ProducerIdentity | None,
        *,
        busy_nodes: Collection[int] = (),
        held: Collection[TopicPartition] = (),
        flush: bool = False,
    ) -> Departure:
        """Take what may leave now. Nothing goes to `busy_nodes`, nor to `held` partitions."""
        requests: dict[int, list[ProducerBatch]] = {}
        sizes: dict[int, int] = {}
        unled: list[TopicPartition] = []
        next_at = NEVER
        for partition in list(self._busy):
            queue = self._busy[partition]
            if not queue.waiting:
                del self._busy[partition]
                continue
            if partition in held:
                continue
            due = queue.due(now, self.limits.linger, identity, flush=flush)
            if due is None:
                continue
            if due > now:
                next_at = min(next_at, due)
                continue
            node = leader(partition)
            if node == NO_LEADER:
                unled.append(partition)
            elif node not in busy_nodes:
                size = queue.waiting[0].size
                if sizes.get(node, 0) + size > self.limits.max_request_size and node in requests:
                    continue
                sizes[node] = sizes.get(node, 0) + size
                requests.setdefault(node, []).append(queue.take(identity))
                # Whoever is served goes to the end of the line.
                self._busy[partition] = self._busy.pop(partition)
        return Departure(requests, unled, next_at)

    def retry(self, batch: ProducerBatch, at: float) -> None:
        """A batch went back into its queue, which tries again at `at`."""
        queue = self.queues[batch.partition]
        queue.retry_at = at
        self._busy[batch.partition] = queue

    def expire(self, now: float) -> list[ProducerBatch]:
        """Waiting batches whose delivery_timeout is over; each is to be given up."""
        timeout = self.limits.delivery_timeout
        return [batch for queue in self._busy.values() for batch in queue.expire(now, timeout)]

    def close_open(self) -> None:
        """What is there now waits for no more records."""
        for batch in self._open.values():
            batch.is_full = True

    def batches(self) -> list[ProducerBatch]:
        """All without an outcome."""
        return [batch for queue in self.queues.values() for batch in (*queue.in_flight, *queue.waiting)]

    def fail_unsent(self, failure: KafkaError) -> None:
        """Fail what was never sent, and is no part of a batch that was: its numbers would be missing."""
        for queue in self.queues.values():
            for batch in [each for each in queue.waiting if each.base_sequence == NO_SEQUENCE]:
                queue.give_up(batch, failure)

    def fail_everything(self, failure: KafkaError) -> None:
        """The producer is done."""
        for batch in self.batches():
            self.queues[batch.partition].give_up(batch, failure)

    def reset(self) -> None:
        """Numbers begin at 0 under the next identity, in all partitions. Nothing may be in flight."""
        for queue in self.queues.values():
            queue.reset()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if bytes are counted wrongly, or something waits that nobody looks at."""
        found = sum(batch.size for batch in {batch.whole or batch for batch in self.batches()})
        if self.buffered != found:
            raise InvariantViolation(f"{found} bytes have no outcome, counted as {self.buffered}")
        for partition, queue in self.queues.items():
            if queue.waiting and partition not in self._busy:
                raise InvariantViolation(f"{partition} waits, and nobody looks at it")
        for queue in self.queues.values():
            queue.check_invariants()

    def _release(self, batch: ProducerBatch) -> None:
        self.buffered -= batch.size
        if self._open.get(batch.partition) is batch:
            del self._open[batch.partition]
