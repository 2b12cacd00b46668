"""How many connections a second come in, and how long the next one has to wait (KIP-612), as Kafka counts them.

The rate is that of the last samples (quota.window.num of quota.window.size.seconds each), of which all but one count
as whole from the beginning: a broker that was idle lets in so many at once as that time has room for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from raftlog.metadata.config_definition import INT_MAX

UNLIMITED: Final = INT_MAX


class _Sample:
    __slots__ = ("count", "last_ms", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.count = 0


class ConnectionRate:
    """Of one listener, or of all. `limit`: connections a second."""

    __slots__ = ("_number", "_samples", "_window_ms", "limit")

    def __init__(self, window_number: int, window_ms: int, limit: int = UNLIMITED) -> None:
        self._number = window_number
        self._window_ms = window_ms
        self._samples: list[_Sample] = []
        self.limit = limit

    def accepted(self, now_ms: int) -> int:
        """One more has come: for how many milliseconds neither it nor another one is let in, one window at most."""
        samples = self._samples
        if not samples or now_ms - samples[-1].start_ms >= self._window_ms:
            samples.append(_Sample(now_ms))
        samples[-1].count += 1
        samples[-1].last_ms = now_ms
        kept = self._number * self._window_ms
        while len(samples) > self._number or now_ms - samples[0].last_ms >= kept:
            del samples[0]
        count = sum(sample.count for sample in samples)
        span_ms = self._span_ms(now_ms - samples[0].start_ms)
        # count - limit * seconds are too many, and take so long at the limit.
        over = count * 1000 - self.limit * span_ms
        if over <= 0:
            return 0
        return self._window_ms if self.limit == 0 else min(round(over / self.limit), self._window_ms)

    def _span_ms(self, elapsed_ms: int) -> int:
        missing = max(self._number - 1 - elapsed_ms // self._window_ms, 0)
        return max(elapsed_ms + missing * self._window_ms, 1)


class ConnectionRates:
    """Of all listeners together, and of each. The `protected` one, between brokers, has only its own limit."""

    def __init__(self, window_number: int = 11, window_ms: int = 1000, protected: str | None = None) -> None:
        self._window = window_number, window_ms
        self._protected = protected
        self._together = ConnectionRate(*self._window)
        self._by_listener: dict[str, ConnectionRate] = {}

    def limit(self, together: int, by_listener: Mapping[str, int]) -> None:
        """Connections a second from now on; listeners that are not named have no limit of their own."""
        self._together.limit = together
        for name in {*self._by_listener, *by_listener}:
            self._of(name).limit = by_listener.get(name, UNLIMITED)

    def accepted(self, listener: str, now_ms: int) -> int:
        """A connection has come in there: for how many milliseconds the listener lets in neither it nor others."""
        wait_ms = 0 if listener == self._protected else self._together.accepted(now_ms)
        return max(wait_ms, self._of(listener).accepted(now_ms))

    def _of(self, listener: str) -> ConnectionRate:
        found = self._by_listener.get(listener)
        if found is None:
            found = self._by_listener[listener] = ConnectionRate(*self._window)
        return found
