"""The life of one partition's log: opened on first use, flushed, closed, or offline because its disk failed."""

from __future__ import annotations

import errno
import logging
from typing import Final

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.core.log.results import LogDamaged, LogUnavailable
from raftlog.broker.core.log.validation import BatchRules
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.pending_flush import PendingFlush
from raftlog.broker.store.recovery import recover
from raftlog.broker.store.segment import LOG_SUFFIX
from raftlog.broker.store.store import Store
from raftlog.broker.store.truncation_plan import TruncationPlan
from raftlog.wire.errors import InvariantViolation

logger = logging.getLogger("raftlog.log")

FULL_DISK_ERRORS: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
FULL_DISK_RETRY_MS: Final = 1000
"""After a full disk appends are refused at once for so long, before one may try again."""
FULL_DISK_TOLD_MS: Final = 60_000
"""How often a log tells of it at most: there may be thousands of them, and their lines may go to the same disk."""
REFUSALS: Final = (*FULL_DISK_ERRORS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say what was not done, and take nothing away of what was. A failed sync is none: it is told as EIO."""


class ManagedLog:
    """Offsets, state and files of one partition's log. Until it is opened only what the checkpoints say is known.

    Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset, and recovery_point <=
    log_end_offset once it is open. Below the recovery point everything is on stable storage.

    `offline_reason` is why the log serves nothing until the broker starts again; `full_reason` why it takes no
    appends for the moment. `intact` says that, offline or not, nothing that was acknowledged can be missing from its
    files as the operating system shows them. `flush_due` says that flush.messages asks for a flush before an
    acknowledgement. `clean` says that the log was closed, so that its end is the recovery point.
    """

    __slots__ = (
        "_full_told_ms",
        "_full_until_ms",
        "_opened",
        "_rules",
        "_store",
        "_stored_bytes",
        "clean",
        "cleaned_offset",
        "config",
        "directory",
        "flush_due",
        "full_reason",
        "high_watermark",
        "index",
        "intact",
        "is_new",
        "last_flush_ms",
        "last_stable_offset",
        "log_end_offset",
        "log_start_offset",
        "offline_reason",
        "recovery_point",
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
        self.clean = clean
        # Its directory was made just now, and is empty.
        self.is_new = False
        self.log_start_offset = log_start_offset
        # Compaction has seen every record below this; see `cleaner.py`.
        self.cleaned_offset = cleaned_offset
        self.recovery_point = recovery_point
        # After a crash the end is only known once the log is open; it is not below what was replicated.
        self.high_watermark = max(high_watermark, log_start_offset)
        if clean:
            self.high_watermark = min(self.high_watermark, max(recovery_point, log_start_offset))
        self.log_end_offset = max(recovery_point, self.high_watermark)
        self.last_stable_offset = self.high_watermark
        self.flush_due = False
        self.last_flush_ms = 0
        self.offline_reason: str | None = None
        self.intact = True
        self.full_reason: str | None = None
        self._full_until_ms = 0
        self._full_told_ms = -FULL_DISK_TOLD_MS
        self._opened: OpenLog | None = None
        self._rules: BatchRules | None = None
        # While it is closed nothing changes its size.
        self._stored_bytes = -1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic}-{self.index}, {self.log_start_offset}..{self.log_end_offset})"

    def reconfigure(self, config: LogConfig) -> None:
        """Take new settings; they hold from the next append on."""
        self.config = config
        self._rules = None

    # Opening and closing -----------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._opened is not None

    @property
    def opened(self) -> OpenLog:
        """Segments, epochs and producers, read from the disk now if they were not. Raises LogUnavailable."""
        return self._opened or self.open()

    def open(self) -> OpenLog:
        """Read what is on the disk, and recover it. Raises LogUnavailable, and is offline then."""
        if self._opened is not None:
            return self._opened
        ticket = self.begin_open()
        if ticket is not None:
            self._sync(ticket)
            self.end_flush(ticket)
        return self.opened

    def begin_open(self) -> PendingFlush | None:
        """As `open`, but what was recovered is not synced: that is to be done, and `end_flush` called, before anybody
        is served. None if there is nothing to sync. Raises LogUnavailable.
        """
        if self.offline_reason is not None:
            raise LogUnavailable(self.offline_reason)
        try:
            opened, start, end, recovery_point = recover(
                self._store,
                self.directory,
                self.config,
                log_start_offset=self.log_start_offset,
                recovery_point=self.recovery_point,
                clean=self.clean,
                new=self.is_new,
            )
            self.is_new = False
            ticket = opened.pending_flush(recovery_point, end) if end > recovery_point else None
        except (OSError, LogDamaged) as error:
            if self.is_new and isinstance(error, OSError) and error.errno in FULL_DISK_ERRORS:
                # Nothing is in it that could be lost: it is tried again when it is asked for again.
                raise LogUnavailable(f"{self.directory}: {error.strerror}") from error
            raise self.fail(error) from error
        self._opened = opened
        self.clean = False
        self.log_start_offset, self.log_end_offset, self.recovery_point = start, end, recovery_point
        if self.cleaned_offset > end:
            # What was cut off was clean; what will be appended in its place is not.
            self.cleaned_offset = 0
        self.last_flush_ms = self._store.clock.now_ms()
        self.high_watermark = min(max(self.high_watermark, start), end)
        opened.producers.on_high_watermark(self.high_watermark)
        self._update_last_stable()
        return ticket

    def prepare_close(self) -> bool:
        """Put everything into the files; whether they are to be synced then, before `end_close`.

        Not if it is closed, or if nothing was to be done and it is closed now. Raises LogUnavailable.
        """
        opened = self._opened
        if opened is None:
            return False
        try:
            if self.unload():
                return False
            opened.finish(self.log_end_offset)
        except (OSError, LogDamaged) as error:
            raise self.fail(error) from error
        return True

    def begin_close(self) -> PendingFlush | None:
        """As `prepare_close`; what to sync, perhaps in a thread. None if it is closed. Raises LogUnavailable."""
        if not self.prepare_close():
            return None
        try:
            return self.opened.pending_flush(self.recovery_point, self.log_end_offset)
        except OSError as error:
            raise self.fail(error) from error

    def stage_epochs(self) -> bool:
        """Before the whole file system is synced: write the leader epochs beside their file, if they have changed.

        Raises OSError.
        """
        return self._opened is not None and self._opened.stage_epochs(self.log_end_offset)

    def take_staged_epochs(self) -> None:
        """What was staged is synced: put it under its name. Raises OSError."""
        if self._opened is not None:
            self._opened.take_staged_epochs(self.log_end_offset)

    def nothing_to_sync(self) -> PendingFlush:
        """For `end_close`, when all that `prepare_close` left was synced already."""
        return PendingFlush(self.opened, self.log_end_offset, (), (), None)

    def end_close(self, ticket: PendingFlush) -> None:
        """The ticket was synced: let go of the files. Used again, the log opens again, without a scan."""
        self.end_flush(ticket)
        if self._opened is not None:
            self._stored_bytes = self._opened.size
        self.abandon()
        self.clean = self.recovery_point == self.log_end_offset

    def close(self) -> None:
        """Bring everything to stable storage and let go of the files. Raises LogUnavailable: not a clean stop then."""
        ticket = self.begin_close()
        if ticket is not None:
            self._sync(ticket)
            self.end_close(ticket)

    def unload(self) -> bool:
        """Let go of an opened log for which a close would do nothing; whether it is closed now."""
        opened = self._opened
        settled = opened is not None and self.recovery_point == self.log_end_offset
        if opened is not None and settled and opened.is_settled(self.log_end_offset):
            self._stored_bytes = opened.size
            self.abandon()
            self.clean = True
        return self._opened is None

    def abandon(self) -> None:
        """Let go of the files as they are, after a failure or before the directory is removed."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None

    def stored_bytes(self) -> int:
        """Bytes of all batches, for DescribeLogDirs; without opening the log. Raises OSError."""
        if self._opened is not None:
            return self._opened.size
        if self._stored_bytes < 0:
            disk, directory = self._store.disk, self.directory
            names = [name for name in disk.list_directory(directory) if name.endswith(LOG_SUFFIX)]
            self._stored_bytes = sum(disk.stat(f"{directory}/{name}")[0] for name in names)
        return self._stored_bytes

    # Shrinking ---------------------------------------------------------------------------------------

    def plan_truncation(self, end_offset: int) -> TruncationPlan | None:
        """What is to be read before the log is cut at `end_offset`; None if nothing of it would be left.

        Raises LogUnavailable.
        """
        opened = self.opened
        if end_offset <= opened.segments[0].base_offset:
            return None
        try:
            end_offset = opened.end_below(end_offset)
            if end_offset < self.log_start_offset:
                return None
            return TruncationPlan(opened, self.log_start_offset, self.recovery_point, end_offset)
        except (OSError, LogDamaged) as error:
            raise self.fail(error) from error

    def _cut(self, plan: TruncationPlan, producers: ProducerStates | None) -> None:
        end_offset, opened = plan.end_offset, self.opened
        try:
            producers = producers or plan.run()
            self.recovery_point = min(self.recovery_point, end_offset)
            self.cleaned_offset = min(self.cleaned_offset, end_offset)
            self._store.before_cut(self)
            opened.cut(end_offset, producers)
        except (OSError, LogDamaged) as error:
            raise self.fail(error) from error
        self.log_end_offset = end_offset
        self.high_watermark = min(self.high_watermark, end_offset)
        producers.on_high_watermark(self.high_watermark)
        self._update_last_stable()
        self.flush()

    # Flushing ----------------------------------------------------------------------------------------

    def begin_flush(self, *, rolled_only: bool = False) -> PendingFlush | None:
        """What to sync, perhaps in a thread, before all that is in the log now is safe; None if it is already.

        With `rolled_only` the active segment is left out. Then `end_flush` or, if syncing failed, `fail`. Raises
        LogUnavailable.
        """
        if self.offline_reason is not None:
            raise LogUnavailable(self.offline_reason)
        opened = self._opened
        if opened is None:
            self.flush_due = False
            return None
        end_offset = opened.active.base_offset if rolled_only else self.log_end_offset
        if not rolled_only:
            self.flush_due = False
        if self.recovery_point >= end_offset:
            return None
        try:
            return opened.pending_flush(self.recovery_point, self.log_end_offset, rolled_only=rolled_only)
        except OSError as error:
            raise self.fail(error) from error

    def end_flush(self, ticket: PendingFlush) -> None:
        """The ticket was synced: the recovery point moves on."""
        opened = self._opened
        if opened is not None and ticket.is_of(opened):
            self.recovery_point = max(self.recovery_point, ticket.end_offset)
            self.last_flush_ms = self._store.clock.now_ms()

    def flush(self) -> None:
        """Bring all that is in the log to stable storage, now. Raises LogUnavailable."""
        ticket = self.begin_flush()
        if ticket is not None:
            self._sync(ticket)
            self.end_flush(ticket)

    def _sync(self, ticket: PendingFlush) -> None:
        try:
            ticket.sync()
        except OSError as error:
            raise self.fail(error) from error

    # Failing -----------------------------------------------------------------------------------------

    def fail(self, error: Exception) -> LogUnavailable:
        """Take the log offline until the broker starts again; the exception to raise.

        After a failed sync the kernel may have dropped the pages it could not write and call them clean, so what
        is read back cannot be trusted before everything is checked from the recovery point on. A disk that is merely
        full still holds all that was acknowledged (`intact`).
        """
        if self.offline_reason is None:
            self.intact = isinstance(error, OSError) and error.errno in REFUSALS
            reason = str(error)
            self.offline_reason = reason if isinstance(error, LogDamaged) else f"{self.directory}: {reason}"
            logger.error("log=%s is offline until the broker starts again: %s", self.directory, reason)
            self.abandon()
            self._store.on_failure(self, self.offline_reason)
        return LogUnavailable(self.offline_reason)

    def _write_failed(self, opened: OpenLog, error: OSError, now_ms: int) -> str:
        """A full disk: give back what was written in part, and try again later. Anything else: offline. The reason."""
        if error.errno not in FULL_DISK_ERRORS:
            return str(self.fail(error))
        segment = opened.active
        try:
            self._store.disk.truncate(segment.descriptor().fd, segment.size)
            opened.sync_with_next(segment)
        except OSError as second:
            return str(self.fail(second))
        self.full_reason = f"{self.directory}: {error.strerror}; appends are tried again every second"
        self._full_until_ms = now_ms + FULL_DISK_RETRY_MS
        if not 0 <= now_ms - self._full_told_ms < FULL_DISK_TOLD_MS:
            self._full_told_ms = now_ms
            logger.error("log=%s takes no appends before there is room: %s", self.directory, error.strerror)
        self._store.on_full(self, self.full_reason)
        return self.full_reason

    def _why_not_writable(self, now_ms: int) -> str | None:
        """Open the log; why it takes no appends, None if it does."""
        if self.full_reason is not None:
            # A clock that was set back meanwhile makes nobody wait longer.
            if 0 < self._full_until_ms - now_ms <= FULL_DISK_RETRY_MS:
                return self.full_reason
            self.full_reason = None
        try:
            self.open()
        except LogUnavailable as error:
            return str(error)
        if self._rules is None:
            self._rules = BatchRules(self.config)
        return None

    # Offsets -----------------------------------------------------------------------------------------

    def _update_last_stable(self) -> None:
        unstable = self._opened.producers.first_unstable_offset() if self._opened is not None else None
        if unstable is None or unstable > self.high_watermark:
            self.last_stable_offset = self.high_watermark
        else:
            self.last_stable_offset = max(unstable, self.log_start_offset)

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        offsets = (self.log_start_offset, self.last_stable_offset, self.high_watermark, self.log_end_offset)
        if list(offsets) != sorted(offsets):
            raise InvariantViolation(f"{self.topic}-{self.index}: start, stable, high, end are {offsets}")
        opened = self._opened
        if opened is None:
            return
        opened.check_invariants()
        if self.recovery_point > self.log_end_offset:
            raise InvariantViolation(f"{self!r}: recovery point {self.recovery_point} is beyond the end")
        if opened.producers.end_offset != self.log_end_offset:
            raise InvariantViolation(f"{self!r}: producers are as of {opened.producers.end_offset}")
