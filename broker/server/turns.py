"""Turns of the event loop: when one has taken long enough, and who is served in the next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from time import monotonic

from raftlog.broker.server.limits import QUANTUM_SECONDS, TURN_SECONDS_MAX


class Turns:
    """Who finds that a turn is over asks for the next one with `later`; there the addresses that clients come from are
    served one after the other, and the connections of one in the order in which they asked.

    The loop's own time does not tell when a turn began: uvloop brings it forward whenever a timer is set. So the clock
    is looked at once in TURN_SECONDS_MAX, and a turn is measured from there: the first long one may take twice that.
    Of a connection with many requests, so many are served in one go as QUANTUM_SECONDS or its share of a turn allow.

    `waited_since` is when that which is served now was heard of, or was put off to this turn: seconds of `monotonic`.
    """

    __slots__ = ("_call_soon", "_deadline", "_is_measured", "_waiting", "waited_since", "waiting")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        """`call_soon` calls what it is given in the next turn."""
        self._call_soon = call_soon
        # When this turn is over if it is measured; when one has to be measured, if not.
        self._deadline = 0.0
        self._is_measured = False
        # How many callbacks wait, of each address in order.
        self.waiting = 0
        self._waiting: dict[str, deque[tuple[Callable[[], None], float]]] = {}
        self.waited_since = 0.0

    def heard(self) -> None:
        """What is served from now on has something to read since now."""
        self.waited_since = monotonic()

    def is_over(self) -> bool:
        """Whether this turn has taken so long that others should have theirs."""
        now = monotonic()
        if now <= self._deadline:
            return False
        if self._is_measured:
            return True
        self._measure(now)
        return False

    def later(self, address: str, callback: Callable[[], None]) -> None:
        """Call it in a later turn, on behalf of a client from this address. It does not raise."""
        waiting = self._waiting.get(address)
        if waiting is None:
            waiting = self._waiting[address] = deque()
        now = monotonic()
        waiting.append((callback, now))
        self.waiting += 1
        if not self._is_measured:
            self._measure(now)

    def _measure(self, now: float) -> None:
        self._is_measured = True
        self._deadline = now + TURN_SECONDS_MAX
        self._call_soon(self._begin)

    def _begin(self) -> None:
        """A turn begins, with those who wait for it."""
        if not self.waiting:
            self._is_measured = False
            self._deadline = monotonic() + TURN_SECONDS_MAX
            return
        now = monotonic()
        self._measure(now)
        turn_ends = self._deadline
        each = max(QUANTUM_SECONDS, TURN_SECONDS_MAX / self.waiting)
        # Those who ask meanwhile have a later turn.
        for _ in range(self.waiting):
            self._deadline = min(now + each, turn_ends)
            callback, self.waited_since = self._next()
            callback()
            now = monotonic()
            if now > turn_ends:
                break
        self._deadline = turn_ends

    def _next(self) -> tuple[Callable[[], None], float]:
        """Whose turn it is: the address goes to the end of the line if there are more from it."""
        waiting = self._waiting
        address = next(iter(waiting))
        callbacks = waiting.pop(address)
        first = callbacks.popleft()
        if callbacks:
            waiting[address] = callbacks
        self.waiting -= 1
        return first
