"""Files and directories that are removed later (file.delete.delay.ms): a reader may be in the middle of them."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from itertools import count

from raftlog.broker.ports import Clock

logger = logging.getLogger("raftlog.store")


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
        now = self._clock.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, _, remove = heapq.heappop(self._waiting)
            try:
                remove()
            except OSError as error:
                logger.warning("a file cannot be removed before the next start: %s", error)
