"""The deadlines of all that waits in a broker, for records or for commits: one coarse wheel over the loop's timers.

A thousand long polls of half a second each would make two thousand timers a second; here they share one for each tick
that has any.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from raftlog.wire.errors import ErrorCode, InvariantViolation

if TYPE_CHECKING:
    from raftlog.broker.runtime.delayed_operation import Mark, Watchable

# A long poll may end this much later than asked for; Kafka's own purgatory wheel ticks every 1 ms, and clients add
# the network's time anyway.
TICK_SECONDS = 0.005

# A lazy deadline of half a second or more may be late by up to this many ticks, a fifth of it at the most: the more of
# them end together, the fewer wake-ups they cost.
LAZY_FROM_SECONDS = 0.5
LAZY_TICKS = 20

# So many lazy ones end together at the most: the clients that they wake want the processor, too. With 160, a thousand
# consumers cost a tenth less, and a produce's p99 grew by milliseconds: both processors were taken for too long.
LAZY_TOGETHER_MAX = 80

# After so many the event loop serves others first: a thousand idle consumers must not hold up a produce.
EXPIRED_PER_TURN = 16


class Expiring(Protocol):
    """What has a deadline."""

    def expire(self) -> None: ...


class TimerWheel:
    """Calls `expire()` on each item at the first tick at or after its deadline; those of one tick in any order."""

    __slots__ = ("_buckets", "_due", "_filling", "_filling_tick", "_loop")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._buckets: dict[int, dict[Expiring, None]] = {}
        # Where lazy items go, as long as that suits them and there is room.
        self._filling: dict[Expiring, None] = {}
        self._filling_tick = 0
        # Ticks that have come, and whose items have not all expired.
        self._due: deque[int] = deque()

    def add(self, item: Expiring, due: float) -> int:
        """Expire `item` at `due`, by the loop's clock; returns the tick, which `remove` wants back."""
        tick = int(due / TICK_SECONDS) + 1
        self._bucket(tick)[item] = None
        return tick

    def add_after(self, item: Expiring, seconds: float) -> int:
        """The same so many seconds from now."""
        return self.add(item, self._loop.time() + seconds)

    def add_lazily(self, item: Expiring, due: float) -> int:
        """As `add`, within LAZY_TICKS. For an item that has at least LAZY_FROM_SECONDS to wait."""
        tick = int(due / TICK_SECONDS) + 1
        if not tick <= self._filling_tick < tick + LAZY_TICKS or len(self._filling) >= LAZY_TOGETHER_MAX:
            self._fill_next(tick)
        self._filling[item] = None
        return self._filling_tick

    def _fill_next(self, tick: int) -> None:
        """The latest bucket that is in time and has room; the latest of all if none has."""
        latest = tick + LAZY_TICKS - 1
        for candidate in range(latest, tick - 1, -1):
            if len(self._buckets.get(candidate, ())) < LAZY_TOGETHER_MAX:
                break
        else:
            candidate = latest
        self._filling_tick, self._filling = candidate, self._bucket(candidate)

    def _bucket(self, tick: int) -> dict[Expiring, None]:
        bucket = self._buckets.get(tick)
        if bucket is None:
            bucket = self._buckets[tick] = {}
            self._loop.call_at(tick * TICK_SECONDS, self._on_tick, tick)
        return bucket

    def remove(self, item: Expiring, tick: int) -> None:
        """Forget `item`; no matter if its time has come."""
        bucket = self._buckets.get(tick)
        if bucket is not None:
            bucket.pop(item, None)

    def _on_tick(self, tick: int) -> None:
        # Not here: after a turn that took long, many ticks come in one.
        self._due.append(tick)
        if len(self._due) == 1:
            self._loop.call_soon(self._expire)

    def _expire(self) -> None:
        due, left = self._due, EXPIRED_PER_TURN
        try:
            while due:
                bucket = self._buckets[due[0]]
                if not bucket:
                    del self._buckets[due.popleft()]
                elif left:
                    # Taken out one at a time: an item that is removed while others expire must not be called any more.
                    left -= 1
                    bucket.popitem()[0].expire()
                else:
                    break
        finally:
            if due:
                self._loop.call_soon(self._expire)

    def expire_all(self, kind: type) -> None:
        """Expire every item of one class now, the earliest first."""
        for tick in sorted(self._buckets):
            bucket = self._buckets[tick]
            for item in [item for item in bucket if isinstance(item, kind)]:
                if item in bucket:
                    del bucket[item]
                    item.expire()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if items have no tick in which they would expire."""
        if len(set(self._due)) != len(self._due) or not self._buckets.keys() >= set(self._due):
            raise InvariantViolation(f"the ticks {list(self._due)} have come, of {list(self._buckets)}")
        if self._filling and self._buckets.get(self._filling_tick) is not self._filling:
            raise InvariantViolation(f"{len(self._filling)} items wait for tick {self._filling_tick}, which has gone")


class TimedWait:
    """Calls back once: with what has come of the waiting, or with REQUEST_TIMED_OUT when its time is up."""

    __slots__ = ("_callback", "_leave", "_tick", "_timers")

    def __init__(self, timers: TimerWheel, seconds: float, callback: Callable[[ErrorCode], None]) -> None:
        self._timers = timers
        self._callback: Callable[[ErrorCode], None] | None = callback
        self._leave: Callable[[], None] | None = None
        self._tick = timers.add_after(self, seconds)

    def watch(self, partition: Watchable, mark: Mark, offset: int) -> None:
        """Be done when the partition's mark comes to the offset, or never will; nobody watches it for longer."""
        operation = partition.wait(mark, offset, self.done)
        if self._callback is not None:
            self._leave = partial(partition.unwatch, mark, operation)

    def done(self, error: ErrorCode) -> None:
        """Call back; later calls do nothing."""
        callback, self._callback = self._callback, None
        if callback is not None:
            self._timers.remove(self, self._tick)
            if self._leave is not None:
                self._leave()
            callback(error)

    def expire(self) -> None:
        """See Expiring."""
        self.done(ErrorCode.REQUEST_TIMED_OUT)
