"""The log of one partition, as its leader and its followers use it (Kafka's UnifiedLog): batches appended at the end,
read from anywhere, truncated at the end when replicas part, removed at the front.

Both hot paths (`append_as_leader` of one batch, `read`) do no work per record and no system call but the one that
moves the data; reading adds one or two when the position is not remembered.
"""

from __future__ import annotations

from collections.abc import Sequence

from raftlog.broker.core.log.batch_runs import OutOfOrder, batch_around, batches_from_leader, holds_several, stamped_run
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.producers import ProducerStates, Verdict
from raftlog.broker.core.log.results import (
    TAKES_LONG,
    AppendOrigin,
    AppendResult,
    FileRange,
    FoundOffset,
    LogDamaged,
    LogUnavailable,
    OffsetOutOfRange,
    RecordError,
)
from raftlog.broker.core.log.transactions import AbortedTransaction
from raftlog.broker.core.log.validation import BatchRules, BatchVerdict, Refusal, TakesLong, check_batch
from raftlog.broker.core.log.verification import NOT_REQUIRED, VerificationGuard
from raftlog.broker.ports import Buffer
from raftlog.broker.store.log_storage import LogStorage
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.pending_flush import PendingFlush
from raftlog.broker.store.store import Store
from raftlog.broker.store.timestamp_search import UnpackedBatches, offset_for_timestamp, offset_of_max_timestamp
from raftlog.broker.store.truncation_plan import TruncationPlan
from raftlog.wire.batch import CONTROL_BIT, BatchHeader, CorruptRecord, stamp_batch
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import LeaderEpoch

# An enum's attribute costs more than a call, and so does the function that NamedTuple puts around the other.
_CLIENT, _NONE, _new = AppendOrigin.CLIENT, ErrorCode.NONE, tuple.__new__


class PartitionLog:
    """Offsets of one partition's log, and what is done with it. Until it is opened, on first use, only what the
    checkpoints say is known. `storage` says whether it can be used.

    Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, and recovery_point <=
    log_end_offset once it is open.
    """

    __slots__ = (
        "__weakref__",
        "_rules",
        "_store",
        "cleaned_offset",
        "config",
        "directory",
        "high_watermark",
        "index",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "storage",
        "topic",
        "topic_id",
    )

    def __init__(
        self,
        store: Store,
        topic: str,
        index: int,
        directory: str,
        config: LogConfig,
        *,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        high_watermark: int = 0,
        cleaned_offset: int = 0,
        clean: bool = False,
    ) -> None:
        self._store = store
        self.topic = topic
        self.index = index
        self.directory = directory
        self.config = config
        self.topic_id: bytes | None = None
        self.log_start_offset = log_start_offset
        # Compaction has seen every record below this; see `cleaner.py`.
        self.cleaned_offset = cleaned_offset
        # After a crash the end is only known once the log is open; it is not below what was replicated.
        self.high_watermark = max(high_watermark, log_start_offset)
        if clean:
            self.high_watermark = min(self.high_watermark, max(recovery_point, log_start_offset))
        self.log_end_offset = max(recovery_point, self.high_watermark)
        self.last_stable_offset = self.high_watermark
        self._rules: BatchRules | None = None
        self.storage = LogStorage(
            store,
            directory,
            recovery_point=recovery_point,
            clean=clean,
            on_offline=lambda reason: store.on_failure(self, reason),
            on_full=lambda reason: store.on_full(self, reason),
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic}-{self.index}, {self.log_start_offset}..{self.log_end_offset})"

    def reconfigure(self, config: LogConfig) -> None:
        """Take new settings; they hold from the next append on."""
        self.config = config
        self._rules = None

    # The storage -------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self.storage.opened is not None

    @property
    def opened(self) -> OpenLog:
        """Segments, epochs and producers, read from the disk now if they were not. Raises LogUnavailable."""
        return self.storage.opened or self.open()

    def open(self) -> OpenLog:
        """Read what is on the disk, and recover it. Raises LogUnavailable, and is offline then."""
        if self.storage.opened is None and (pending := self.begin_open()) is not None:
            self.storage.complete_flush(pending)
        opened = self.storage.opened
        if opened is None:
            raise LogUnavailable(self.offline_reason)
        return opened

    def begin_open(self) -> PendingFlush | None:
        """As `open`, but what was recovered is not synced: see LogStorage.open. Raises LogUnavailable."""
        loaded, pending = self.storage.open(self.config, self.log_start_offset, self.high_watermark)
        self.log_start_offset, self.log_end_offset = loaded.log_start_offset, loaded.opened.end_offset
        if self.cleaned_offset > self.log_end_offset:
            # What was truncated was clean; what will be appended in its place is not.
            self.cleaned_offset = 0
        self.high_watermark = min(max(self.high_watermark, self.log_start_offset), self.log_end_offset)
        self._update_last_stable()
        return pending

    @property
    def offline_reason(self) -> str | None:
        """Why it serves nothing until the broker starts again."""
        return self.storage.offline_reason

    @property
    def intact(self) -> bool:
        """See LogStorage."""
        return self.storage.intact

    @property
    def recovery_point(self) -> int:
        """Below it everything is on stable storage."""
        return self.storage.recovery_point

    @property
    def flush_due(self) -> bool:
        """Whether flush.messages asks for a flush before an acknowledgement."""
        return self.storage.flush_due

    def fail(self, error: Exception) -> LogUnavailable:
        """Take the log offline until the broker starts again; the exception to raise."""
        return self.storage.fail(error)

    # Appending ---------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: Buffer,
        leader_epoch: LeaderEpoch,
        now_ms: int,
        *,
        origin: AppendOrigin = _CLIENT,
        transaction_version: int = 0,
        guard: VerificationGuard | None = NOT_REQUIRED,
        checked: BatchVerdict | None = None,
    ) -> AppendResult:
        """Check batches, give them offsets and the leader epoch, and append them. Hot path for one batch. `records` is
        changed in place if it is writable, else copied. `transaction_version` is that of a transaction marker, `guard`
        what a batch that begins a transaction was verified with (KIP-890). See AppendResult.error: never raises.
        After TAKES_LONG come again with `checked`, what a thread has found.
        """
        storage, rules = self.storage, self._rules
        opened = storage.opened
        if opened is None or storage.full_reason is not None or rules is None:
            try:
                opened, rules = self._open_to_append(now_ms)
            except LogUnavailable as error:
                return self._refused(error.error, str(error))
        if origin is not _CLIENT and holds_several(records):
            run = stamped_run(records, rules, self.log_end_offset, leader_epoch, now_ms)
            if isinstance(run, Refusal):
                return self._refused(run.error, run.message, run.record_errors)
            return self._append_run(opened, *run, now_ms)
        if checked is None:
            try:
                checked = check_batch(records, rules, now_ms, origin, may_take_long=origin is not _CLIENT)
            except TakesLong:
                return TAKES_LONG
        if isinstance(checked, Refusal):
            return self._refused(checked.error, checked.message, checked.record_errors)
        header, batch, log_append_time_ms = checked
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        producers = opened.producers
        of_producer = header.producer_id >= 0
        if of_producer:
            if header.attributes & CONTROL_BIT:
                verdict = producers.check_control(header, batch, origin, transaction_version)
            else:
                verdict = producers.check(header, origin, guard)
            if verdict is not None:
                return self._answer(verdict, log_append_time_ms)
        config = self.config
        stamp_batch(batch, header, base_offset, leader_epoch)
        try:
            if opened.must_roll(len(batch), last_offset, header.max_timestamp, now_ms, config):
                opened.roll(base_offset, now_ms, config)
            opened.append(header, batch, base_offset, leader_epoch, config)
        except OSError as error:
            return self._refused(ErrorCode.KAFKA_STORAGE_ERROR, storage.append_failed(opened, error, now_ms))
        self.log_end_offset = producers.end_offset = last_offset + 1
        if of_producer:
            if header.attributes & CONTROL_BIT:
                self._replay(opened, header._replace(base_offset=base_offset), batch)
            else:
                producers.record(header, base_offset)
        if self.log_end_offset - storage.recovery_point >= config.flush_messages:
            storage.flush_due = True
        done = (_NONE, base_offset, last_offset, log_append_time_ms, self.log_start_offset, None, (), False)
        return _new(AppendResult, done)

    def append_as_follower(self, records: Buffer, leader_epoch: LeaderEpoch | None = None) -> AppendResult:
        """Append batches as the leader sent them; offsets and epochs are theirs and must go on where the log ends.

        A batch that is cut short at the end is left out, and so is all from the first batch on whose epoch is above
        `leader_epoch` (KAFKA-18723). An empty log takes a batch whole in whose middle it was to begin (DeleteRecords).
        Errors: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE for offsets that do not go on, KAFKA_STORAGE_ERROR.
        """
        now_ms = self._store.clock.now_ms()
        view = memoryview(records)
        try:
            opened, _ = self._open_to_append(now_ms)
            start = self.log_start_offset
            if self.log_end_offset == start and (base := batch_around(view, start)) >= 0:
                self.truncate_fully_and_start_at(base)
                result = self.append_as_follower(records, leader_epoch)
                if self.log_end_offset <= start:
                    self.truncate_fully_and_start_at(start)
                self.high_watermark = start
                self._move_start(opened, start)
                return result
            found = batches_from_leader(view, self.log_end_offset, leader_epoch)
        except LogUnavailable as error:
            return self._refused(error.error, str(error))
        except OutOfOrder as error:
            return self._refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{error} in {self.topic}-{self.index}")
        except CorruptRecord as error:
            return self._refused(ErrorCode.CORRUPT_MESSAGE, str(error))
        if len(found) < 2 or not opened.must_roll_for_run(found, now_ms, self.config):
            return self._append_run(opened, view, found, now_ms)
        # A new segment may begin between two of them, where the leader's did; an error may leave the first appended.
        for at, header in found:
            result = self._append_run(opened, view[at : at + header.size], [(0, header)], now_ms)
            if result.error is not ErrorCode.NONE:
                return result
        return result._replace(base_offset=found[0][1].base_offset)

    def _open_to_append(self, now_ms: int) -> tuple[OpenLog, BatchRules]:
        """Raises LogUnavailable if it takes no appends."""
        if (reason := self.storage.still_full(now_ms)) is not None:
            raise LogUnavailable(reason)
        if self._rules is None:
            self._rules = BatchRules(self.config)
        return self.opened, self._rules

    def _append_run(
        self, opened: OpenLog, view: memoryview, batches: Sequence[tuple[int, BatchHeader]], now_ms: int
    ) -> AppendResult:
        """Append batches, (position in `view`, header) each, that have their offsets, in one write to one segment."""
        if not batches:
            return self._refused(ErrorCode.NONE, None)
        try:
            opened.append_run(view, batches, now_ms, self.config)
        except OSError as error:
            return self._refused(ErrorCode.KAFKA_STORAGE_ERROR, self.storage.append_failed(opened, error, now_ms))
        for at, header in batches:
            if header.producer_id >= 0:
                self._replay(opened, header, view[at : at + header.size])
        first, last = batches[0][1], batches[-1][1]
        self.log_end_offset = opened.producers.end_offset = last.next_offset
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.storage.flush_due = True
        return AppendResult(ErrorCode.NONE, first.base_offset, last.last_offset, -1, self.log_start_offset)

    def _replay(self, opened: OpenLog, header: BatchHeader, batch: Buffer) -> None:
        try:
            opened.replay(header, batch)
        except OSError as error:
            # The batch is in the log; what could not be written of the transaction index a restart makes from it.
            self.fail(error)

    def _answer(self, verdict: Verdict, log_append_time_ms: int) -> AppendResult:
        retried = verdict.duplicate
        if retried is None:
            return self._refused(verdict.error, verdict.message)
        time = retried.timestamp if log_append_time_ms >= 0 else -1
        return AppendResult(
            ErrorCode.NONE, retried.first_offset, retried.last_offset, time, self.log_start_offset, duplicate=True
        )

    def _refused(self, error: ErrorCode, message: str | None, errors: tuple[RecordError, ...] = ()) -> AppendResult:
        return AppendResult.refused(error, message, errors, log_start_offset=self.log_start_offset)

    # Reading -----------------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool) -> FileRange | None:
        """Batches from the one that holds `offset` on, all below `end_offset`. Hot path.

        At most `max_bytes`, and then perhaps ending within a batch; but the first batch is whole: if it is larger
        than that, it comes alone with `min_one` and None without. None too if there is nothing below `end_offset`.
        Raises OffsetOutOfRange, LogUnavailable.
        """
        log_end_offset = self.log_end_offset
        if end_offset > log_end_offset:
            end_offset = log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise OffsetOutOfRange(f"{offset} is not in {self!r}")
        if offset >= end_offset:
            return None
        opened = self.storage.opened or self.open()
        try:
            return opened.segments.read(offset, max_bytes, end_offset, log_end_offset, min_one)
        except (OSError, LogDamaged) as error:
            raise self.fail(error) from error

    def read_bytes(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool) -> bytes:
        """As `read`, the bytes themselves; empty where `read` has None."""
        found = self.read(offset, max_bytes, end_offset, min_one=min_one)
        with self.storage.failing():
            return b"" if found is None else found.read()

    def aborted_transactions(self, start: int, end: int, found: FileRange | None = None) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start, end), for readers of committed records; few that `found` does not
        hold, if that is what was read from `start` on. Raises LogUnavailable.
        """
        opened = self.opened
        with self.storage.failing():
            return opened.aborted_transactions(start, end, found)

    def offset_for_timestamp(self, timestamp: int, known: UnpackedBatches | None = None) -> FoundOffset | None:
        """The first record at or above the log start whose timestamp is `timestamp` or later; None if none is. Raises
        LogUnavailable, and NeedsUnpacking where something is `known`.
        """
        with self.storage.failing():
            return offset_for_timestamp(self.opened.segments, timestamp, self.log_start_offset, known)

    def offset_of_max_timestamp(self, known: UnpackedBatches | None = None) -> FoundOffset | None:
        """The first record with the largest timestamp (KIP-734); None if the log has no timestamps. Raises the same."""
        with self.storage.failing():
            return offset_of_max_timestamp(self.opened.segments, self.log_start_offset, known)

    # Offsets, epochs, producers ------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is replicated. Never moves back, and not beyond the log end."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        opened = self.storage.opened
        if opened is not None:
            offset = opened.producers.last_stable_offset(offset)
        self.last_stable_offset = offset if offset > self.log_start_offset else self.log_start_offset

    def _update_last_stable(self) -> None:
        opened = self.storage.opened
        stable = self.high_watermark if opened is None else opened.producers.last_stable_offset(self.high_watermark)
        self.last_stable_offset = max(stable, self.log_start_offset)

    def end_offset_for_epoch(self, epoch: int) -> tuple[LeaderEpoch, int]:
        """(largest known epoch up to `epoch`, its end offset), (-1, -1) if unknown (KIP-320)."""
        return self.opened.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> LeaderEpoch:
        """The leader epoch of the record at `offset`; -1 if it is not known."""
        return self.opened.epochs.epoch_of(offset)

    def assign_epoch(self, epoch: LeaderEpoch) -> None:
        """A leader epoch begins at the log end, with or without records to come (KIP-320). Only in an open log."""
        if self.storage.opened is not None:
            self.storage.opened.epochs.assign(epoch, self.log_end_offset)

    def forget_empty_epoch(self) -> None:
        """An epoch that this replica began and wrote nothing in says nothing of what comes from others now."""
        if self.storage.opened is not None:
            self.storage.opened.epochs.truncate_from(self.log_end_offset)

    @property
    def latest_epoch(self) -> LeaderEpoch:
        """The latest leader epoch; -1 if none is known."""
        return self.opened.epochs.latest

    # Truncating and removing -----------------------------------------------------------------------------

    def plan_truncation(self, end_offset: int) -> TruncationPlan | None:
        """What is to be read before a truncation to `end_offset`; None if nothing is left. Raises LogUnavailable."""
        opened = self.opened
        with self.storage.failing():
            marks = self.log_start_offset, self.recovery_point, self.high_watermark
            return TruncationPlan.of(opened, marks, end_offset)

    def truncate_to(self, end_offset: int, producers: ProducerStates | None = None) -> None:
        """Drop every batch that does not end below `end_offset` (a follower that diverged from its leader).

        The log then ends where its last batch does, which may be lower. `producers` is what the plan has read, with
        the log unchanged since; else that is done now. Raises LogUnavailable.
        """
        opened = self.opened
        if end_offset >= self.log_end_offset:
            # An epoch that this broker led without writing is forgotten all the same: its new leader may not know it.
            opened.epochs.truncate_from(self.log_end_offset)
            return
        plan = self.plan_truncation(end_offset)
        if plan is None:
            self.truncate_fully_and_start_at(min(end_offset, self.log_start_offset))
            return
        end_offset, storage = plan.end_offset, self.storage
        with storage.failing():
            producers = plan.run() if producers is None else producers
            storage.recovery_point = min(storage.recovery_point, end_offset)
            self.cleaned_offset = min(self.cleaned_offset, end_offset)
            self._store.before_truncation(self.topic, self.index)
            opened.truncate_to(end_offset, producers)
        self.log_end_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        self._update_last_stable()
        storage.flush()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records; the next one will be at `offset`. Raises LogUnavailable."""
        opened, storage = self.opened, self.storage
        self.log_start_offset = min(self.log_start_offset, offset)
        self.cleaned_offset = min(self.cleaned_offset, offset)
        # A crash may leave any of the segments, and none of the others is missed then.
        storage.recovery_point = min(storage.recovery_point, offset, opened.segments[0].base_offset)
        with storage.failing():
            self._store.before_truncation(self.topic, self.index)
            opened.restart_at(offset, self._store.clock.now_ms(), self.config)
        self.log_start_offset = self.log_end_offset = storage.recovery_point = self.cleaned_offset = offset
        self.high_watermark = self.last_stable_offset = offset

    def delete_records_before(self, offset: int) -> None:
        """Move the log start up to `offset` (DeleteRecords). Raises OffsetOutOfRange above the high watermark."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is above the high watermark {self.high_watermark}")
        if offset > self.log_start_offset:
            self._move_start(self.opened, offset)

    def _move_start(self, opened: OpenLog, offset: int) -> None:
        self.log_start_offset = offset
        opened.epochs.truncate_before(offset)
        self._update_last_stable()

    def apply_retention(self, now_ms: int) -> int:
        """Remove the segments that retention or the log start let go; how many. Raises LogUnavailable."""
        opened = self.opened
        with self.storage.failing():
            removal = opened.apply_retention(
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
        first = opened.segments[0].base_offset
        if removal.number and first > self.log_start_offset:
            self._move_start(opened, first)
            self._store.on_retention(self)
        return removal.number

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        offsets = (self.log_start_offset, self.last_stable_offset, self.high_watermark, self.log_end_offset)
        if list(offsets) != sorted(offsets):
            raise InvariantViolation(f"{self.topic}-{self.index}: start, stable, high, end are {offsets}")
        opened = self.storage.opened
        if opened is None:
            return
        opened.check_invariants()
        if self.recovery_point > self.log_end_offset:
            raise InvariantViolation(f"{self!r}: recovery point {self.recovery_point} is beyond the end")
        if opened.end_offset != self.log_end_offset:
            raise InvariantViolation(f"{self!r}: producers are as of {opened.end_offset}")
