"""Many deadlines that are seldom met exactly: a coarse timer wheel over the event loop's timers.

Knows ticks and what is due at each. Refuses to know what the deadlines are for. A thousand long polls of half a
second each would make two thousand timers a second; here they share one for each tick that has any.
"""

from __future__ import annotations

import asyncio
from typing import Generic, Protocol, TypeVar

# A long poll may end this much later than asked for; Kafka's own purgatory wheel ticks every 1 ms, and clients add
# the network's time anyway.
TICK_SECONDS = 0.005

# A long wait may end later by this many ticks, a twentieth of it at the most: the more of them end together, the
# fewer wake-ups they cost.
LONG_WAIT_SECONDS = 0.5
LONG_WAIT_TICKS = 5


class Expiring(Protocol):
    """What has a deadline."""

    def expire(self) -> None: ...


T = TypeVar("T", bound=Expiring)


class Deadlines(Generic[T]):
    """Calls `expire()` on each item at the first tick at or after its deadline, in the order of adding."""

    __slots__ = ("_buckets", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[T, None]] = {}

    def add(self, item: T, seconds: float) -> int:
        """Expire `item` after `seconds`; returns the tick, which `remove` wants back."""
        tick = int((self._loop.time() + seconds) / TICK_SECONDS) + 1
        if seconds >= LONG_WAIT_SECONDS:
            tick += -tick % LONG_WAIT_TICKS
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            self._loop.call_at(tick * TICK_SECONDS, self._expire, tick)
        bucket[item] = None
        return tick

    def remove(self, item: T, tick: int) -> None:
        """Forget `item`; no matter if its time has come."""
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(item, None)

    def _expire(self, tick: int) -> None:
        # Taken out first: an item that is removed while others expire must not be called any more, so look again.
        bucket = self._buckets[tick]
        while bucket:
            item = next(iter(bucket))
            del bucket[item]
            item.expire()
        del self._buckets[tick]
