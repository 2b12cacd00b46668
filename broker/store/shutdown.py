"""Closing all logs of one data directory, so that the next start need not look into them.

A crash in between leaves what recovery can mend.

A few logs are synced file by file, several at once. Of many the whole file system is synced, where that can be relied
upon: a log is half a dozen files, each costs the disk a flush of its own even when it is clean, and ten thousand logs
took half a minute. One call for all of them takes a fraction of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Final, TypeVar

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store.data_directory import DataDirectory
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.pending_flush import PendingFlush

FEW_LOGS: Final = 64
"""Up to so many logs are synced file by file, together: each holds a few descriptors. Nothing else that is written to
the same file system holds these up."""
LOGS_A_TURN: Final = 64
"""How many logs are written out before the event loop goes on: the metadata quorum may still need this node."""

T = TypeVar("T")

InThread = Callable[[Callable[[], Any]], asyncio.Future[Any]]
"""Runs what waits for a disk beside the event loop."""


async def close_logs(directory: DataDirectory, in_thread: InThread) -> bool:
    """Bring every log of the directory to stable storage and let go of its files; whether all of them are safe.

    Logs that cannot be closed are offline afterwards. Raises OSError when the file system as a whole has lost
    something, and nobody can say which log.
    """
    clean = all(log.offline_reason is None for log in directory.logs.values())
    waiting: list[tuple[PartitionLog, OpenLog]] = []
    async for log in _in_turns(list(directory.logs.values())):
        try:
            opened = log.storage.prepare_close()
        except LogUnavailable:
            clean = False
            continue
        if opened is not None:
            waiting.append((log, opened))
    if len(waiting) > FEW_LOGS and await _sync_all(directory, waiting, in_thread):
        return clean and all(log.offline_reason is None for log, _ in waiting)
    for first in range(0, len(waiting), FEW_LOGS):
        clean = await _sync_each([log for log, _ in waiting[first : first + FEW_LOGS]], in_thread) and clean
    return clean


async def _sync_all(directory: DataDirectory, logs: list[tuple[PartitionLog, OpenLog]], in_thread: InThread) -> bool:
    """Sync the file system; whether this disk can do that. Raises OSError.

    Leader epochs are put under their name between two such syncs: a name must not reach the disk before the file.
    """
    staged = []
    async for log, opened in _in_turns(logs):
        try:
            if log.offline_reason is None and opened.epoch_file.stage(opened.end_offset):
                staged.append((log, opened))
        except OSError as error:
            log.fail(error)
    if not await in_thread(directory.sync_filesystem):
        return False
    async for log, opened in _in_turns(staged):
        try:
            if log.offline_reason is None:
                opened.epoch_file.take_staged(opened.end_offset)
        except OSError as error:
            log.fail(error)
    if staged and not await in_thread(directory.sync_filesystem):
        return False
    async for log, opened in _in_turns(logs):
        if log.offline_reason is None:
            log.storage.end_close(PendingFlush(directory.disk, opened.generation, opened.end_offset))
    return True


async def _in_turns(logs: Sequence[T]) -> AsyncIterator[T]:
    for number, log in enumerate(logs):
        if number % LOGS_A_TURN == LOGS_A_TURN - 1:
            await asyncio.sleep(0)
        yield log


async def _sync_each(logs: list[PartitionLog], in_thread: InThread) -> bool:
    clean = True
    syncing: list[tuple[PartitionLog, PendingFlush, asyncio.Future[None]]] = []
    for log in logs:
        try:
            pending = log.storage.begin_close()
        except LogUnavailable:
            clean = False
            continue
        if pending is not None:
            syncing.append((log, pending, in_thread(pending.sync)))
    for log, pending, done in syncing:
        try:
            await done
            log.storage.end_close(pending)
        except OSError as error:
            log.fail(error)
            clean = False
    return clean
