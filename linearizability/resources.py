"""Time and memory of this process, for the checker's budget: the checker itself asks no system anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from raftlog.linearizability.checker.budget import MEGABYTE, Budget, OutOfBudget

_STATM = Path("/proc/self/statm")


def memory_used() -> int:
    """Resident bytes of this process: now, where /proc tells; else the most there ever were."""
    import resource

    try:
        return int(_STATM.read_bytes().split()[1]) * resource.getpagesize()
    except OSError:
        import sys

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


class Allowance:
    """A budget for reading and checking together, counted from the moment it is made."""

    def __init__(self, seconds: float | None, megabytes: float | None) -> None:
        self._began = time.monotonic()
        self._memory_at_start = memory_used()
        self._megabytes = megabytes
        self._seconds = seconds

    def look(self) -> None:
        """Raise OutOfBudget when time or memory is used up."""
        if self._seconds is not None and time.monotonic() - self._began >= self._seconds:
            raise OutOfBudget("time", f"{self._seconds:g} s are over, and not all was read")
        if self._megabytes is not None and memory_used() - self._memory_at_start >= self._megabytes * MEGABYTE:
            raise OutOfBudget("memory", f"{self._megabytes:g} MB are used, and not all was read")

    def expect(self, size: int, purpose: str = "the line that comes next") -> None:
        """Raise OutOfBudget when so many bytes more, for that purpose, would be too many."""
        if self._megabytes is not None:
            used = memory_used() - self._memory_at_start + size
            if used >= self._megabytes * MEGABYTE:
                raise OutOfBudget("memory", f"{self._megabytes:g} MB are not enough for {purpose}")

    def left(self, tick: Callable[[float], None] | None = None) -> Budget:
        """What a check may still use. `tick` is told the seconds from time to time, to show that there is life."""

        def clock() -> float:
            now = time.monotonic()
            if tick is not None:
                tick(now - self._began)
            return now

        return Budget(
            self._seconds,
            self._megabytes,
            clock=clock,
            memory=memory_used,
            clock_at_start=self._began,
            memory_at_start=self._memory_at_start,
        )


def budget(seconds: float | None = None, megabytes: float | None = 500) -> Budget:
    """A budget on this process's clock and memory."""
    return Budget(seconds, megabytes, clock=time.monotonic, memory=memory_used)
