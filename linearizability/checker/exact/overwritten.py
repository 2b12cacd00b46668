"""A register's answer that no write of its value can explain, found without search.

A necessary condition only, for histories whose values repeat: an answer needs a write of its value that was called
before the answer returned, and that no other write followed wholly before the answer was asked for. What
compare-and-set found is an answer, and what it left is a write. It is what remains of Gibbons and Korach's clusters
(`zones.py`) when a value has several writes. It takes a tenth of the time of a search, and where a thousand clients
write few values it still answers.

Time n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, TypeAlias

from raftlog.linearizability.checker.exact.zones import ZoneViolation
from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.values import freeze

# A write with the value that it leaves and its place in the history; one of unknown outcome comes after all others.
_Write: TypeAlias = tuple[int, Any, Operation]
# An answer that no write explains that had returned by then: its place, itself, what it found, the last such write of
# that, and, if there is one, the write that came between the two.
_Doubt: TypeAlias = "tuple[int, Operation, Any, Operation | None, Operation]"

_BEFORE_ALL = -(1 << 64)  # before every stamp
_INITIAL = Operation("", "write", None, call=_BEFORE_ALL, returned=_BEFORE_ALL)  # it left the initial value


def check_overwritten(operations: Sequence[Operation], initial: Any = None) -> ZoneViolation | None:
    """The first answer that no write explains; None says nothing about the history.

    `operations` lie in the order of a History.
    """
    initial = freeze(initial)
    doubts, writes = _gather(operations, initial)
    violation = None
    # What returned later or never explains an answer if only it was called in time: going back, the first call counts.
    soonest: dict[Any, Operation] = {}
    for place, answer, value, source, blocker in reversed(doubts):
        while writes and writes[-1][0] > place:
            _, left, write = writes.pop()
            other = soonest.get(left)
            if other is None or write.call < other.call:
                soonest[left] = write
        later = soonest.get(value)
        if later is None or answer.returned is None or later.call > answer.returned:
            if source is not None:
                violation = _overwritten(answer, value, source, blocker)
            elif later is None:
                violation = ZoneViolation("unwritten", (value,), (answer,))
            else:
                violation = ZoneViolation("early", (value,), (later, answer))
    if violation is not None:
        freeze(violation.values)  # a NaN is no value
    return violation


def _gather(operations: Sequence[Operation], initial: Any) -> tuple[list[_Doubt], list[_Write]]:
    """The answers in doubt and all writes, both in order."""
    doubts: list[_Doubt] = []
    writes: list[_Write] = []
    unknown: list[_Write] = []
    ended = {initial: _INITIAL}  # by value the write that returned last
    returns = [_BEFORE_ALL]  # of writes; and of each, the one called last among it and those before
    latest = [_INITIAL]
    for place, operation in enumerate(operations):
        function = operation.function
        if operation.outcome is not OK:
            if operation.outcome is INFO and function != "read":
                unknown.append((len(operations), _written(operation), operation))
            continue
        left = operation.input
        if function != "write":
            found = operation.output
            if function == "cas" and found is False:
                continue
            if function == "cas":
                found, left = left
            try:
                source = ended.get(found)
            except TypeError:
                found = freeze(found)
                source = ended.get(found)
            blocker = _INITIAL
            # What ended before it was called cannot have come after a write that had not.
            if source is not None and source.returned < operation.call:  # type: ignore[operator]
                blocker = latest[bisect_left(returns, operation.call) - 1]
            if source is None or source.returned < blocker.call:  # type: ignore[operator]
                doubts.append((place, operation, found, source, blocker))
            if function == "read":
                continue
        try:
            ended[left] = operation
        except TypeError:
            left = freeze(left)
            ended[left] = operation
        writes.append((place, left, operation))
        returns.append(operation.returned)  # type: ignore[arg-type]
        latest.append(operation if operation.call > latest[-1].call else latest[-1])
    writes += unknown
    return doubts, writes


def _overwritten(answer: Operation, value: Any, source: Operation, blocker: Operation) -> ZoneViolation:
    found = (blocker, answer) if source is _INITIAL else (source, blocker, answer)
    return ZoneViolation("overwritten", (value, _written(blocker)), found)


def _written(operation: Operation) -> Any:
    return freeze(operation.input[1] if operation.function == "cas" else operation.input)
