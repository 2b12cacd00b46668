"""Warnings that others can bring about at will: the first few of a minute, then how many more there were."""

from __future__ import annotations

import logging
from collections.abc import Callable

MINUTE_SECONDS = 60.0
TOLD_A_MINUTE = 5
"""Lines before the rest are only counted: somebody who sends garbage must not fill the disk with them."""


class LimitedWarnings:
    """One kind of warning. `rest`: how those that were left out are told, with %d for their number."""

    def __init__(self, log: logging.Logger, rest: str, now: Callable[[], float]) -> None:
        """`now`: seconds that never jump."""
        self._log = log
        self._rest = rest
        self._now = now
        self._minute_ends = float("-inf")
        self._told = self._left_out = 0

    def warn(self, text: str, *arguments: object) -> None:
        """A warning, if there is room for it; else it is counted, and told at level DEBUG."""
        self.look()
        if self._told < TOLD_A_MINUTE:
            self._told += 1
            self._log.warning(text, *arguments)
        else:
            self._left_out += 1
            self._log.debug(text, *arguments)

    def look(self) -> None:
        """Tell what was left out once its minute is over; to be called now and then."""
        now = self._now()
        if now < self._minute_ends:
            return
        if self._left_out:
            self._log.warning(self._rest, self._left_out)
        self._minute_ends, self._told, self._left_out = now + MINUTE_SECONDS, 0, 0
