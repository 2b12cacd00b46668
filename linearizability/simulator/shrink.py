"""Makes a failing schedule short: drops faults, and shortens those that are left, as long as the run still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from raftlog.linearizability.simulator.faults import REST, Fault

RUNS_MAX = 300
OPERATION_RUNS_MAX = 60
"""A schedule is shortened by so many runs at the most, and what clients do by so many more."""
SLICES = 6
"""Of the time of the faults: in each of them a client works or rests."""

Fails = Callable[[Sequence[Fault]], bool]
T = TypeVar("T")


class _Tries:
    """Runs, of which there may be so many; after that nothing fails any more."""

    def __init__(self, fails: Fails, runs_max: int) -> None:
        self.made = 0
        self._fails = fails
        self._runs_max = runs_max

    def fails(self, candidate: Sequence[Fault]) -> bool:
        if self.made >= self._runs_max:
            return False
        self.made += 1
        return self._fails(candidate)


def _needed(items: list[T], still_fails: Callable[[list[T]], bool]) -> list[T]:
    """Those of the items that a failure needs: halves are left out, then quarters, and so on."""
    kept = items
    if kept and still_fails([]):
        return []
    size = max(1, len(kept) // 2)
    while size:
        start = 0
        dropped = False
        while start < len(kept):
            candidate = kept[:start] + kept[start + size :]
            if len(candidate) < len(kept) and still_fails(candidate):
                kept = candidate
                dropped = True
            else:
                start += size
        if not dropped or size > 1:
            size = size // 2 if size > 1 else 0
    return kept


def shrink_operations(
    faults: Sequence[Fault], clients: int, seconds: float, fails: Fails, runs_max: int = OPERATION_RUNS_MAX
) -> tuple[list[Fault], int]:
    """The schedule with rests for clients 1 to n whenever what they do is not needed, and how many runs it took."""
    slices = [(client, part) for client in range(1, clients + 1) for part in range(SLICES)]

    tries = _Tries(fails, runs_max)
    kept = _needed(slices, lambda at_work: tries.fails([*faults, *_rests(slices, at_work, seconds)]))
    return [*faults, *_rests(slices, kept, seconds)], tries.made


def _rests(slices: list[tuple[int, int]], at_work: list[tuple[int, int]], seconds: float) -> list[Fault]:
    rests: list[Fault] = []
    long = seconds / SLICES
    for client, part in slices:
        if (client, part) in at_work:
            continue
        before = rests[-1] if rests else None
        if before is not None and before.node == client and abs(before.at + before.seconds - part * long) < 0.001:
            rests[-1] = replace(before, seconds=round((part + 1) * long - before.at, 3))
        else:
            rests.append(Fault(round(part * long, 3), REST, client, round(long, 3)))
    return rests


def shrink(faults: Sequence[Fault], fails: Fails, runs_max: int = RUNS_MAX) -> tuple[list[Fault], int]:
    """The shortest failing schedule that was found, and how many runs it took. `faults` itself must fail."""
    tries = _Tries(fails, runs_max)
    kept = _needed(list(faults), tries.fails)
    for place, fault in enumerate(kept):
        shorter = replace(fault, seconds=round(fault.seconds / 4, 3))
        candidate = [*kept[:place], shorter, *kept[place + 1 :]]
        if fault.seconds > 0.02 and tries.fails(candidate):
            kept = candidate
    return kept, tries.made
