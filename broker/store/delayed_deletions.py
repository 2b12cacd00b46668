"""Files and directories that are removed later (file.delete.delay.ms): a reader may be in the middle of them."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from itertools import count

from raftlog.broker.ports import Clock, Disk

logger = logging.getLogger("raftlog.store")


def remove_emptied(disk: Disk, path: str) -> None:
    """Remove a directory of files. They are emptied first: who has one open still must not keep the room. Raises
    OSError.
    """
    for name in disk.list_directory(path) if disk.exists(path) else ():
        descriptor = disk.open(f"{path}/{name}")
        try:
            disk.truncate(descriptor, 0)
        finally:
            disk.close(descriptor)
    disk.remove_directory(path)


class DelayedDeletions:
    """What waits here is under its last name already: a restart removes it at once."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def add(self, remove: Callable[[], None], delay_ms: int) -> None:
        """Call `remove` after so many milliseconds."""
        when = self._clock.monotonic() + delay_ms / 1000
        heapq.heappush(self._waiting, (when, next(self._numbers), remove))

    def run_due(self) -> None:
        """Remove what has waited long enough."""
        self._run_until(self._clock.monotonic())

    def run_all(self) -> None:
        """Remove everything now: the disk is full. Who is reading it has it open."""
        self._run_until(float("inf"))

    def _run_until(self, moment: float) -> None:
        while self._waiting and self._waiting[0][0] <= moment:
            _, _, remove = heapq.heappop(self._waiting)
            try:
                remove()
            except OSError as error:
                logger.warning("a file cannot be removed before the next start: %s", error)
