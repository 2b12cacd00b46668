"""Where the next micro-batch ends: a rule over what there is, what was asked for, and the time since the last one."""

from __future__ import annotations

from typing import NamedTuple

from raftlog.pipeline.source.offsets import Offsets, Partition
from raftlog.pipeline.source.ranges import available, limited


class Limits(NamedTuple):
    """`most` and `least` offsets in a micro-batch, None for no limit; after `delay` seconds `least` counts no more."""

    most: int | None = None
    least: int | None = None
    delay: float = 0.0


class Trigger:
    """One query's. Times are seconds of any one clock; the first micro-batch waits for nothing."""

    def __init__(self) -> None:
        self._last_at: float | None = None

    def end(self, start: Offsets, last: Offsets, limits: Limits, now: float) -> dict[Partition, int]:
        """`start` again when there is to be no micro-batch now."""
        if limits.least is not None:
            there = available(start, last)
            due = self._last_at is None or now - self._last_at >= limits.delay
            if there < limits.least and not due:
                return dict(start)
        self._last_at = now
        return dict(last) if limits.most is None else limited(start, last, limits.most)
