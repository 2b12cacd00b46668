"""A clock that stands still while this process does: time-outs that it measures are not those of a busy machine.

`beat` is called regularly, and one that comes late means that nothing ran here in between (no processor, a stop signal,
a long step on the event loop).
"""

from __future__ import annotations

from collections.abc import Callable

BEAT_SECONDS = 0.05
SLACK_SECONDS = 0.03
"""How late a beat may be without being taken for a stall: timers are never exact."""


class StallFreeClock:
    """Seconds since it was made, less the stalls. Never goes back, and at most `BEAT_SECONDS + SLACK_SECONDS` forward
    between two beats.
    """

    __slots__ = ("_due", "_monotonic", "_stalled")

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._stalled = monotonic()
        self._due = self._stalled + BEAT_SECONDS

    def now(self) -> float:
        """The time."""
        return min(self._monotonic(), self._due + SLACK_SECONDS) - self._stalled

    def beat(self) -> float:
        """To be called every BEAT_SECONDS; how many seconds this process stood still since the last one."""
        actual = self._monotonic()
        stall = max(0.0, actual - self._due - SLACK_SECONDS)
        self._stalled += stall
        self._due = actual + BEAT_SECONDS
        return stall
