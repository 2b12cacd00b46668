"""Recovering all logs of a data directory that was not closed in order: what a start does after a crash."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Final

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.ports import Clock
from raftlog.broker.store.data_directory import DataDirectory
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.pending_flush import PendingFlush

logger = logging.getLogger("raftlog.store")

RECOVERED_A_TURN: Final = 16
RECOVERY_SECONDS_A_TURN: Final = 0.05
"""How many logs are recovered at a step, and for how long another one is begun. Between two steps the node votes in
the metadata quorum. A single log is recovered in one go."""


def recover_logs(
    directory: DataDirectory, clock: Clock, threads: Executor, says_of_which_topic: Callable[[PartitionLog], bool]
) -> Iterator[Future[None] | None]:
    """Recover every log, syncing several at once: their commits share the disk's journal. A step may give what it is
    good to wait for before the next one.
    """
    started = clock.monotonic()
    logger.info("directory=%s was not closed: recovering %d logs", directory.path, len(directory.logs))
    syncing: list[tuple[PartitionLog, PendingFlush, Future[None]]] = []
    began, left = started, RECOVERED_A_TURN
    for log in list(directory.logs.values()):
        if not left or clock.monotonic() - began > RECOVERY_SECONDS_A_TURN:
            yield None
            began, left = clock.monotonic(), RECOVERED_A_TURN
        left -= 1
        directory.unrecovered -= 1
        try:
            never_flushed = log.recovery_point <= log.log_start_offset
            if never_flushed and not says_of_which_topic(log):
                continue
            pending = log.begin_open()
        except LogUnavailable:
            # It has said why, and is offline.
            continue
        if pending is None:
            # It had not changed since it was closed: it need not stay in memory.
            log.storage.unload()
        else:
            syncing.append((log, pending, threads.submit(pending.sync)))
    for log, pending, done in syncing:
        if not done.done():
            yield done
        try:
            done.result()
            log.storage.end_flush(pending)
        except OSError as error:
            log.fail(error)
    seconds = clock.monotonic() - started
    logger.info("directory=%s recovered %d logs in %.3f s", directory.path, len(directory.logs), seconds)
