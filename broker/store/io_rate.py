"""Reading and writing in the background at a rate that is set: of compaction, and of moves between directories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from raftlog.broker.core.byte_rate import UNLIMITED, ByteRate
from raftlog.broker.ports import Clock

PAUSE_MS_MAX: Final = 1000
"""How soon another rate is noticed by who waits."""


class IoRate:
    """At most `bytes_per_second()`, whatever it says at the moment: what was too much is waited for afterwards."""

    __slots__ = ("_bytes_per_second", "_clock", "_rate")

    def __init__(self, clock: Clock, bytes_per_second: Callable[[], float]) -> None:
        self._clock = clock
        self._bytes_per_second = bytes_per_second
        self._rate = ByteRate()

    @property
    def bytes(self) -> int:
        """All that was read and written so far."""
        return self._rate.bytes

    @property
    def bytes_per_second(self) -> int:
        """What is set now."""
        return int(min(self._bytes_per_second(), UNLIMITED))

    def used(self, size: int) -> None:
        """So many bytes were read or written."""
        self._rate.used(size, self._now_ms())

    async def wait(self) -> bool:
        """Return when more may be read and written; whether that took time."""
        waited = False
        while (wait_ms := self._wait_ms()) > 0:
            waited = True
            await asyncio.sleep(min(wait_ms, PAUSE_MS_MAX) / 1000)
        return waited

    def _wait_ms(self) -> int:
        self._rate.set_rate(self.bytes_per_second)
        return self._rate.wait_ms(self._now_ms())

    def _now_ms(self) -> int:
        return int(self._clock.monotonic() * 1000)
