"""What a log manager's logs need in the background: flushing, retention, compaction, moves, checkpoints, removing
files.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from raftlog.broker.core.log.config import LONG_MAX
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store.files import FULL_DISK_ERRORS
from raftlog.broker.store.io_rate import IoRate
from raftlog.broker.store.log_manager import LogManager
from raftlog.broker.store.log_moves import LogMoves
from raftlog.broker.store.names import CLEANED_OFFSETS, HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from raftlog.broker.store.partition_log import PartitionLog

if TYPE_CHECKING:
    from raftlog.broker.store.cleaner import LogCleaner

logger = logging.getLogger("raftlog.store")

LOGS_A_TURN: Final = 64
"""How many logs are looked at before the event loop goes on."""
INTERVAL_MS_MIN: Final = 10
"""How often a task is done at most: Kafka takes an interval of 0, which would leave no time for anything else."""
FLUSH_CHECK_MS: Final = 500
"""How exactly flush.ms is kept, and how soon a complete segment is synced."""
CLOCK_JUMP_MS_MIN: Final = 10_000
"""A clock that is set by the network moves by milliseconds."""
HASH_KEY_BYTES: Final = 16
"""Of the secret that keeps a client from choosing keys that collide in the cleaner's map."""


class ScheduledTasks:
    """Each task can be called by itself, and does what is due then."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._cleaner: LogCleaner | None = None
        self.moves = LogMoves(manager)
        self._ahead_ms = self._clock_ahead_ms()

    @property
    def uncleanable(self) -> int:
        """How many logs compaction has given up."""
        return len(self._cleaner.uncleanable) if self._cleaner is not None else 0

    async def run(self) -> None:
        """Do what is due, for ever."""
        manager = self._manager
        settings = manager.settings
        tasks: list[tuple[int, Callable[[], Awaitable[object]]]] = [
            (FLUSH_CHECK_MS, self.flush_due_logs),
            (FLUSH_CHECK_MS, self.remove_due_files),
            (settings.retention_check_interval_ms, self.apply_retention),
            (settings.producer_expiration_check_interval_ms, self.expire_producers),
            (settings.flush_offset_checkpoint_interval_ms, partial(self.checkpoint, RECOVERY_POINTS)),
            (settings.flush_start_offset_checkpoint_interval_ms, partial(self.checkpoint, LOG_STARTS)),
            (settings.high_watermark_checkpoint_interval_ms, partial(self.checkpoint, HIGH_WATERMARKS)),
        ]
        async with asyncio.TaskGroup() as group:
            for interval_ms, task in tasks:
                group.create_task(_repeat(interval_ms, task))
            group.create_task(self.moves.run())
            if settings.cleaner_enable:
                group.create_task(self._compact_again_and_again())

    # Tasks ---------------------------------------------------------------------------------------------

    async def flush_due_logs(self) -> None:
        """Sync the segments that are complete, and the logs whose flush.ms has passed."""
        now_ms = self._manager.clock.now_ms()
        for log in list(self._manager):
            storage = log.storage
            if storage.opened is None:
                continue
            if storage.has_rolled:
                await self._manager.flush_once(log, rolled_only=True)
            flush_ms = log.config.flush_ms
            # A clock that was set back since says nothing about how long it was.
            due = flush_ms < LONG_MAX and not 0 <= now_ms - storage.last_flush_ms < flush_ms
            if due and log.log_end_offset > storage.recovery_point:
                await self._manager.flush_once(log)

    async def apply_retention(self) -> None:
        """Remove what retention.ms, retention.bytes and the log starts let go, in all logs, opened or not."""
        now_ms = self._manager.clock.now_ms()
        jumped_ms, removed = self._jumped_ms(), 0
        for number, log in enumerate(list(self._manager)):
            if number % LOGS_A_TURN == LOGS_A_TURN - 1:
                await asyncio.sleep(0)
            if log.offline_reason is not None or not _may_have_expired(log):
                continue
            was_open = log.is_open
            try:
                has_removed = log.apply_retention(now_ms) > 0
                # In the same turn: later somebody may have begun to use it.
                if not was_open and not log.storage.unload() and log.recovery_point == log.log_end_offset:
                    log.storage.close()
                if has_removed:
                    removed += 1
                    await asyncio.sleep(0)
            except LogUnavailable:
                # It has said why, and is offline.
                continue
        if jumped_ms:
            logger.warning(
                "the clock of this machine was set %s by %.0f s, or it slept: what goes by time, such as retention.ms,"
                " is due so much %s than before; retention has removed segments of %d logs now",
                "forward" if jumped_ms > 0 else "back",
                abs(jumped_ms) / 1000,
                "earlier" if jumped_ms > 0 else "later",
                removed,
            )

    def _clock_ahead_ms(self) -> int:
        """By how much the clock that may be set is ahead of the one that only goes forward."""
        clock = self._manager.clock
        return clock.now_ms() - int(clock.monotonic() * 1000)

    def _jumped_ms(self) -> int:
        """By how much the clock was set since the last look; 0 if it was not."""
        before, self._ahead_ms = self._ahead_ms, self._clock_ahead_ms()
        jumped_ms = self._ahead_ms - before
        return jumped_ms if abs(jumped_ms) >= CLOCK_JUMP_MS_MIN else 0

    async def _compact_again_and_again(self) -> None:
        """The one task whose interval may change while the broker runs. It does not rest on when it does."""
        manager = self._manager
        while True:
            manager.reconfigured.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(manager.settings.cleaner_backoff_ms, INTERVAL_MS_MIN) / 1000):
                    await manager.reconfigured.wait()
            await self.compact()

    async def compact(self) -> None:
        """Compact the logs that are due, one after the other."""
        manager = self._manager
        # A topic that was deleted must not leave its offset to one that is made under its name.
        if not await self.checkpoint(CLEANED_OFFSETS):
            return
        if not any(log.config.compact and log.is_open for log in manager):
            return
        # Imported when there is a log to compact: a broker is to start fast.
        from raftlog.broker.store.cleaner import LogCleaner, drive

        if self._cleaner is None:
            rate = IoRate(manager.clock, lambda: manager.settings.cleaner_io_max_bytes_per_second)
            self._cleaner = LogCleaner(manager.store, os.urandom(HASH_KEY_BYTES), rate)
        cleaner = self._cleaner
        cleaner.map_bytes = manager.settings.cleaner_dedupe_buffer_size
        while (log := self._next_to_compact(cleaner)) is not None:
            manager.rewriting.add(log)
            try:
                # Recovery takes gaps between segments for losses, and only compaction makes them: what it touches
                # must be below the recovery point, as it is on the disk.
                await manager.flush_once(log, rolled_only=True)
                safe_offset, generation = log.recovery_point, log.opened.generation
                if not await self.checkpoint(RECOVERY_POINTS):
                    return
                if log.opened.generation is not generation:
                    # Truncated meanwhile, perhaps below that, and what has come since may not be safe.
                    continue
                steps = cleaner.clean(log, safe_offset)
                await drive(steps, manager.clock, manager.in_thread, cleaner.rate)
            except LogUnavailable:
                continue
            except OSError as error:
                logger.error("log=%s is not compacted for now: %s", log.directory, error)
                return
            finally:
                manager.rewriting.discard(log)
            if not await self.checkpoint(CLEANED_OFFSETS):
                return

    def _next_to_compact(self, cleaner: LogCleaner) -> PartitionLog | None:
        manager = self._manager
        # One that moves to another directory can wait.
        return cleaner.choose((log for log in manager if log not in manager.rewriting), manager.clock.now_ms())

    async def expire_producers(self) -> None:
        """Forget producers that have been idle for producer.id.expiration.ms."""
        now_ms = self._manager.clock.now_ms()
        for log in self._manager:
            if log.storage.opened is not None:
                log.storage.opened.producers.expire(now_ms, self._manager.store.producer_expiration_ms)

    async def checkpoint(self, name: str) -> bool:
        """Write one kind of checkpoint in every directory, where it has changed; whether there was room for it.

        An older one only claims less: a start reads more, and nothing is lost.
        """
        written = True
        for directory in self._manager.directories:
            if directory.offline_reason is not None:
                continue
            checkpoint = directory.checkpoint(name)
            try:
                if directory.has_changed(checkpoint):
                    await self._manager.in_thread(partial(directory.write_checkpoint, checkpoint))
            except OSError as error:
                if error.errno not in FULL_DISK_ERRORS:
                    self._manager.directory_failed(directory, error)
                    continue
                logger.error("directory=%s %s is not written for now: %s", directory.path, name, error.strerror)
                written = False
        return written

    async def remove_due_files(self) -> None:
        """Remove the files and directories whose time (file.delete.delay.ms) has come."""
        self._manager.deletions.run_due()


def _may_have_expired(log: PartitionLog) -> bool:
    """Whether there may be something for retention to remove, told without opening the log."""
    if log.log_start_offset == log.log_end_offset:
        return False
    config = log.config
    limited = config.delete and (config.retention_ms >= 0 or config.retention_bytes >= 0)
    return limited or log.log_start_offset > 0


async def _repeat(interval_ms: int, task: Callable[[], Awaitable[object]]) -> None:
    while True:
        await asyncio.sleep(max(interval_ms, INTERVAL_MS_MIN) / 1000)
        await task()
