"""Replicated partitions that wait for their turn to be opened: ten thousand of them take seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

OPENING_SECONDS = 0.02
"""How long opening replicated partitions may hold the event loop at a time. What one slice opens gets back its ISRs in
one change of the metadata: shorter ones make more of these.
"""
OPENED_AT_ONCE_MAX = 100
MORE_SECONDS = 0.05
"""While more than so many wait, as when thousands of topics are created, none is opened until none came for so long:
what brings them need not wait for slices on each broker.
"""
WAIT_SECONDS_MAX = 0.5
"""How long, at most, before the next slice."""


class OpeningQueue:
    """Partitions by topic id and index, opened in slices, the first first.

    `open_one(topic_id, index)` opens one, and `opened_all()` is called when there is none left. Who can wait for a
    partition, should: one who asks for thousands would have them opened all at once.
    """

    def __init__(self, open_one: Callable[[bytes, int], None], opened_all: Callable[[], None]) -> None:
        self._open_one = open_one
        self._opened_all = opened_all
        # With whom to tell when it is open.
        self._waiting: dict[tuple[bytes, int], tuple[Callable[[], None], ...]] = {}
        self._is_scheduled = False
        self._last_came = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, partition: tuple[bytes, int]) -> bool:
        return partition in self._waiting

    def add(self, topic_id: bytes, index: int) -> None:
        """Open it soon."""
        self._waiting.setdefault((topic_id, index), ())
        loop = asyncio.get_running_loop()
        self._last_came = loop.time()
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._go_on, self._last_came + WAIT_SECONDS_MAX)

    def on_open(self, topic_id: bytes, index: int, tell: Callable[[], None]) -> None:
        """Call back when the partition, which waits, has been opened, or cannot be."""
        self._waiting[topic_id, index] += (tell,)

    def opened(self, topic_id: bytes, index: int) -> None:
        """It is open, before its turn perhaps."""
        for tell in self._waiting.pop((topic_id, index), ()):
            tell()

    def _open_some(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + OPENING_SECONDS
        while self._waiting:
            topic_id, index = next(iter(self._waiting))
            waiting = self._waiting.pop((topic_id, index))
            self._open_one(topic_id, index)
            for tell in waiting:
                tell()
            if loop.time() >= until:
                break
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            loop.call_soon(self._go_on, until + WAIT_SECONDS_MAX)
        else:
            self._opened_all()

    def _go_on(self, wait_until: float) -> None:
        loop = asyncio.get_running_loop()
        opens_at = min(self._last_came + MORE_SECONDS, wait_until)
        if len(self._waiting) > OPENED_AT_ONCE_MAX and loop.time() < opens_at:
            loop.call_at(opens_at, self._go_on, wait_until)
        else:
            self._open_some()
