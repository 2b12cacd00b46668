"""Flushing before an acknowledgement (flush.messages)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.store.log_manager import LogManager


class Flusher:
    """Brings logs to the disk. `failed(partition, failure)` is called when one cannot be."""

    def __init__(self, logs: LogManager, failed: Callable[[Partition, LogUnavailable], None]) -> None:
        self._logs = logs
        self._failed = failed
        self._tasks: set[asyncio.Task[None]] = set()

    def flush(self, partition: Partition) -> None:
        """Bring the log to the disk; the partition is told as that goes on."""
        if not partition.flushing:
            partition.flushing = True
            task = asyncio.get_running_loop().create_task(self._flush_until_done(partition))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _flush_until_done(self, partition: Partition) -> None:
        """What is appended meanwhile shares the next sync."""
        try:
            while partition.log.flush_due and partition.read_error is ErrorCode.NONE:
                await self._logs.flush(partition.log)
                partition.flushed(partition.log.recovery_point)
        except LogUnavailable as failure:
            self._failed(partition, failure)
        finally:
            partition.flushing = False
            partition.flushed(0)
