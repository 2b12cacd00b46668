"""Makes a failing schedule short: drops faults, and shortens those that are left, as long as the run still fails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from raftlog.linearizability.simulator.faults import Fault

RUNS_MAX = 300
"""A schedule is shortened by so many runs at the most."""


def shrink(
    faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool], runs_max: int = RUNS_MAX
) -> tuple[list[Fault], int]:
    """The shortest failing schedule that was found, and how many runs it took. `faults` itself must fail."""
    left = [runs_max]

    def still_fails(candidate: Sequence[Fault]) -> bool:
        if left[0] <= 0:
            return False
        left[0] -= 1
        return fails(candidate)

    kept = list(faults)
    if kept and still_fails([]):
        kept = []
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
    for place, fault in enumerate(kept):
        shorter = replace(fault, seconds=round(fault.seconds / 4, 3))
        candidate = [*kept[:place], shorter, *kept[place + 1 :]]
        if fault.seconds > 0.02 and still_fails(candidate):
            kept = candidate
    return kept, runs_max - left[0]
