"""How long the event loop keeps others waiting: a look every tenth of a second, and by how much it is late.

What is late by so much would have answered a request so much later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raftlog.histogram import Histogram

LOOK_SECONDS: Final = 0.1
BOUNDS_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class EventLoopWatch:
    """`late` has the lateness of all looks, `longest` the greatest since it was last taken."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        """`now`: exact, in seconds."""
        self.late = Histogram(BOUNDS_SECONDS)
        self._longest = 0.0
        self._loop = loop
        self._now = now
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    def begin(self) -> None:
        """Look from now on."""
        self._due = self._now() + LOOK_SECONDS
        self._timer = self._loop.call_later(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        late = max(self._now() - self._due, 0.0)
        self.late.observe(late)
        self._longest = max(self._longest, late)
        self.begin()

    def take_longest(self) -> float:
        """The longest stall since this was last asked, in seconds."""
        longest, self._longest = self._longest, 0.0
        return longest

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
