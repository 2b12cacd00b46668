"""Queues whose values all differ, checked without search.

T. A. Henzinger, A. Sezgin and V. Vafeiadis, Aspect-Oriented Linearizability Proofs, CONCUR 2013: such a history can be
explained unless

- a value is dequeued that nobody enqueued, or twice, or before its enqueue was called,
- of two values the one that was enqueued wholly before the other is still there when the other's dequeue has returned:
  its own dequeue is called later, or never, or
- a dequeue finds the queue empty although at each moment of it some value is certainly inside: from the return of its
  enqueue to the call of its dequeue.

An enqueue of unknown outcome happened if its value was dequeued, and else is left out. A dequeue of unknown outcome may
have removed any value that nobody is seen to dequeue, at any time after its call. Such a value is in the way of those
behind it and of whoever finds the queue empty, so it has to be gone by then: there must be enough such dequeues, for
each moment, that were called by then (P. Hall's theorem: who has to be gone first gets the dequeue called first).

Time n log n; of unknown outcomes that matter, times their number.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Literal

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation
from raftlog.linearizability.checker.values import freeze

_EVER = float("inf")


class NotFifo(Exception):
    """Some value is enqueued twice."""


@dataclass(frozen=True, slots=True)
class FifoViolation:
    """Operations that cannot all be explained.

    "unwritten": `operations[0]` dequeued what nobody enqueued. "twice": both dequeued the same value. "early": the
    dequeue `operations[1]` returned before the enqueue `operations[0]` was called. "order": the enqueues of two values,
    the dequeue of the second, and that of the first if there is one. "empty": a dequeue that found nothing, and behind
    it enqueues and dequeues of values that were there all the time. "left": values that should be gone and the dequeues
    of unknown outcome, fewer than these values, that may have removed them.
    """

    kind: Literal["unwritten", "twice", "early", "order", "empty", "left"]
    value: Any
    operations: tuple[Operation, ...]


@dataclass(slots=True)
class _Life:
    """What happened to one value."""

    enqueue: Operation
    dequeue: Operation | None = None

    @property
    def certain_from(self) -> float:
        """From then on it was inside."""
        return self.enqueue.end

    @property
    def until(self) -> float:
        """Till then it was inside."""
        return _EVER if self.dequeue is None else self.dequeue.call

    def operations(self) -> tuple[Operation, ...]:
        """Those that tell of it."""
        return (self.enqueue,) if self.dequeue is None else (self.enqueue, self.dequeue)


def check_fifo(operations: Sequence[Operation]) -> FifoViolation | None:
    """The first violation found, or None. `operations` are those of one queue, in the order of a History.

    Raises NotFifo when the history is not one to be judged so.
    """
    lives: dict[Any, _Life] = {}
    dequeues: list[tuple[Any, Operation]] = []
    empty: list[Operation] = []
    unknown: list[Operation] = []
    for operation in operations:
        if operation.outcome is FAIL:
            continue
        if operation.function == "enqueue":
            value = freeze(operation.input)
            if value in lives:
                raise NotFifo
            lives[value] = _Life(operation)
        elif operation.outcome is INFO:
            unknown.append(operation)
        elif operation.output is None:
            empty.append(operation)
        else:
            dequeues.append((freeze(operation.output), operation))
    for value, operation in dequeues:
        life = lives.get(value)
        if life is None:
            return FifoViolation("unwritten", value, (operation,))
        if life.dequeue is not None:
            return FifoViolation("twice", value, (life.dequeue, operation))
        if operation.end < life.enqueue.call:
            return FifoViolation("early", value, (life.enqueue, operation))
        life.dequeue = operation
    inside = [life for life in lives.values() if life.dequeue is not None or life.enqueue.outcome is OK]
    violation = _out_of_order(inside) or _not_empty(_times(inside), empty)
    if violation is None or not unknown:
        return violation
    seen = [life for life in inside if life.dequeue is not None]
    left = [life for life in inside if life.dequeue is None]
    return _out_of_order(seen) or _not_empty(_times(seen), empty) or _Left(seen, left, unknown).violation(empty)


def _out_of_order(lives: Sequence[_Life]) -> FifoViolation | None:
    """Two values that left in another order than they came."""
    waiting = sorted(lives, key=lambda life: life.certain_from)
    place = 0
    last: _Life | None = None  # of those enqueued before, the one whose dequeue was called last
    for life in sorted(lives, key=lambda life: life.enqueue.call):
        while waiting[place].certain_from < life.enqueue.call:
            if last is None or waiting[place].until > last.until:
                last = waiting[place]
            place += 1
        if last is not None and life.dequeue is not None and life.dequeue.end < last.until:
            value = freeze(life.enqueue.input)
            order = (last.enqueue, life.enqueue, life.dequeue)
            return FifoViolation("order", value, order if last.dequeue is None else (*order, last.dequeue))
    return None


@dataclass(frozen=True, slots=True)
class _Times:
    """The times in which some value was certainly inside: `begins` and `ends`, at which the queue may be empty, and the
    values by the beginning of theirs."""

    begins: list[float]
    ends: list[float]
    certain: list[_Life]


def _times(lives: Sequence[_Life]) -> _Times:
    certain = sorted((life for life in lives if life.certain_from < life.until), key=lambda life: life.certain_from)
    begins: list[float] = []
    ends: list[float] = []
    for life in certain:
        if ends and life.certain_from < ends[-1]:
            ends[-1] = max(ends[-1], life.until)
        else:
            begins.append(life.certain_from)
            ends.append(life.until)
    return _Times(begins, ends, certain)


def _not_empty(times: _Times, empty: Sequence[Operation]) -> FifoViolation | None:
    """A dequeue that found nothing, although there was always something."""
    for operation in empty:
        place = bisect_left(times.begins, operation.call) - 1
        if place >= 0 and operation.end < times.ends[place]:
            return FifoViolation("empty", None, (operation, *_cover(times.certain, operation)))
    return None


def _cover(certain: Sequence[_Life], operation: Operation) -> list[Operation]:
    """As few values as possible of which one is inside at each moment of the operation."""
    found: list[Operation] = []
    reached: float = operation.call
    best: _Life | None = None
    for life in certain:
        if life.certain_from >= reached and best is not None and best.until > reached:
            found += best.operations()
            reached = best.until
            if reached > operation.end:
                return found
        if life.certain_from < reached and (best is None or life.until > best.until):
            best = life
    return found if best is None else found + list(best.operations())


class _Left:
    """Values that nobody is seen to dequeue, and the dequeues of unknown outcome that may have removed some of them.

    `_due` has, in this order, when a value must be gone at the latest, the value, and the one behind it that was gone
    then.
    """

    def __init__(self, seen: Sequence[_Life], left: Sequence[_Life], unknown: Sequence[Operation]) -> None:
        self._unknown = unknown
        self._calls = sorted(operation.call for operation in unknown)
        self._left = sorted(left, key=lambda life: life.certain_from)
        self._since = [life.certain_from for life in self._left]
        self._times = _times(seen)
        behind = sorted(seen, key=lambda life: life.enqueue.call)
        called = [life.enqueue.call for life in behind]
        first: list[_Life] = behind[-1:]  # of the values from there on, the one that was gone first; backwards
        for life in reversed(behind):
            first.append(min(first[-1], life, key=_gone))
        first.reverse()
        self._due: list[tuple[float, _Life, _Life]] = []
        for life in self._left:
            place = bisect_right(called, life.certain_from)
            if place < len(behind):
                self._due.append((_gone(first[place]), life, first[place]))
        self._due.sort(key=itemgetter(0))

    def violation(self, empty: Sequence[Operation]) -> FifoViolation | None:
        """The first violation, or None."""
        for count, (due, _, _) in enumerate(self._due, 1):
            if count > self._available(due):
                return self._found(self._due[:count], due)
        for operation in empty:
            if not any(self._may_be_empty(moment) for moment in self._moments(operation)):
                return self._found(self._due, _EVER, operation)
        return None

    def _available(self, moment: float) -> int:
        return bisect_right(self._calls, moment)

    def _moments(self, operation: Operation) -> list[float]:
        """When the queue is most likely to have been empty while the operation ran."""
        times, calls = self._times, self._calls
        ends = times.ends[bisect_left(times.ends, operation.call) : bisect_right(times.ends, operation.end)]
        called = calls[bisect_left(calls, operation.call) : bisect_right(calls, operation.end)]
        return [moment for moment in (operation.call, *ends, *called) if not self._is_certain(moment)]

    def _is_certain(self, moment: float) -> bool:
        place = bisect_left(self._times.begins, moment) - 1
        return place >= 0 and moment < self._times.ends[place]

    def _may_be_empty(self, moment: float) -> bool:
        gone = bisect_left(self._since, moment)
        if gone > self._available(moment):
            return False
        for due, life, _ in self._due:
            if due > moment and life.certain_from >= moment:
                gone += 1
                if gone > self._available(due):
                    return False
        return True

    def _found(
        self, due: Sequence[tuple[float, _Life, _Life]], until: float, empty: Operation | None = None
    ) -> FifoViolation:
        operations = [one for _, left, behind in due for one in (*left.operations(), *behind.operations())]
        if empty is not None:
            operations.append(empty)
            operations += [life.enqueue for life in self._left[: bisect_left(self._since, empty.end)]]
            for life in self._times.certain:
                if life.certain_from <= empty.end and life.until >= empty.call:
                    operations += life.operations()
        operations += [operation for operation in self._unknown if operation.call <= until]
        return FifoViolation("left", None, tuple(dict.fromkeys(operations)))


def _gone(life: _Life) -> float:
    return _EVER if life.dequeue is None else life.dequeue.end
