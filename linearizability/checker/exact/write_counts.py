"""A register's value that came back more often than it was written, found without search.

A necessary condition only, for histories whose values repeat. An answer needs a write of its value that was called
before the answer returned. Where an operation that proves another value lies wholly before the answer, that write must
not have returned before that operation was called. And two answers of a value with such an operation wholly between
them need two writes. So the answers of a value that are apart in this way need as many writes, each in its time; where
there are too few, nothing explains the history. What compare-and-set found is an answer, and what it left is a write.

Stale reads mostly show in this, in a small part of the time of a search, and where a thousand clients write few values
it still answers. It finds whatever `overwritten` finds, which can tell of it, and more.

Time n log n.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.values import freeze

_BEFORE_ALL = -(1 << 64)  # before every stamp: when the initial value was written
_NEVER = _BEFORE_ALL - 1


class _Value:
    """What is known of one value so far.

    `answered` is the return of the last answer that took one write more, `ended` that of the last write. `free` has the
    returns of writes, in order, and the first so many, `gone`, are taken by answers or of no more use; `doubts` has the
    answers that none of those that returned explains, in the order of their returns, and whether each takes a write of
    its own.
    """

    __slots__ = ("answered", "doubts", "ended", "free", "gone")

    def __init__(self, written: int = _NEVER) -> None:
        self.answered = _NEVER
        self.ended = written
        self.free: list[int] = []
        self.gone = 0
        self.doubts: list[tuple[Operation, bool]] = []

    def answer(self, operation: Operation, before: int) -> None:
        """It answers this value. Another was there at that time at the earliest, and before the answer."""
        apart = before > self.answered
        served = before <= self.ended
        if apart:
            self.answered = operation.returned  # type: ignore[assignment]
            self.gone = bisect_left(self.free, before, self.gone)
            served = self.gone < len(self.free)
            self.gone += served
        if not served:
            self.doubts.append((operation, apart))

    def explain(self, call: int) -> bool:
        """A write called then may have happened before what had not returned by then. Whether an answer takes it: it
        explains any number of those that need none of their own."""
        doubts = self.doubts
        place = len(doubts)
        while place and doubts[place - 1][0].returned >= call:  # type: ignore[operator]
            place -= 1
        late = doubts[place:]
        own = [doubt for doubt in late if doubt[1]]
        doubts[place:] = own[1:]
        return bool(own)


def check_write_counts(operations: Sequence[Operation], initial: Any = None) -> Operation | None:
    """The answer that returned first of those that no write is left for; None says nothing about the history.

    `operations` lie in the order of a History.
    """
    initial = freeze(initial)
    try:
        return _check(operations, initial)
    except TypeError:
        frozen = list(map(_frozen, operations))
        answer = _check(frozen, initial)
        return None if answer is None else operations[frozen.index(answer)]


def _check(operations: Sequence[Operation], initial: Any) -> Operation | None:
    values: dict[Any, _Value] = {initial: _Value(_BEFORE_ALL)}
    values[initial].free.append(_BEFORE_ALL)
    unknown: list[Operation] = []
    last = other = _BEFORE_ALL
    now: Any = None
    returns = [_BEFORE_ALL]  # of what proves a value; and of each, among it and those before:
    lasts = [last]  # the call of the one called last,
    proven: list[Any] = [now]  # the value that it proves,
    others = [other]  # and the call of the last that proves another
    for operation in operations:
        function = operation.function
        if operation.outcome is not OK:
            if operation.outcome is INFO and function != "read":
                unknown.append(operation)
            continue
        call = operation.call
        if function == "write":
            left = operation.input
            writes = True
        else:
            if function == "read":
                found = left = operation.output
                writes = False
            elif operation.output is False:
                continue
            else:
                found, left = operation.input
                writes = found != left  # it brings back no value that is there
            known = values.get(found)
            if known is None:
                known = values[found] = _Value()
            before = other if found == now else last
            if before > known.answered or before > known.ended:
                place = bisect_left(returns, call) - 1
                known.answer(operation, others[place] if found == proven[place] else lasts[place])
        returned: int = operation.returned  # type: ignore[assignment]
        if writes:
            known = values.get(left)
            if known is None:
                known = values[left] = _Value()
            known.ended = returned
            if not (known.doubts and known.explain(call)):
                known.free.append(returned)
        if left == now:
            if call > last:
                last = call
        elif call > last:
            last, now, other = call, left, last
        elif call > other:
            other = call
        returns.append(returned)
        lasts.append(last)
        proven.append(now)
        others.append(other)
    return _unexplained(values, unknown)


def _unexplained(values: dict[Any, _Value], unknown: Sequence[Operation]) -> Operation | None:
    """The first answer in doubt for which no write of unknown outcome is left either."""
    calls: dict[Any, list[int]] = {value: [] for value, known in values.items() if known.doubts}
    if not calls:
        return None
    for operation in unknown:
        left = operation.input
        if operation.function == "cas":
            found, left = left
            if found == left:
                continue
        if left in calls:
            calls[left].append(operation.call)
    first: Operation | None = None
    for value, called in calls.items():
        called.sort()
        answer = _left_over(values[value].doubts, called)
        if answer is not None and (first is None or answer.end < first.end):
            first = answer
    if first is not None:
        freeze(tuple(values))  # a NaN is no value
    return first


def _left_over(doubts: Sequence[tuple[Operation, bool]], called: Sequence[int]) -> Operation | None:
    """The first of these answers for which no write called then is left; whether each takes a write of its own."""
    taken = 0
    for answer, apart in doubts:
        place = taken if apart else 0
        if place == len(called) or called[place] > answer.end:
            return answer
        taken += apart
    return None


def _frozen(one: Operation) -> Operation:
    given, output = freeze(one.input), freeze(one.output)
    return Operation(one.process, one.function, given, output, one.key, one.call, one.returned, one.outcome)
