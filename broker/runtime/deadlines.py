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

# A lazy deadline of half a second or more may be late by up to this many ticks, a fifth of it at the most: the more of
# them end together, the fewer wake-ups they cost.
LAZY_FROM_SECONDS = 0.5
LAZY_TICKS = 20

# After so many the event loop serves others first: a thousand idle consumers must not hold up a produce.
EXPIRED_PER_TURN = 32


class Expiring(Protocol):
    """What has a deadline."""

    def expire(self) -> None: ...


T = TypeVar("T", bound=Expiring)


class Deadlines(Generic[T]):
    """Calls `expire()` on each item at the first tick at or after its deadline; those of one tick in any order."""

    __slots__ = ("_buckets", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[T, None]] = {}

    def add(self, item: T, seconds: float, *, lazy: bool = False) -> int:
        """Expire `item` after `seconds`, later if `lazy`; returns the tick, which `remove` wants back."""
        tick = int((self._loop.time() + seconds) / TICK_SECONDS) + 1
        if lazy and seconds >= LAZY_FROM_SECONDS:
            tick += -tick % LAZY_TICKS
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
        # Taken out one at a time: an item that is removed while others expire must not be called any more.
        bucket = self._buckets[tick]
        for _ in range(EXPIRED_PER_TURN):
            if not bucket:
                del self._buckets[tick]
                return
            bucket.popitem()[0].expire()
        self._loop.call_soon(self._expire, tick)

    def expire_all(self) -> None:
        """Expire every item now, the earliest first."""
        for tick in sorted(self._buckets):
            bucket = self._buckets[tick]
            while bucket:
                bucket.popitem()[0].expire()
