"""The log of one partition: batches appended at the end, read from anywhere, removed at the front.

Both hot paths (`append_as_leader` of one batch, `read`) do no work per record and no system call but the one that
moves the data; reading adds one or two when the position is not remembered.
"""

from __future__ import annotations

import logging

from raftlog.broker.core.log.index import RELATIVE_OFFSET_MAX
from raftlog.broker.core.log.producers import ProducerEntry, ProducerStates, Verdict
from raftlog.broker.core.log.results import (
    AppendOrigin,
    AppendResult,
    FileRange,
    FoundOffset,
    LogDamaged,
    OffsetOutOfRange,
    RecordError,
)
from raftlog.broker.core.log.retention import segments_to_remove
from raftlog.broker.core.log.run import OutOfOrder, batches_from_leader
from raftlog.broker.core.log.transactions import AbortedTransaction, collect
from raftlog.broker.core.log.validation import Refusal, check_batch
from raftlog.broker.ports import Buffer
from raftlog.broker.store.checking import sound_bytes
from raftlog.broker.store.managed_log import ManagedLog
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.searching import offset_for_timestamp, offset_of_max_timestamp
from raftlog.wire.batch import (
    CONTROL_BIT,
    LENGTH_END,
    BatchHeader,
    CorruptRecord,
    iterate_batches,
    stamp_batch,
)
from raftlog.wire.control import TransactionMarker, decode_control_batch
from raftlog.wire.errors import ErrorCode

logger = logging.getLogger("raftlog.log")


class PartitionLog(ManagedLog):
    """One partition's log. Its offsets and its life are described in ManagedLog."""

    __slots__ = ()

    # Appending ---------------------------------------------------------------------------------------

    def append_as_leader(
        self,
        records: memoryview | bytearray | bytes,
        leader_epoch: int,
        now_ms: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Check batches, give them offsets and the leader epoch, and append them. Hot path for one batch.

        `records` is changed in place if it is writable, else copied. `transaction_version` is that of a transaction
        marker (KIP-890). Never raises for what a client or a disk can cause: see AppendResult.error.
        """
        opened = self._opened
        if opened is None or self.full_reason is not None or self._rules is None:
            reason = self._why_not_writable(now_ms)
            if reason is not None:
                return self._refused(ErrorCode.KAFKA_STORAGE_ERROR, reason)
            opened = self.opened
        assert self._rules is not None
        if origin is not AppendOrigin.CLIENT and _holds_several(records):
            return self._append_several(opened, records, leader_epoch, now_ms, origin)
        checked = check_batch(records, self._rules, now_ms, origin)
        if isinstance(checked, Refusal):
            return self._refused(checked.error, checked.message, checked.record_errors)
        header, batch, log_append_time_ms = checked
        base_offset = self.log_end_offset
        last_offset = base_offset + header.last_offset_delta
        max_timestamp = header.max_timestamp
        marker = None
        if header.producer_id >= 0:
            if header.attributes & CONTROL_BIT:
                marker = decode_control_batch(batch)
                verdict = self._check_marker(opened, header, marker, origin, transaction_version)
            else:
                verdict = opened.producers.check(header, origin)
            if verdict is not None:
                return self._answer(verdict, log_append_time_ms)
        size = len(batch)
        config = self.config
        stamp_batch(batch, header, base_offset, leader_epoch)
        try:
            if opened.must_roll(size, last_offset, max_timestamp, now_ms, config):
                self._roll(opened, base_offset, now_ms)
            position = opened.active.size
            opened.active.append(batch, size, last_offset, max_timestamp, config.index_interval_bytes)
        except OSError as error:
            return self._refused(ErrorCode.KAFKA_STORAGE_ERROR, self._write_failed(opened, error, now_ms))
        if leader_epoch != opened.epochs.latest:
            opened.epochs.assign(leader_epoch, base_offset)
        opened.remember_batch(base_offset, position)
        self.log_end_offset = end_offset = last_offset + 1
        if header.producer_id >= 0:
            if marker is None:
                opened.producers.record(header, base_offset)
            else:
                self._complete(opened, header, marker, base_offset)
        opened.producers.end_offset = end_offset
        if end_offset - self.recovery_point >= config.flush_messages:
            self.flush_due = True
        return AppendResult(ErrorCode.NONE, base_offset, last_offset, log_append_time_ms, self.log_start_offset)

    def append_as_follower(self, records: Buffer, leader_epoch: int | None = None) -> AppendResult:
        """Append batches as the leader sent them; offsets and epochs are theirs and must go on where the log ends.

        A batch that is cut short at the end is left out, and so is all from the first batch on whose epoch is above
        `leader_epoch` (KAFKA-18723). Errors: CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE for offsets that do not go on,
        KAFKA_STORAGE_ERROR.
        """
        now_ms = self._store.clock.now_ms()
        reason = self._why_not_writable(now_ms)
        if reason is not None:
            return self._refused(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        view = memoryview(records)
        try:
            found = batches_from_leader(view, self.log_end_offset, leader_epoch)
        except OutOfOrder as error:
            return self._refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"{error} in {self.topic}-{self.index}")
        except CorruptRecord as error:
            return self._refused(ErrorCode.CORRUPT_MESSAGE, str(error))
        return self._append_run(self.opened, view, found, now_ms, split=True)

    def _append_several(
        self, opened: OpenLog, records: Buffer, leader_epoch: int, now_ms: int, origin: AppendOrigin
    ) -> AppendResult:
        """Several batches of a coordinator: all or none. They are not markers; those come one by one."""
        assert self._rules is not None
        view = memoryview(bytearray(records))
        found = []
        offset = self.log_end_offset
        for at, raw in iterate_batches(view):
            checked = check_batch(view[at : at + raw.size], self._rules, now_ms, origin)
            if isinstance(checked, Refusal):
                return self._refused(checked.error, checked.message, checked.record_errors)
            header, batch, _ = checked
            if header.producer_id >= 0 or len(batch) != raw.size:
                return self._refused(ErrorCode.INVALID_RECORD, "batches of a producer, or converted, come one by one")
            stamp_batch(view[at:], header, offset, leader_epoch)
            found.append((at, header._replace(base_offset=offset, partition_leader_epoch=leader_epoch)))
            offset += header.last_offset_delta + 1
        return self._append_run(opened, view, found, now_ms)

    def _append_run(
        self,
        opened: OpenLog,
        view: memoryview,
        found: list[tuple[int, BatchHeader]],
        now_ms: int,
        *,
        split: bool = False,
    ) -> AppendResult:
        """Append batches that have their offsets, in one write, all to one segment.

        With `split` a new segment may begin between two of them, where the leader's did; then they are written one by
        one, and an error may leave the first ones appended.
        """
        if not found:
            return self._refused(ErrorCode.NONE, None)
        first, last = found[0][1], found[-1][1]
        size = found[-1][0] + last.size
        max_timestamp = max(header.max_timestamp for _, header in found)
        try:
            if opened.must_roll(size, last.last_offset, max_timestamp, now_ms, self.config):
                if split and len(found) > 1:
                    return self._append_one_by_one(opened, view, found, now_ms)
                self._roll(opened, self._run_start(first, last), now_ms)
            position = opened.active.size
            opened.active.append_run(view[:size], found, self.config.index_interval_bytes)
        except OSError as error:
            return self._refused(ErrorCode.KAFKA_STORAGE_ERROR, self._write_failed(opened, error, now_ms))
        self.log_end_offset = last.next_offset
        for at, header in found:
            opened.epochs.assign(max(header.partition_leader_epoch, opened.epochs.latest), header.base_offset)
            if header.producer_id >= 0:
                self._replicated(opened, header, view[at : at + header.size])
        opened.remember_batch(last.base_offset, position + found[-1][0])
        opened.producers.end_offset = self.log_end_offset
        if self.log_end_offset - self.recovery_point >= self.config.flush_messages:
            self.flush_due = True
        return AppendResult(ErrorCode.NONE, first.base_offset, last.last_offset, -1, self.log_start_offset)

    def _append_one_by_one(
        self, opened: OpenLog, view: memoryview, found: list[tuple[int, BatchHeader]], now_ms: int
    ) -> AppendResult:
        for at, header in found:
            result = self._append_run(opened, view[at : at + header.size], [(0, header)], now_ms)
            if result.error is not ErrorCode.NONE:
                return result
        return result._replace(base_offset=found[0][1].base_offset)

    def _run_start(self, first: BatchHeader, last: BatchHeader) -> int:
        """Where a new segment begins: at the log end, so that segments meet even where offsets have gaps.

        Recovery takes a gap between two segments for the lost end of the first.
        """
        fits = last.last_offset - self.log_end_offset <= RELATIVE_OFFSET_MAX
        return self.log_end_offset if fits else first.base_offset

    def _replicated(self, opened: OpenLog, header: BatchHeader, batch: memoryview) -> None:
        marker = decode_control_batch(batch) if header.is_control else None
        if marker is not None:
            self._complete(opened, header, marker, header.base_offset)
        elif not header.is_control:
            opened.producers.record(header, header.base_offset)

    def _check_marker(
        self,
        opened: OpenLog,
        header: BatchHeader,
        marker: TransactionMarker | None,
        origin: AppendOrigin,
        transaction_version: int,
    ) -> Verdict | None:
        if marker is None:
            return Verdict(ErrorCode.INVALID_RECORD, "a control batch of a producer holds a transaction marker")
        return opened.producers.check_marker(header, marker, origin, transaction_version)

    def _complete(self, opened: OpenLog, header: BatchHeader, marker: TransactionMarker, offset: int) -> None:
        completed = opened.producers.record_marker(header, marker, offset)
        if completed is not None:
            try:
                opened.add_completed(completed)
            except OSError as error:
                # The marker is in the log; a restart makes the index entry from it.
                self.fail(error)

    def _answer(self, verdict: Verdict, log_append_time_ms: int) -> AppendResult:
        retried = verdict.duplicate
        if retried is None:
            return self._refused(verdict.error, verdict.message)
        return AppendResult(
            ErrorCode.NONE,
            retried.first_offset,
            retried.last_offset,
            retried.timestamp if log_append_time_ms >= 0 else -1,
            self.log_start_offset,
            duplicate=True,
        )

    def _refused(
        self, error: ErrorCode, message: str | None, record_errors: tuple[RecordError, ...] = ()
    ) -> AppendResult:
        return AppendResult.refused(error, message, record_errors, log_start_offset=self.log_start_offset)

    def _roll(self, opened: OpenLog, base_offset: int, now_ms: int) -> None:
        opened.roll(base_offset, now_ms, self.config)
        self._store.on_roll(self)

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
        opened = self._opened or self.open()
        try:
            segment = opened.active
            position = opened.recent.get(offset, -1)
            if position < 0:
                number, position = opened.find(offset)
                segment = opened.segments[number]
                end = opened.end_of(number, log_end_offset)
            else:
                end = log_end_offset
            limit = segment.size
            if end_offset < end:
                limit = opened.position_in(segment, end_offset)
            available = limit - position
            if available <= 0:
                return None
            if available > max_bytes:
                first = segment.batch_size_at(position)
                if first > max_bytes:
                    if not min_one:
                        return None
                    max_bytes = first
                available = min(available, max_bytes)
            elif end_offset <= end:
                opened.remember_end(end_offset, segment, limit)
            if position < segment.sound_from:
                available = sound_bytes(segment, position, available)
            file = segment.log.descriptor or segment.log.open()
            segment.log.used = True
            return FileRange(file, position, available)
        except (OSError, LogDamaged) as error:
            raise self.fail(error) from error

    def read_bytes(self, offset: int, max_bytes: int, end_offset: int, *, min_one: bool) -> bytes:
        """As `read`, the bytes themselves; empty where `read` has None."""
        found = self.read(offset, max_bytes, end_offset, min_one=min_one)
        if found is None:
            return b""
        try:
            return found.read()
        except OSError as error:
            raise self.fail(error) from error

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start_offset, end_offset), for readers of committed records."""
        opened = self.opened
        found: list[AbortedTransaction] = []
        try:
            for segment in opened.segments[opened.number_of(start_offset) :]:
                if collect(segment.transactions, start_offset, end_offset, found):
                    break
        except OSError as error:
            raise self.fail(error) from error
        return found

    # Offsets -----------------------------------------------------------------------------------------

    def update_high_watermark(self, offset: int) -> None:
        """Everything below `offset` is replicated. Never moves back, and not beyond the log end."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        opened = self._opened
        if opened is None or not opened.producers.has_unstable:
            self.last_stable_offset = offset
        else:
            opened.producers.on_high_watermark(offset)
            self._update_last_stable()

    def offset_for_timestamp(self, timestamp: int) -> FoundOffset | None:
        """The first record at or above the log start whose timestamp is `timestamp` or later; None if none is.

        Raises LogUnavailable.
        """
        try:
            return offset_for_timestamp(self.opened, timestamp, self.log_start_offset)
        except (OSError, LogDamaged) as error:
            raise self.fail(error) from error

    def offset_of_max_timestamp(self) -> FoundOffset | None:
        """The first record with the largest timestamp (KIP-734); None if the log has no timestamps."""
        try:
            return offset_of_max_timestamp(self.opened, self.log_start_offset)
        except (OSError, LogDamaged) as error:
            raise self.fail(error) from error

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """(largest known epoch up to `epoch`, its end offset), (-1, -1) if unknown (KIP-320)."""
        return self.opened.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of the record at `offset`; -1 if it is not known."""
        return self.opened.epochs.epoch_of(offset)

    def assign_epoch(self, epoch: int) -> None:
        """A leader epoch begins at the log end, with or without records to come (KIP-320). Only in an open log."""
        if self._opened is not None:
            self._opened.epochs.assign(epoch, self.log_end_offset)

    def forget_empty_epoch(self) -> None:
        """An epoch that this replica began and wrote nothing in says nothing of what comes from others now."""
        if self._opened is not None:
            self._opened.epochs.truncate_from(self.log_end_offset)

    @property
    def latest_epoch(self) -> int:
        """The latest leader epoch; -1 if none is known."""
        return self.opened.epochs.latest

    @property
    def producers(self) -> list[ProducerEntry]:
        """The producers known here, for DescribeProducers."""
        return list(self.opened.producers.entries.values())

    # Removing ----------------------------------------------------------------------------------------

    def delete_records_before(self, offset: int) -> None:
        """Move the log start to `offset` (DeleteRecords); files go with the next retention run.

        Raises OffsetOutOfRange if `offset` is above the high watermark. Lower than the log start: nothing happens.
        """
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is above the high watermark {self.high_watermark}")
        if offset <= self.log_start_offset:
            return
        opened = self.opened
        self.log_start_offset = offset
        opened.epochs.truncate_before(offset)
        self._update_last_stable()

    @property
    def may_have_expired(self) -> bool:
        """Whether there may be something for `apply_retention` to remove, told without opening the log."""
        if self.log_start_offset == self.log_end_offset:
            return False
        config = self.config
        limited = config.delete and (config.retention_ms >= 0 or config.retention_bytes >= 0)
        return limited or self.log_start_offset > 0

    def apply_retention(self, now_ms: int) -> int:
        """Remove the segments that retention.ms, retention.bytes or the log start let go; how many.

        Raises LogUnavailable.
        """
        opened = self.opened
        try:
            facts = opened.facts(self.log_end_offset, with_times=self.config.retention_ms >= 0)
            removal = segments_to_remove(
                facts,
                self.config,
                log_start_offset=self.log_start_offset,
                high_watermark=self.high_watermark,
                now_ms=now_ms,
            )
            if not removal.number:
                return 0
            if removal.number == len(opened.segments):
                self._roll(opened, self.log_end_offset, now_ms)
            opened.remove_oldest(removal.number, self.config)
        except (OSError, LogDamaged) as error:
            raise self.fail(error) from error
        first = opened.segments[0].base_offset
        logger.info(
            "log=%s removed %d segments below offset %d: %s",
            self.directory,
            removal.number,
            first,
            removal.reason,
        )
        if first > self.log_start_offset:
            self.log_start_offset = first
            opened.epochs.truncate_before(first)
            self._update_last_stable()
        return removal.number

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
        self._cut(plan, producers)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop all records; the next one will be at `offset`. Raises LogUnavailable."""
        opened = self.opened
        self.recovery_point = min(self.recovery_point, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        try:
            self._store.before_cut(self)
            opened.restart_at(offset, self._store.clock.now_ms(), self.config)
        except OSError as error:
            raise self.fail(error) from error
        self.log_start_offset = self.log_end_offset = self.recovery_point = self.cleaned_offset = offset
        self.high_watermark = self.last_stable_offset = offset

    def expire_producers(self, now_ms: int) -> None:
        """Forget producers that have been idle for producer.id.expiration.ms."""
        if self._opened is not None:
            self._opened.producers.expire(now_ms, self._store.producer_expiration_ms)


def _holds_several(records: Buffer) -> bool:
    return len(records) > LENGTH_END and int.from_bytes(records[8:LENGTH_END], "big") + LENGTH_END < len(records)
