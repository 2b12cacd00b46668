"""How the number of acknowledged values that nobody has read yet went over the time of the test."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass, field

from raftlog.linearizability.checker.kafka.columns.columns import NEVER, NOBODY, OK, Columns
from raftlog.linearizability.checker.kafka.columns.gather import (
    alike,
    below,
    differing,
    least,
    most,
    plus,
    ranks,
    take,
    tally,
)

POINTS = 100
_KEYS_APART = 1000  # with more keys than this only their sum is kept over time


@dataclass(slots=True)
class Unseen:
    """`times` are the ends of equal stretches of the test; the lists give the number unseen at each.

    `at_end` counts per key what was never read.
    """

    times: list[int] = field(default_factory=list)
    total: list[int] = field(default_factory=list)
    by_key: dict[int, list[int]] = field(default_factory=dict)
    at_end: dict[int, int] = field(default_factory=dict)


def unseen_over_time(columns: Columns) -> Unseen:
    """Values of ok sends count from their acknowledgement to the return of the first ok poll that has them."""
    end = last_return(columns)
    if end is None:
        return Unseen()
    start = least(columns.call, 0)
    span = max(1, end - start)
    keys = len(columns.keys.names)
    apart = keys <= _KEYS_APART
    result = Unseen([start + span * point // POINTS for point in range(1, POINTS + 1)])
    acknowledged, read, element_key = _waiting(columns)
    unread = alike(read, NEVER)
    result.at_end = dict(sorted(Counter(take(element_key, unread)).items()))
    lines = element_key if apart else array("i", bytes(4 * len(element_key)))
    points = array("q", (start - (-span * point // POINTS) for point in range(1, POINTS + 1)))
    limit = (keys if apart else 1) * (POINTS + 2)
    bases = array("i", range(0, limit, POINTS + 2))
    # What is never read leaves at a point of its own behind the last.
    points.append(NEVER)
    came, left = [
        tally(plus(take(bases, lines), ranks([points], array("i", bytes(4 * len(times))), times)), limit)
        for times in (acknowledged, read)
    ]
    series = [
        _running([here - gone for here, gone in zip(came[base:], left[base : base + POINTS + 1], strict=False)])
        for base in bases
    ]
    result.total = [sum(point) for point in zip(*series, strict=True)]
    if apart:
        result.by_key = {key: line for key, line in enumerate(series) if any(line)}
    return result


def _waiting(columns: Columns) -> tuple[array[int], array[int], array[int]]:
    """Of all values that were acknowledged before they were read: when they were, when read (or NEVER), their keys."""
    elements = differing(columns.writer, NOBODY)
    outcomes = take(array("B", columns.outcome), take(columns.writer, elements))
    elements = take(elements, alike(outcomes, OK))
    acknowledged = take(columns.returned, take(columns.writer, elements))
    read = take(columns.returned + array("q", [NEVER]), take(columns.first_reader, elements))  # NOBODY: the last
    waiting = below(acknowledged, read)
    return take(acknowledged, waiting), take(read, waiting), take(columns.element_key, take(elements, waiting))


def last_return(columns: Columns) -> int | None:
    """When the last operation returned, None if none did."""
    finished = take(columns.returned, below(columns.returned, NEVER))
    return most(finished, 0) if finished else None


def _running(steps: list[int]) -> list[int]:
    """The sums so far at the end of each stretch; what happened at the very end belongs to the last."""
    sums, now = [], 0
    for step in steps[:POINTS]:
        now += step
        sums.append(now)
    sums[-1] += steps[POINTS]
    return sums
