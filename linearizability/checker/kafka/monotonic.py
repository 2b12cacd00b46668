"""Whether answers about something that only grows ever went back in real time."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from raftlog.linearizability.checker.kafka.columns import NOBODY


def setbacks(
    operations: Sequence[int], answers: Sequence[int], calls: array[int], returns: array[int]
) -> Iterator[tuple[int, int]]:
    """Pairs of rows (earlier, later) in which the later operation began after the earlier had returned, and answered
    less than it. For each later row the earlier one is that of the greatest answer known by then."""
    by_call = sorted(range(len(operations)), key=lambda row: calls[operations[row]])
    by_returned = sorted(range(len(operations)), key=lambda row: returns[operations[row]])
    done, best = 0, NOBODY
    for row in by_call:
        called = calls[operations[row]]
        while done < len(by_returned) and returns[operations[by_returned[done]]] < called:
            if best == NOBODY or answers[by_returned[done]] > answers[best]:
                best = by_returned[done]
            done += 1
        if best != NOBODY and answers[row] < answers[best]:
            yield best, row
