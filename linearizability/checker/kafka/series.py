"""How the number of acknowledged values that nobody has read yet went over the time of the test.

Knows: counting per key. Refuses to know: which of them are lost.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raftlog.linearizability.checker.kafka.columns import NEVER, NOBODY, OK, Columns

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
    ends = [returned for returned in (max(_finished(columns), default=None),) if returned is not None]
    if not ends:
        return Unseen()
    start = min(columns.call)
    span = max(1, ends[0] - start)
    keys = len(columns.keys.names)
    apart = keys <= _KEYS_APART
    steps = [[0] * (POINTS + 1) for _ in range(keys if apart else 1)]
    result = Unseen([start + span * point // POINTS for point in range(1, POINTS + 1)])
    returned, outcome, readers = columns.returned, columns.outcome, columns.first_reader
    for element, writer in enumerate(columns.writer):
        if writer == NOBODY or outcome[writer] != OK:
            continue
        key = columns.element_key[element]
        step = steps[key if apart else 0]
        acknowledged = returned[writer]
        reader = readers[element]
        if reader == NOBODY:
            result.at_end[key] = result.at_end.get(key, 0) + 1
            step[(acknowledged - start) * POINTS // span] += 1
        elif returned[reader] > acknowledged:
            step[(acknowledged - start) * POINTS // span] += 1
            step[(returned[reader] - start) * POINTS // span] -= 1
    series = [_running(step) for step in steps]
    result.total = [sum(point) for point in zip(*series, strict=True)]
    if apart:
        result.by_key = {key: line for key, line in enumerate(series) if any(line)}
    return result


def _finished(columns: Columns) -> list[int]:
    return [returned for returned in columns.returned if returned != NEVER]


def _running(steps: list[int]) -> list[int]:
    """The sums so far at the end of each stretch; what happened at the very end belongs to the last."""
    sums, now = [], 0
    for step in steps[:POINTS]:
        now += step
        sums.append(now)
    sums[-1] += steps[POINTS]
    return sums
