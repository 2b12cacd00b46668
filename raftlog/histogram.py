"""Counts of what was measured, by size: a few additions each time, read seldom."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


class Histogram:
    """`bounds` rise, each the largest value of its bucket; one more bucket has what is above all of them."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float, weight: int = 1) -> None:
        """It was measured, and stands for `weight` of its kind."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.total += value * weight

    def cumulative(self) -> list[tuple[str, int]]:
        """(bound, how many were not above it), as Prometheus has it; the last bound is +Inf."""
        found, seen = [], 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            found.append((bound, seen))
        return found
