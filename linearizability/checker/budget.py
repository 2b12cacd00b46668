"""How much a check may cost, and the account of what it has cost.

Without them, time is not limited and memory is estimated.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from raftlog.linearizability.checker.verdict import Limit

MEGABYTE = 1 << 20
_LEAST_SHARE = 0.01  # of the time that a part has in a turn, however many parts there are
_EXPLAIN_SECONDS = 10.0  # the most that may be spent on explaining a verdict
_EXPLAIN_AT_LEAST = 0.1  # also when the check took all the time there was: what was found at last shall be told
_MEASURE_EVERY = 8  # asking the system costs microseconds, so it is asked once in so many checkpoints


class OutOfBudget(Exception):
    """A limit is reached. What was being done can be taken up again with a larger budget."""

    def __init__(self, limit: Limit, reason: str) -> None:
        self.limit: Limit = limit
        self.reason = reason
        super().__init__(reason)


class TurnOver(OutOfBudget):
    """Not the budget is used up but what one part may take before the others have their turn."""


@dataclass(frozen=True, slots=True)
class Budget:
    """The limits of one check; None is no limit.

    `clock` answers seconds and never goes back. `memory` answers the bytes that the process uses now. What was used
    before the check began is not charged, unless `clock_at_start` and `memory_at_start` say from where to count.
    """

    seconds: float | None = None
    megabytes: float | None = 500
    configurations: int | None = None
    clock: Callable[[], float] | None = None
    memory: Callable[[], int] | None = None
    clock_at_start: float | None = None
    memory_at_start: int | None = None


class Meter:
    """The account of one check. Everything that can grow asks `check` often enough."""

    __slots__ = ("_calls", "_deadline", "_memory_at_start", "_pause", "budget", "ceiling", "configurations", "started")

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.started = budget.clock() if budget.clock is not None else 0.0
        began = self.started if budget.clock_at_start is None else budget.clock_at_start
        self._deadline = None if budget.seconds is None else began + budget.seconds
        self._memory_at_start = budget.memory_at_start or 0
        if budget.memory is not None and budget.memory_at_start is None:
            self._memory_at_start = budget.memory()
        self._calls = 0
        self.configurations = 0
        self.ceiling: int | None = None  # a passing limit on configurations
        self._pause = math.inf  # the same on time

    def elapsed(self) -> float:
        """Seconds since the start; 0 without a clock."""
        return self.budget.clock() - self.started if self.budget.clock is not None else 0.0

    def rest(self) -> Budget:
        """What is left now, for work that may be done at any later time."""
        budget = self.budget
        seconds, configurations = budget.seconds, budget.configurations
        if seconds is None and configurations is None and budget.memory is None:
            return budget  # a copy takes microseconds
        if self._deadline is not None and budget.clock is not None:
            seconds = max(self._deadline - budget.clock(), 0.0)
        if configurations is not None:
            configurations = max(configurations - self.configurations, 0)
        start = None if budget.memory is None else self._memory_at_start
        return replace(
            budget, seconds=seconds, configurations=configurations, clock_at_start=None, memory_at_start=start
        )

    def turn(self, configurations: int | None, parts: int) -> None:
        """Until the next turn, one part of so many may take so many configurations and its share of half the time that
        is left; None ends all turns.
        """
        self.ceiling, self._pause = None, math.inf
        if configurations is not None:
            self.ceiling = self.configurations + configurations
            if self._deadline is not None and self.budget.clock is not None:
                now = self.budget.clock()
                least = (self.budget.seconds or 0.0) * _LEAST_SHARE
                self._pause = now + max((self._deadline - now) / (2 * parts), least)

    def check(self, configurations: int, estimated_bytes: int) -> None:
        """Account for more configurations and for the memory now held. Raises OutOfBudget."""
        budget = self.budget
        self.configurations += configurations
        if self.ceiling is not None and self.configurations >= self.ceiling:
            raise TurnOver("configurations", "first look")
        if budget.configurations is not None and self.configurations >= budget.configurations:
            raise OutOfBudget("configurations", f"{budget.configurations:,} configurations looked at")
        if self._deadline is not None and budget.clock is not None:
            now = budget.clock()
            if now >= self._deadline:
                raise OutOfBudget("time", f"{budget.seconds:g} s are over")
            if now >= self._pause:
                raise TurnOver("time", "first look")
        if budget.megabytes is None:
            return
        limit = budget.megabytes * MEGABYTE
        if estimated_bytes < limit and budget.memory is not None:
            self._calls += 1
            if self._calls % _MEASURE_EVERY == 0:
                estimated_bytes = budget.memory() - self._memory_at_start
        if estimated_bytes >= limit:
            raise OutOfBudget("memory", f"{budget.megabytes:g} MB are used")


def to_explain(rest: Budget, spent: float = 0.0) -> Budget:
    """What an explanation may take of the rest of a check's budget, when so many seconds were spent on others."""
    seconds = _EXPLAIN_SECONDS - spent
    if rest.seconds is not None:
        seconds = min(seconds, rest.seconds)
    return replace(rest, seconds=max(seconds, _EXPLAIN_AT_LEAST - spent, 0.0), configurations=None)
