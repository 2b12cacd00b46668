"""Whether the files of one partition's log can be used: opened on first use, flushed, closed, or offline because the
disk failed.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogDamaged, LogUnavailable
from raftlog.broker.store.files import FULL_DISK_ERRORS
from raftlog.broker.store.log_loader import LoadedLog, load_log
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.pending_flush import PendingFlush
from raftlog.broker.store.segment import LOG_SUFFIX
from raftlog.broker.store.store import Store

logger = logging.getLogger("raftlog.log")

FULL_DISK_RETRY_MS: Final = 1000
"""After a full disk appends are refused at once for so long, before one may try again."""
REFUSALS: Final = (*FULL_DISK_ERRORS, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors that say what was not done, and take nothing away of what was. A failed sync is none: it is told as EIO."""


class LogStorage:
    """Closed, open (`opened` is set), or offline (`offline_reason` is set) until the broker starts again.

    Below `recovery_point` everything is on stable storage. `flush_due` says that flush.messages asks for a flush before
    an acknowledgement. `clean` says that the log was closed, so that its end is the recovery point; `is_new` that its
    directory was made just now, and is empty. `full_reason` is why there are no appends for the moment. `intact` says
    that, offline or not, nothing that was acknowledged can be missing from the files as the operating system shows
    them. `gaps_are_losses` is False when the recovery point is not known and compaction may have been here.

    `on_offline` is called once, `on_full` with each append that finds no room; both with the reason.
    """

    __slots__ = (
        "_full_until_ms",
        "_on_full",
        "_on_offline",
        "_store",
        "_stored_bytes",
        "clean",
        "directory",
        "flush_due",
        "full_reason",
        "gaps_are_losses",
        "intact",
        "is_new",
        "last_flush_ms",
        "offline_reason",
        "opened",
        "recovery_point",
    )

    def __init__(
        self,
        store: Store,
        directory: str,
        *,
        recovery_point: int,
        clean: bool,
        on_offline: Callable[[str], None],
        on_full: Callable[[str], None],
    ) -> None:
        self._store = store
        self.directory = directory
        self.recovery_point = recovery_point
        self.clean = clean
        self._on_offline = on_offline
        self._on_full = on_full
        self.is_new = False
        self.gaps_are_losses = True
        self.opened: OpenLog | None = None
        self.offline_reason: str | None = None
        self.intact = True
        self.flush_due = False
        self.last_flush_ms = 0
        self.full_reason: str | None = None
        self._full_until_ms = 0
        # While it is closed nothing changes its size.
        self._stored_bytes = -1

    # Opening and closing -----------------------------------------------------------------------------

    def open(
        self, config: LogConfig, log_start_offset: int, high_watermark: int
    ) -> tuple[LoadedLog, PendingFlush | None]:
        """Read what is on the disk, and recover it; None if all of it is safe. Else that is to be synced, and
        `end_flush` called, before anybody is served. Raises LogUnavailable, and is offline then.
        """
        if self.offline_reason is not None:
            raise LogUnavailable(self.offline_reason)
        try:
            loaded = load_log(
                self._store,
                self.directory,
                config,
                log_start_offset=log_start_offset,
                high_watermark=high_watermark,
                recovery_point=self.recovery_point,
                clean=self.clean,
                new=self.is_new,
                gaps_are_losses=self.gaps_are_losses,
            )
            self.is_new, self.gaps_are_losses = False, True
            opened, recovery_point = loaded.opened, loaded.recovery_point
            pending = opened.begin_flush(recovery_point) if opened.end_offset > recovery_point else None
        except (OSError, LogDamaged) as error:
            if self.is_new and isinstance(error, OSError) and error.errno in FULL_DISK_ERRORS:
                # Nothing is in it that could be lost: it is tried again when it is asked for again.
                raise LogUnavailable(f"{self.directory}: {error.strerror}") from error
            raise self.fail(error) from error
        self.opened = opened
        self.clean = False
        self.recovery_point = recovery_point
        self.last_flush_ms = self._store.clock.now_ms()
        return loaded, pending

    def prepare_close(self) -> OpenLog | None:
        """Put everything into the files; what is to be synced then, before `end_close`.

        None if it is closed, or if nothing was to be done and it is closed now. Raises LogUnavailable.
        """
        opened = self.opened
        if opened is None:
            return None
        with self.failing():
            if self.unload():
                return None
            opened.finish()
        return opened

    def begin_close(self) -> PendingFlush | None:
        """As `prepare_close`; what to sync, perhaps in a thread. None if it is closed. Raises LogUnavailable."""
        opened = self.prepare_close()
        with self.failing():
            return None if opened is None else opened.begin_flush(self.recovery_point)

    def end_close(self, pending: PendingFlush) -> None:
        """It was synced: let go of the files. Used again, the log opens again, without a scan."""
        self.end_flush(pending)
        opened = self.opened
        if opened is not None:
            self._stored_bytes = opened.segments.size
            self.clean = self.recovery_point == opened.end_offset
        self.abandon()

    def close(self) -> None:
        """Bring everything to stable storage and let go of the files. Raises LogUnavailable: not a clean stop then."""
        pending = self.begin_close()
        if pending is not None:
            self._sync(pending)
            self.end_close(pending)

    def unload(self) -> bool:
        """Let go of an opened log for which a close would do nothing; whether it is closed now."""
        opened = self.opened
        if opened is not None and self.recovery_point == opened.end_offset and opened.is_settled:
            self._stored_bytes = opened.segments.size
            self.abandon()
            self.clean = True
        return self.opened is None

    def abandon(self) -> None:
        """Let go of the files as they are, after a failure or before the directory is removed."""
        if self.opened is not None:
            self.opened.close()
            self.opened = None

    def stored_bytes(self) -> int:
        """Bytes of all batches, for DescribeLogDirs; without opening the log. Raises OSError."""
        if self.opened is not None:
            return self.opened.segments.size
        if self._stored_bytes < 0:
            disk, directory = self._store.disk, self.directory
            names = [name for name in disk.list_directory(directory) if name.endswith(LOG_SUFFIX)]
            self._stored_bytes = sum(disk.stat(f"{directory}/{name}")[0] for name in names)
        return self._stored_bytes

    # Flushing ----------------------------------------------------------------------------------------

    @property
    def has_rolled(self) -> bool:
        """Whether there are complete segments that are not known to be safe."""
        opened = self.opened
        return opened is not None and self.recovery_point < opened.segments.active.base_offset

    def begin_flush(self, *, rolled_only: bool = False) -> PendingFlush | None:
        """What to sync, perhaps in a thread, before all that is in the log now is safe; None if it is already.

        With `rolled_only` the active segment is left out. Then `end_flush` or, if syncing failed, `fail`. Raises
        LogUnavailable.
        """
        if self.offline_reason is not None:
            raise LogUnavailable(self.offline_reason)
        opened = self.opened
        if opened is None or not rolled_only:
            self.flush_due = False
        if opened is None:
            return None
        if self.recovery_point >= (opened.segments.active.base_offset if rolled_only else opened.end_offset):
            return None
        with self.failing():
            return opened.begin_flush(self.recovery_point, rolled_only=rolled_only)

    def end_flush(self, pending: PendingFlush) -> None:
        """It was synced: the recovery point moves on, unless the log was truncated or closed since."""
        if self.opened is not None and pending.generation is self.opened.generation:
            self.recovery_point = max(self.recovery_point, pending.end_offset)
            self.last_flush_ms = self._store.clock.now_ms()

    def flush(self) -> None:
        """Bring all that is in the log to stable storage, now. Raises LogUnavailable."""
        pending = self.begin_flush()
        if pending is not None:
            self.complete_flush(pending)

    def complete_flush(self, pending: PendingFlush) -> None:
        """Sync, now. Raises LogUnavailable."""
        self._sync(pending)
        self.end_flush(pending)

    def _sync(self, pending: PendingFlush) -> None:
        with self.failing():
            pending.sync()

    # Failing -----------------------------------------------------------------------------------------

    @contextmanager
    def failing(self) -> Iterator[None]:
        """A disk that fails within takes the log offline: LogUnavailable. Not for hot paths."""
        try:
            yield
        except (OSError, LogDamaged) as error:
            if isinstance(error, OSError) and error.errno in FULL_DISK_ERRORS:
                self._on_full(f"{self.directory}: {error.strerror}")
            raise self.fail(error) from error

    def try_again(self) -> None:
        """What took an intact log offline is over: it is opened, and recovered, when it is used next."""
        if self.intact:
            self.offline_reason = None

    def fail(self, error: Exception, *, with_directory: bool = False) -> LogUnavailable:
        """Take the log offline until the broker starts again, alone or `with_directory`; the exception to raise.

        After a failed sync the kernel may have dropped the pages it could not write and call them clean, so what
        is read back cannot be trusted before everything is checked from the recovery point on. A disk that is merely
        full still holds all that was acknowledged (`intact`).
        """
        if self.offline_reason is None:
            self.intact = isinstance(error, OSError) and error.errno in REFUSALS
            reason = str(error)
            self.offline_reason = reason if isinstance(error, LogDamaged) else f"{self.directory}: {reason}"
            until = "it is tried again" if self.intact else "the broker starts again"
            # Of a whole directory one line tells.
            level = logging.DEBUG if with_directory else logging.ERROR
            logger.log(level, "log=%s is offline until %s: %s", self.directory, until, reason)
            self.abandon()
            self._on_offline(self.offline_reason)
        return LogUnavailable(self.offline_reason)

    def append_failed(self, opened: OpenLog, error: OSError, now_ms: int) -> str:
        """A full disk: give back what was written in part, and try again later. Anything else: offline. The reason."""
        if error.errno not in FULL_DISK_ERRORS:
            return str(self.fail(error))
        segment = opened.segments.active
        try:
            self._store.disk.truncate(segment.descriptor().fd, segment.size)
            opened.sync_with_next(segment)
        except OSError as second:
            return str(self.fail(second))
        self.full_reason = f"{self.directory}: {error.strerror}; appends are tried again every second"
        self._full_until_ms = now_ms + FULL_DISK_RETRY_MS
        logger.debug("log=%s takes no appends before there is room: %s", self.directory, error.strerror)
        self._on_full(self.full_reason)
        return self.full_reason

    def still_full(self, now_ms: int) -> str | None:
        """Why no append is tried now; None if one may be."""
        # A clock that was set back meanwhile makes nobody wait longer.
        if self.full_reason is not None and not 0 < self._full_until_ms - now_ms <= FULL_DISK_RETRY_MS:
            if self._store.is_full(os.path.dirname(self.directory)):
                self._full_until_ms = now_ms + FULL_DISK_RETRY_MS
                self._on_full(self.full_reason)
            else:
                self.full_reason = None
        return self.full_reason
