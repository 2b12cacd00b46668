"""One partition of a coordinator's topic that this broker leads: its log, the state built from it, and who waits.

Whatever a coordinator keeps goes one way: decided on the state in memory, appended to the log, replayed into the state
at once, answered when it is committed. What the state is, the subclass knows (groups have theirs in `group_host.py`).
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, NamedTuple, Protocol, TypeVar

from raftlog.broker.core.coordinator.loading import CoordinatorLogReader
from raftlog.broker.core.coordinator.packed_records import PackedRecords
from raftlog.broker.core.coordinator.shared import NEVER, Now, coordinator_error
from raftlog.broker.core.log.producers import TransactionEnd
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.core.log.verification import VerificationGuard
from raftlog.broker.runtime.delayed_operation import Mark, Watchable
from raftlog.broker.runtime.timer_wheel import TimedWait, TimerWheel
from raftlog.wire.batch import Record, encode_batch, encode_packed_batch
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.records import encode_records

log = logging.getLogger("raftlog.coordinator")

MAX_WRITE_BYTES = 512 * 1024
"""Keys and values of one batch that we write, well below any sensible max.message.bytes: the removal of a group with
a hundred thousand offsets goes into several."""

LOAD_CHUNK_BYTES = 64 * 1024
"""How much of the log is read at a time."""


class CoordinatorLog(Protocol):
    """What is needed of a partition's log."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def high_watermark(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...

    def read_bytes(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool) -> bytes:
        """Batches from the one with `offset` on, the last perhaps cut; with `min_one` at least one whole batch."""


class CoordinatorPartition(Watchable, Protocol):
    """What is needed of a partition that this broker leads."""

    @property
    def leader_epoch(self) -> int: ...
    @property
    def log(self) -> CoordinatorLog: ...
    @property
    def leads_for_certain(self) -> bool: ...

    def append(
        self,
        records: bytes,
        now_ms: int,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append one batch as leader, or several that are not a producer's, all or none; `guard` is what a batch was
        verified with that begins a transaction here, `transaction_version` that of a transaction marker.
        """

    def append_marker(self, end: TransactionEnd, now_ms: int) -> AppendResult:
        """Append the marker that ends a producer's transaction here."""


class Producer(NamedTuple):
    """Who writes in a transaction, and with what guard if it may not have begun in the partition (KIP-890): see
    `Partition.begin_verification`.
    """

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    guard: VerificationGuard | None = None


Encoded = tuple[bytes, bytes | None] | PackedRecords

R = TypeVar("R")
"""A coordinator's records."""

D = TypeVar("D")
"""An answer that was decided."""


class CoordinatorHost(ABC, Generic[R]):
    """From the moment this broker leads the partition until it does so no more; `name` is the partition's.

    Invariants: an answer leaves only when everything that was written before it was decided is committed; nobody waits
    for loading once `is_loaded`, nobody waits for anything once closed.
    """

    def __init__(
        self,
        name: str,
        partition: CoordinatorPartition,
        clock: Callable[[], Now],
        timers: TimerWheel,
        *,
        next_look_ms: Callable[[], int],
        commit_timeout_ms: int,
    ) -> None:
        """`next_look_ms` says when `tick` has something to do, by the monotonic clock; NEVER if nothing."""
        self.name = name
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.now = clock
        self.is_loaded = False
        self.is_closed = False
        self._timers = timers
        self._next_look_ms = next_look_ms
        self._commit_timeout_ms = commit_timeout_ms
        # For loading to end, or then for a commit; in order, so that who waits longest is told first.
        self._waits: dict[TimedWait, None] = {}
        # When the timer wheel gives this host its turn.
        self._look_ms = NEVER
        self._tick = 0
        # The failure that was logged last; NONE once a write has succeeded since.
        self._logged = ErrorCode.NONE

    # ── what the subclass knows ───────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def encode(self, record: R) -> Encoded:
        """Key and value of a record, the value of a removal being None; or many records at once."""

    @abstractmethod
    def decode(self, key: bytes, value: bytes | None) -> R | None:
        """The record, or None when it is left alone. Raises UnreadableRecord, a ValueError."""

    @abstractmethod
    def replay(self, record: R) -> None:
        """Apply a record that is in the log. Only this changes what is durable of the state."""

    def replay_pending(self, producer_id: ProducerId, record: R) -> None:
        """Apply a record that is in the log as part of an open transaction."""
        raise InvariantViolation(f"{self.name}: producer {producer_id} has written {record} in a transaction")

    def replay_common(self, pairs: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes] | None]:
        """Replay those pairs of key and value that there are very many of, in steps: None at the end of each; the
        others are yielded. Only while loading.
        """
        return pairs

    @abstractmethod
    def restore(self) -> Iterator[None]:
        """Build what the log does not hold, after all its records were replayed; a slice at each step."""

    @abstractmethod
    def tick(self) -> None:
        """Do what is due by now."""

    @abstractmethod
    def too_large(self, record: R) -> str:
        """What an operator is told when this record, or one after it, does not fit into the log."""

    @abstractmethod
    def contents(self) -> str:
        """How much there is, for a log line."""

    # ── writing ───────────────────────────────────────────────────────────────────────────────────────────

    def write(
        self, records: Sequence[R], committed: Callable[[ErrorCode], None], producer: Producer | None = None
    ) -> None:
        """Append and replay. `committed` hears when these records and all before them are, or what went wrong; without
        records it hears when all is committed that the state rests on. The error is the log's.
        """
        error = self.append(records, producer) if records else ErrorCode.NONE
        if error is ErrorCode.NONE:
            self.on_committed(committed)
        else:
            committed(error)

    def commit(
        self, decision: tuple[D, Sequence[R]], respond: Callable[[D], None], refuse: Callable[[ErrorCode], None]
    ) -> None:
        """Write the records of a decision, and give its answer when all that it rests on is committed."""
        response, records = decision
        self.write(records, partial(give_answer, response, respond, refuse))

    def append(self, records: Sequence[R], producer: Producer | None = None) -> ErrorCode:
        """Append and replay, as part of the transaction of `producer` if there is one: all records or none, though they
        may fill several batches. Batches of a producer come one by one, so that with an error the first of them may
        have been written; they do not count before the transaction is committed."""
        now_ms = self.now().wall_ms
        encoded = [self.encode(record) for record in records]
        batches: list[tuple[int, bytes]] = []
        first = 0
        for end in _batch_ends(encoded):
            batches.append((end, _encode(encoded[first:end], now_ms, producer)))
            first = end
        if producer is None and len(batches) > 1:
            batches = [(first, b"".join([batch for _, batch in batches]))]
        first = 0
        for end, data in batches:
            result = self.partition.append(data, now_ms, guard=None if producer is None else producer.guard)
            if result.error is not ErrorCode.NONE:
                self._log_failure(result, records[first])
                return result.error
            for record in records[first:end]:
                if producer is None:
                    self.replay(record)
                else:
                    self.replay_pending(producer.producer_id, record)
            first = end
        self._logged = ErrorCode.NONE
        return ErrorCode.NONE

    def _log_failure(self, result: AppendResult, record: R) -> None:
        """Not for every commit of every consumer: once, until a write succeeds or fails in another way."""
        if result.error is self._logged:
            return
        self._logged = result.error
        reason = result.message or result.error.message
        if result.error is ErrorCode.MESSAGE_TOO_LARGE:
            log.error("%s: %s", self.too_large(record), reason)
        else:
            log.error("partition=%s takes no records: %s", self.name, reason)

    @property
    def is_committed(self) -> bool:
        """Whether all that was written is."""
        partition_log = self.partition.log
        return partition_log.high_watermark >= partition_log.log_end_offset

    def on_committed(self, callback: Callable[[ErrorCode], None]) -> None:
        """Call back when all that has been written so far is committed, or has failed to be in time."""
        if self.is_committed:
            callback(ErrorCode.NONE)
        else:
            wait = self._wait(self._commit_timeout_ms / 1000, callback)
            wait.watch(self.partition, Mark.HIGH_WATERMARK, self.partition.log.log_end_offset)

    def _wait(self, seconds: float, callback: Callable[[ErrorCode], None]) -> TimedWait:
        def done(error: ErrorCode) -> None:
            del self._waits[wait]
            callback(error)

        wait = TimedWait(self._timers, seconds, done)
        self._waits[wait] = None
        return wait

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────

    def schedule(self) -> None:
        """Make sure of a turn when there is next something to do."""
        look_ms = self._next_look_ms()
        if look_ms < self._look_ms:
            if self._look_ms != NEVER:
                self._timers.remove(self, self._tick)
            self._look_ms = look_ms
            self._tick = self._timers.add_after(self, (look_ms - self.now().monotonic_ms) / 1000)

    def expire(self) -> None:
        """See Expiring."""
        self._look_ms = NEVER
        self.tick()
        self.schedule()

    def close(self, error: ErrorCode) -> None:
        """Everybody who waits hears why: this broker leads the partition no more, or cannot read its log."""
        if self._look_ms != NEVER:
            self._timers.remove(self, self._tick)
        # No turn any more, whatever happens: nothing comes before this.
        self._look_ms = -1
        self.is_closed = True
        self._tell_all(error)

    def _tell_all(self, error: ErrorCode) -> None:
        # Who is told may begin to wait for something else.
        for wait in list(self._waits):
            wait.done(error)

    # ── loading ───────────────────────────────────────────────────────────────────────────────────────────

    def on_loaded(self, seconds: float, callback: Callable[[ErrorCode], None]) -> None:
        """Call back when loading has ended, with NONE if well; at the latest after so many seconds."""
        self._wait(seconds, callback)

    def load(self) -> Iterator[None]:
        """Build the state from the log in small steps. Raises ValueError for a log that cannot be understood."""
        partition_log = self.partition.log
        reader = CoordinatorLogReader(partition_log.log_start_offset)
        end_offset = partition_log.log_end_offset
        while reader.next_offset < end_offset:
            before = reader.next_offset
            yield from reader.read(partition_log.read_bytes(before, LOAD_CHUNK_BYTES, end_offset, min_one=True))
            if reader.next_offset == before:
                raise ValueError(f"the log ends at {before} and not at {end_offset}")
        left_alone = 0
        # One record may be a group with thousands of members: each is a step of its own.
        for pair in self.replay_common(reader.survivors()):
            if pair is not None:
                record = self.decode(*pair)
                if record is None:
                    left_alone += 1
                else:
                    self.replay(record)
            yield
        for producer_id, key, value_if_counts in reader.pending():
            record = self.decode(key, value_if_counts)
            if record is not None:
                self.replay_pending(producer_id, record)
            yield
        yield from self.restore()
        if left_alone:
            log.warning(
                "partition=%s holds %d records of protocols that are not served; they stay as they are",
                self.name,
                left_alone,
            )
        self.loaded()

    def loaded(self) -> None:
        """From now on the state is what the log says, and all that is written is replayed into it."""
        self.is_loaded = True
        self._tell_all(ErrorCode.NONE)
        self.schedule()


def give_answer(
    response: D, respond: Callable[[D], None], refuse: Callable[[ErrorCode], None], error: ErrorCode
) -> None:
    """`error`: what came of the write."""
    if error is ErrorCode.NONE:
        respond(response)
    else:
        refuse(coordinator_error(error))


def _encode(encoded: Sequence[Encoded], now_ms: int, producer: Producer | None) -> bytes:
    records = [Record(i, now_ms, *each) for i, each in enumerate(encoded) if not isinstance(each, PackedRecords)]
    if len(records) < len(encoded):
        if producer is not None:
            raise InvariantViolation(f"producer {producer.producer_id} writes many records at once")
        return _encode_packed(encoded, now_ms)
    if producer is None:
        return encode_batch(records)
    # Kafka's coordinators count no sequence either: each batch begins with 0.
    return encode_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )


def _encode_packed(encoded: Sequence[Encoded], now_ms: int) -> bytes:
    parts = []
    count = 0
    for each in encoded:
        if isinstance(each, PackedRecords):
            parts.append(each.pack(count))
            count += each.records
        else:
            parts.append(encode_records((Record(count, now_ms, *each),), 0, now_ms))
            count += 1
    return encode_packed_batch(b"".join(parts), count, now_ms)


def _batch_ends(encoded: Sequence[Encoded]) -> Iterator[int]:
    """Where to cut, so that no batch of several records has more than MAX_WRITE_BYTES of keys and values."""
    size = 0
    for position, each in enumerate(encoded):
        more = each.size if isinstance(each, PackedRecords) else len(each[0]) + len(each[1] or b"")
        if size and size + more > MAX_WRITE_BYTES:
            yield position
            size = 0
        size += more
    if encoded:
        yield len(encoded)
