"""Closing all logs of one data directory, so that the next start need not look into them.

Knows in which order files are written and synced: a crash in between leaves what recovery can mend.

A few logs are synced file by file, several at once. Of many the whole file system is synced, where that can be relied
upon: a log is half a dozen files, each costs the disk a flush of its own even when it is clean, and ten thousand logs
took half a minute. One call for all of them takes a fraction of a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Final

from raftlog.broker.core.log.results import LogUnavailable

if TYPE_CHECKING:
    from raftlog.broker.store.data_directory import DataDirectory
    from raftlog.broker.store.partition_log import PartitionLog
    from raftlog.broker.store.pending_flush import PendingFlush

FEW_LOGS: Final = 64
"""Up to so many logs are synced file by file, together: each holds a few descriptors. Nothing else that is written to
the same file system holds these up."""
LOGS_A_TURN: Final = 64
"""How many logs are written out before the event loop goes on: the metadata quorum may still need this node."""

InThread = Callable[[Callable[[], Any]], asyncio.Future[Any]]
"""Runs what waits for a disk beside the event loop."""


async def close_logs(directory: DataDirectory, in_thread: InThread) -> bool:
    """Bring every log of the directory to stable storage and let go of its files; whether all of them are safe.

    Logs that cannot be closed are offline afterwards. Raises OSError when the file system as a whole has lost
    something, and nobody can say which log.
    """
    clean = all(log.offline_reason is None for log in directory.logs.values())
    waiting: list[PartitionLog] = []
    async for log in _in_turns(list(directory.logs.values())):
        try:
            if log.prepare_close():
                waiting.append(log)
        except LogUnavailable:
            clean = False
    if len(waiting) > FEW_LOGS and await _sync_all(directory, waiting, in_thread):
        return clean and all(log.offline_reason is None for log in waiting)
    for first in range(0, len(waiting), FEW_LOGS):
        clean = await _sync_each(waiting[first : first + FEW_LOGS], in_thread) and clean
    return clean


async def _sync_all(directory: DataDirectory, logs: list[PartitionLog], in_thread: InThread) -> bool:
    """Sync the file system; whether this disk can do that. Raises OSError.

    Leader epochs are put under their name between two such syncs: a name must not reach the disk before the file.
    """
    staged = [log async for log in _in_turns(logs) if _stage(log)]
    if not await in_thread(directory.sync_filesystem):
        return False
    async for log in _in_turns(staged):
        _take_staged(log)
    if staged and not await in_thread(directory.sync_filesystem):
        return False
    async for log in _in_turns(logs):
        if log.offline_reason is None:
            log.end_close(log.nothing_to_sync())
    return True


async def _in_turns(logs: list[PartitionLog]) -> AsyncIterator[PartitionLog]:
    for number, log in enumerate(logs):
        if number % LOGS_A_TURN == LOGS_A_TURN - 1:
            await asyncio.sleep(0)
        yield log


def _stage(log: PartitionLog) -> bool:
    try:
        return log.stage_epochs()
    except OSError as error:
        log.fail(error)
        return False


def _take_staged(log: PartitionLog) -> None:
    try:
        log.take_staged_epochs()
    except OSError as error:
        log.fail(error)


async def _sync_each(logs: list[PartitionLog], in_thread: InThread) -> bool:
    clean = True
    pending: list[tuple[PartitionLog, PendingFlush, asyncio.Future[None]]] = []
    for log in logs:
        try:
            ticket = log.begin_close()
        except LogUnavailable:
            clean = False
            continue
        if ticket is not None:
            pending.append((log, ticket, in_thread(ticket.sync)))
    for log, ticket, syncing in pending:
        try:
            await syncing
            log.end_close(ticket)
        except OSError as error:
            log.fail(error)
            clean = False
    return clean
