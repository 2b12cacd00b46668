"""Topics whose settings have changed: a setting of all brokers changes those of ten thousand at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from itertools import islice

PARTITIONS_PER_TURN = 1_000
"""So many take five milliseconds."""


class SettingsQueue:
    """Topics by name, whose new settings are taken up some at a time: the first at once, others in later turns.

    `take_up(name)` does it, and says for how many partitions.
    """

    def __init__(self, take_up: Callable[[str], int]) -> None:
        self._take_up = take_up
        self._waiting: dict[str, None] = {}
        self._is_scheduled = False

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def add(self, names: Iterable[str]) -> None:
        """Have their settings taken up, now or soon."""
        self._waiting.update(dict.fromkeys(names))
        if not self._is_scheduled:
            self._take_up_some()

    def _take_up_some(self) -> None:
        left = PARTITIONS_PER_TURN
        for name in list(islice(self._waiting, PARTITIONS_PER_TURN)):
            del self._waiting[name]
            left -= max(1, self._take_up(name))
            if left <= 0:
                break
        self._is_scheduled = bool(self._waiting)
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._take_up_some)
