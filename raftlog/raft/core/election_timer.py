"""When a node stands for election: at a random time after it last heard of a leader (Raft §5.2)."""

from __future__ import annotations

from collections.abc import Callable

from raftlog.raft.core.state import Timing


class ElectionTimer:
    """`due`: the time at which to stand. `attempts`: how often this node has stood since it last heard of a leader."""

    __slots__ = ("_rng", "_timing", "attempts", "due")

    def __init__(self, timing: Timing, rng: Callable[[], float], now: float) -> None:
        """`rng`: random numbers in [0, 1)."""
        self._timing = timing
        self._rng = rng
        self.attempts = 0
        self.restart(now)

    def _between(self, least: float, most: float) -> float:
        return least + (most - least) * self._rng()

    def restart(self, now: float) -> None:
        """Wait as long as for a leader that may be busy."""
        self.due = now + self._between(self._timing.election_min, self._timing.election_max)

    def postpone(self, now: float) -> None:
        """This node must not stand now."""
        self.due = now + self._timing.election_max

    def hasten(self, now: float) -> None:
        """There is no leader: no reason to wait for long."""
        self.attempts = 0
        self.due = min(self.due, now + self._between(self._timing.fast_election_min, self._timing.fast_election_max))

    def retry(self, now: float) -> None:
        """Twice the time with each attempt, so that a split vote is repeated at once, and slow networks get theirs."""
        timeout = self._timing.fast_election_max * 2**self.attempts
        if timeout < self._timing.election_min:
            self.attempts += 1
            self.due = now + self._between(timeout / 2, timeout * 1.5)
        else:
            self.restart(now)
