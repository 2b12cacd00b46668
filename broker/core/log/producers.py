"""What each idempotent or transactional producer wrote last to one partition (KIP-98, KIP-360).

A batch is checked first (`check`, `check_marker`) and recorded after it is in the log (`record`, `record_marker`),
so that a failed write leaves no trace.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from raftlog.broker.core.log.results import AppendOrigin
from raftlog.broker.core.log.verification import (
    NOT_REQUIRED,
    VERIFICATIONS_MAX,
    VerificationEntry,
    VerificationGuard,
    Verifications,
)
from raftlog.wire.batch import TRANSACTIONAL_BIT, BatchHeader
from raftlog.wire.checksum import Buffer
from raftlog.wire.control import TransactionMarker, decode_control_batch
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import ProducerEpoch, ProducerId

BATCHES_REMEMBERED: Final = 5
"""A producer may have five requests in flight (max.in.flight.requests.per.connection), so any may be a retry."""
SEQUENCE_MAX: Final = 2**31 - 1
NO_EPOCH: Final = ProducerEpoch(-1)
NO_OFFSET: Final = -1
# An enum's attribute costs more than a call, and a named tuple's function more than a tuple.
_CLIENT, _REPLICATION = AppendOrigin.CLIENT, AppendOrigin.REPLICATION
_new: Final = tuple.__new__


class BatchRecord(NamedTuple):
    """One remembered batch. `first_sequence` and `first_offset` follow from the rest."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_sequence(self) -> int:
        """Sequence numbers wrap from 2^31 - 1 to 0."""
        return (self.last_sequence - self.offset_delta) & SEQUENCE_MAX if self.last_sequence >= 0 else -1

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerEntry:
    """The state of one producer id. `batches` holds up to five, oldest first, all of the current epoch."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "last_timestamp",
        "producer_id",
        "transaction_start",
    )

    def __init__(self, producer_id: ProducerId, epoch: ProducerEpoch = NO_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = -1
        self.last_timestamp = -1
        self.transaction_start = NO_OFFSET
        self.batches: list[BatchRecord] = []

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else -1

    def enter_epoch(self, epoch: ProducerEpoch) -> None:
        """A new epoch forgets the batches of the old one: sequences begin again."""
        if epoch != self.epoch:
            self.batches.clear()
            self.epoch = epoch


class Verdict(NamedTuple):
    """Why a batch is not to be appended: an error, or a retry of `duplicate`, which is in the log already."""

    error: ErrorCode
    message: str | None = None
    duplicate: BatchRecord | None = None


class TransactionEnd(NamedTuple):
    """What a transaction coordinator has decided about a producer's transaction (WriteTxnMarkers)."""

    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    committed: bool
    coordinator_epoch: int
    transaction_version: int = 0


class CompletedTransaction(NamedTuple):
    """A transaction whose marker is in the log. `last_offset` is the marker's own."""

    producer_id: ProducerId
    first_offset: int
    last_offset: int
    aborted: bool
    last_stable_offset: int
    """Where the last stable offset goes when this marker is replicated; kept in the transaction index."""


class Unread(Protocol):
    """Producers of a snapshot of whom nobody has asked yet, none of them in a transaction."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[ProducerEntry]: ...

    def take(self, producer_id: ProducerId) -> ProducerEntry | None:
        """The producer, which is not unread any more."""

    def expire(self, now_ms: int, expiration_ms: int) -> list[ProducerId]:
        """Forget those that have been idle for so long."""

    def copy_to(self, entries: bytearray, counts: bytearray, earlier: bytearray) -> None:
        """Add them as they are in the file: what each wrote last, how many batches before that, and these."""


class ProducerStates:
    """All producers of one partition: `entries`, and those that are `unread`.

    Invariants: the open transactions are exactly those of the entries; `open_transactions` is in order of first
    offset. `end_offset` is the log offset up to which this state has seen the batches.
    """

    __slots__ = ("_unreplicated", "end_offset", "entries", "open_transactions", "unread", "verifications")

    def __init__(
        self, entries: Iterable[ProducerEntry] = (), end_offset: int = 0, unread: Unread | None = None
    ) -> None:
        self.unread = unread
        self.entries = {entry.producer_id: entry for entry in entries}
        started = [(e.transaction_start, e.producer_id) for e in self.entries.values() if e.transaction_start >= 0]
        self.open_transactions = dict(sorted(started))
        self._unreplicated: dict[int, int] = {}
        self.end_offset = end_offset
        self.verifications: Verifications = {}

    def __len__(self) -> int:
        return len(self.entries) + (len(self.unread) if self.unread is not None else 0)

    def __iter__(self) -> Iterator[ProducerEntry]:
        yield from self.entries.values()
        yield from self.unread or ()

    def get(self, producer_id: ProducerId) -> ProducerEntry | None:
        """The producer, None if it is not known."""
        return self.entries.get(producer_id) or self._read(producer_id)

    def _read(self, producer_id: ProducerId) -> ProducerEntry | None:
        """A producer that is not among the entries; from now on it is."""
        entry = self.unread.take(producer_id) if self.unread is not None else None
        if entry is not None:
            self.entries[producer_id] = entry
        return entry

    # Verifying a transaction's first batch (KIP-890) ---------------------------------------------------

    def begin_verification(
        self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int, now_ms: int, *, bumps_epoch: bool
    ) -> VerificationGuard | ErrorCode:
        """What the batch is to be appended with once the coordinator agrees, or why it is refused without asking.

        `sequence` is the batch's first, -1 if it has none.
        """
        entry = self.get(producer_id)
        if entry is not None and epoch < entry.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        known = self.verifications.get(producer_id)
        if known is None:
            if len(self.verifications) >= VERIFICATIONS_MAX:
                del self.verifications[next(iter(self.verifications))]
            known = VerificationEntry(epoch, sequence, now_ms, bumps_epoch=bumps_epoch)
            self.verifications[producer_id] = known
        else:
            known.again(epoch, sequence)
        return known.guard

    def _check_first(
        self, entry: ProducerEntry | None, header: BatchHeader, origin: AppendOrigin, guard: VerificationGuard | None
    ) -> Verdict | None:
        """As `check`, for a batch that would begin a transaction, as far as it differs from others."""
        client = origin is _CLIENT
        if client and entry is not None and entry.epoch == header.producer_epoch:
            duplicate = self._duplicate(entry, header)
            if duplicate is not None:
                return duplicate
        known = self.verifications.get(header.producer_id)
        if guard is not NOT_REQUIRED and (known is None or known.guard is not guard):
            return Verdict(ErrorCode.INVALID_TXN_STATE, "the batch is not part of a transaction that is open")
        if known is None or not client:
            return None
        sequence = header.base_sequence
        if entry is not None and header.producer_epoch < entry.epoch:
            return _fenced(entry, header.producer_epoch)
        if known.bumps_epoch and sequence != 0 and (entry is None or not entry.batches):
            return Verdict(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} begins a transaction with sequence {sequence}, not 0",
            )
        if sequence > known.lowest_sequence:
            return Verdict(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {sequence}, and {known.lowest_sequence} comes first",
            )
        return None

    # Batches of data -----------------------------------------------------------------------------------

    def check(
        self, header: BatchHeader, origin: AppendOrigin, guard: VerificationGuard | None = NOT_REQUIRED
    ) -> Verdict | None:
        """Whether a data batch of a producer may be appended; None if so. `header` has a producer id. `guard` is what
        `begin_verification` gave, for the batch that begins a transaction.
        """
        entry = self.entries.get(header.producer_id) or self._read(header.producer_id)
        if (
            header.attributes & TRANSACTIONAL_BIT
            and origin is not _REPLICATION
            and (entry is None or entry.transaction_start < 0 or entry.epoch != header.producer_epoch)
        ):
            verdict = self._check_first(entry, header, origin, guard)
            if verdict is not None:
                return verdict
        if entry is None:
            # Nothing is known of the producer, perhaps because retention took its records: any sequence
            # may begin. Kafka has not answered UNKNOWN_PRODUCER_ID here since KIP-360.
            return None
        epoch = header.producer_epoch
        if origin is _CLIENT:
            if epoch == entry.epoch:
                last = entry.batches[-1][0] if entry.batches else -1
                sequence = header.base_sequence
                if sequence == last + 1 or (sequence == 0 and last == SEQUENCE_MAX):
                    fits = entry.transaction_start < 0 or header.attributes & TRANSACTIONAL_BIT
                    return None if fits else self._check_transaction(entry, header)
                return self._duplicate_or_gap(entry, header)
            if epoch > entry.epoch and header.base_sequence != 0 and entry.epoch != NO_EPOCH:
                return Verdict(
                    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"producer {entry.producer_id} begins epoch {epoch} with sequence {header.base_sequence}, not 0",
                )
        if epoch < entry.epoch and origin is not _REPLICATION:
            return _fenced(entry, epoch)
        return self._check_transaction(entry, header)

    def _duplicate(self, entry: ProducerEntry, header: BatchHeader) -> Verdict | None:
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return Verdict(ErrorCode.NONE, duplicate=batch)
        return None

    def _duplicate_or_gap(self, entry: ProducerEntry, header: BatchHeader) -> Verdict | None:
        first = header.base_sequence
        return self._duplicate(entry, header) or Verdict(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {entry.producer_id} sent sequence {first} after {entry.last_sequence}",
        )

    def _check_transaction(self, entry: ProducerEntry, header: BatchHeader) -> Verdict | None:
        if entry.transaction_start >= 0 and not header.is_transactional:
            return Verdict(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {entry.producer_id} has a transaction open and sent a batch outside of it",
            )
        return None

    def check_control(
        self, header: BatchHeader, batch: Buffer, origin: AppendOrigin, transaction_version: int
    ) -> Verdict | None:
        """As `check`, for a control batch: it has to be a transaction marker."""
        marker = decode_control_batch(batch)
        if marker is None:
            return Verdict(ErrorCode.INVALID_RECORD, "a control batch of a producer holds a transaction marker")
        return self.check_marker(header, marker, origin, transaction_version)

    def check_marker(
        self, header: BatchHeader, marker: TransactionMarker, origin: AppendOrigin, transaction_version: int
    ) -> Verdict | None:
        """Whether a transaction marker may be appended; None if so.

        From transaction version 2 on the marker's epoch must be above the producer's (KIP-890), unless the
        transaction has ended already and this is the marker sent again.
        """
        entry = self.get(header.producer_id)
        if entry is None or origin is _REPLICATION:
            return None
        epoch = header.producer_epoch
        if transaction_version >= 2:
            repeated = epoch == entry.epoch and entry.transaction_start < 0
            if epoch <= entry.epoch and not repeated:
                return _fenced(entry, epoch)
        elif epoch < entry.epoch:
            return _fenced(entry, epoch)
        if entry.coordinator_epoch > marker.coordinator_epoch:
            return Verdict(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"a marker of coordinator epoch {marker.coordinator_epoch}, after one of {entry.coordinator_epoch}",
            )
        return None

    def record(self, header: BatchHeader, base_offset: int) -> None:
        """A data batch is in the log, its first record at `base_offset`."""
        producer_id = header.producer_id
        entry = self.entries.get(producer_id) or self._read(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        elif entry.epoch != header.producer_epoch:
            entry.enter_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        timestamp = header.max_timestamp
        batches = entry.batches
        batches.append(_new(BatchRecord, (header.last_sequence, base_offset + delta, delta, timestamp)))
        if len(batches) > BATCHES_REMEMBERED:
            del batches[0]
        entry.last_timestamp = timestamp
        if header.attributes & TRANSACTIONAL_BIT:
            if self.verifications:
                self.verifications.pop(producer_id, None)
            if entry.transaction_start < 0:
                entry.transaction_start = base_offset
                self.open_transactions[base_offset] = producer_id

    def record_marker(self, header: BatchHeader, marker: TransactionMarker, offset: int) -> CompletedTransaction | None:
        """A transaction marker is in the log at `offset`; the transaction it ended, None if none was open."""
        producer_id = header.producer_id
        entry = self.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id, header.producer_epoch)
        self.verifications.pop(producer_id, None)
        entry.enter_epoch(header.producer_epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        first, entry.transaction_start = entry.transaction_start, NO_OFFSET
        if first < 0:
            return None
        del self.open_transactions[first]
        # Not stable before the marker is replicated: until then a new leader may not have it.
        self._unreplicated[first] = offset
        stable = next(iter(self.open_transactions), offset + 1)
        return CompletedTransaction(producer_id, first, offset, not marker.committed, stable)

    def replay(self, header: BatchHeader, read_batch: Callable[[], Buffer]) -> CompletedTransaction | None:
        """Go on behind a batch that is in the log; the transaction that it ends, if it does. Only a control batch is
        read: `read_batch` may raise what it likes.
        """
        self.end_offset = header.next_offset
        if header.producer_id < 0:
            return None
        if not header.is_control:
            self.record(header, header.base_offset)
            return None
        marker = decode_control_batch(read_batch())
        return None if marker is None else self.record_marker(header, marker, header.base_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """Up to where everything is decided for good: the high watermark, or the first offset of a transaction that is
        open, or whose marker is not below the high watermark.
        """
        if self._unreplicated:
            # Markers below the high watermark are replicated: their transactions are decided for good.
            left = {first: last for first, last in self._unreplicated.items() if last >= high_watermark}
            self._unreplicated = left
            high_watermark = min(high_watermark, *left) if left else high_watermark
        for first in self.open_transactions:
            return first if first < high_watermark else high_watermark
        return high_watermark

    def expire(self, now_ms: int, expiration_ms: int) -> list[ProducerId]:
        """Forget producers idle for `expiration_ms` (producer.id.expiration.ms) with no transaction open."""
        idle = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.transaction_start < 0 and now_ms - entry.last_timestamp >= expiration_ms
        ]
        for producer_id in idle:
            del self.entries[producer_id]
        if self.unread is not None:
            idle += self.unread.expire(now_ms, expiration_ms)
            self.unread = self.unread or None
        verified = self.verifications
        for producer_id in [each for each, entry in verified.items() if now_ms - entry.began_ms >= expiration_ms]:
            del verified[producer_id]
        return idle

    def check_invariants(self) -> None:
        """Raises InvariantViolation if the open transactions are not those of the entries, or out of order."""
        opened = sorted((e.transaction_start, e.producer_id) for e in self.entries.values() if e.transaction_start >= 0)
        if opened != list(self.open_transactions.items()):
            raise InvariantViolation(f"open transactions {self.open_transactions} are not those of the producers")
        for entry in self.entries.values():
            offsets = [batch.last_offset for batch in entry.batches]
            if offsets != sorted(set(offsets)) or len(offsets) > BATCHES_REMEMBERED:
                raise InvariantViolation(f"producer {entry.producer_id} remembers batches at {offsets}")


def _fenced(entry: ProducerEntry, epoch: ProducerEpoch) -> Verdict:
    return Verdict(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        f"producer {entry.producer_id} sent epoch {epoch} after {entry.epoch}: another instance has taken over",
    )
