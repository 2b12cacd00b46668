"""How many bytes a second go some way, and when there were too many."""

from __future__ import annotations

UNLIMITED = 2**63 - 1
_BURST_MS = 1000


class ByteRate:
    """At most `rate` bytes a second, seldom exceeded by more than one piece: what is over is waited for afterwards."""

    __slots__ = ("_allowance", "_at_ms", "bytes", "rate")

    def __init__(self) -> None:
        self.rate = UNLIMITED
        # All that was throttled so far, whatever the rate was.
        self.bytes = 0
        self._allowance = 0.0
        self._at_ms = -1

    def set_rate(self, rate: int) -> None:
        """Bytes a second from now on."""
        if rate != self.rate:
            self.rate = rate
            self._allowance = 0.0
            self._at_ms = -1

    def used(self, size: int, now_ms: int) -> None:
        """So many bytes have gone."""
        self.bytes += size
        if self.rate != UNLIMITED:
            self._refill(now_ms)
            self._allowance -= size

    def wait_ms(self, now_ms: int) -> int:
        """How long nothing throttled may go; 0 if it may go now."""
        if self.rate == UNLIMITED:
            return 0
        self._refill(now_ms)
        return 0 if self._allowance >= 0 else int(-self._allowance * 1000 / max(self.rate, 1)) + 1

    def _refill(self, now_ms: int) -> None:
        passed_ms = now_ms - self._at_ms if self._at_ms >= 0 else 0
        self._at_ms = now_ms
        self._allowance = min(self._allowance + self.rate * passed_ms / 1000, self.rate * _BURST_MS / 1000)
