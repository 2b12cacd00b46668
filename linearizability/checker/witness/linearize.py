"""An order of the operations that explains the answers: found by a search that keeps how it got where it is.

What is answered was stepped through the model once more, and respects real time; else nothing is.

The search places observers and absorbed operations without saying so. An absorbed operation took effect just before
the last constant call that stood there when it was settled. Observers are put back at the first place where the
state accepts them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.budget import Meter, OutOfBudget
from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation, without
from raftlog.linearizability.checker.log.stream import end_of
from raftlog.linearizability.checker.model import REFUSED, UNKNOWN, Call, Model
from raftlog.linearizability.checker.search.antichain import Trace
from raftlog.linearizability.checker.search.operation_table import Transition
from raftlog.linearizability.checker.search.search import Search
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Placed, Status

_NOWHERE = -1


def linearize(model: Model[Any], operations: Sequence[Operation], meter: Meter) -> tuple[Placed, ...]:
    """An order of all operations, or of those until the first return that nothing survives; empty when there is none
    to be had within the budget. `operations` lie in the order of a History.
    """
    known = without(FAIL, operations)
    if not known:
        return ()
    search = Search(model, known, traced=True)
    try:
        status = search.run(meter)
    except OutOfBudget:
        return ()
    entries = [entry for group in search.frontier.groups.values() for entry in group]
    transitions = search.transitions
    changing = _changing(entries[0][2], transitions) if entries else []
    end = None if status is Status.VALID else known[search.refused].returned
    needed = [
        place
        for place, (operation, transition) in enumerate(zip(known, transitions, strict=True))
        if transition.observer and operation.outcome is OK and (end is None or operation.end < end)
    ]
    return _Order(model, known, changing).with_observers(needed)


def _changing(trace: Trace | None, transitions: Sequence[Transition]) -> list[int]:
    """The operations that change something in the order of their effects, by their place."""
    steps = []
    while trace is not None:
        trace, place, state, _ = trace
        steps.append((place, state))
    order: list[int] = []
    for place, state in reversed(steps):
        at = len(order)
        if state == _NOWHERE:
            at = next((before for before in range(at - 1, -1, -1) if transitions[order[before]].constant), at)
        order.insert(at, place)
    return order


class _Order:
    """An order under way. `states[i]` is the state before the operation at `changing[i]`."""

    def __init__(self, model: Model[Any], operations: Sequence[Operation], changing: list[int]) -> None:
        self._operations = operations
        self._model = model
        self._changing = changing
        self._calls = {place: _call(operations[place]) for place in changing}

    def with_observers(self, observers: Sequence[int]) -> tuple[Placed, ...]:
        """The whole order, from some initial state."""
        for initial in self._model.initial_states():
            states = self._states(initial)
            if len(states) > len(self._changing):
                return self._merge(states, observers)
        return ()

    def _states(self, state: Any) -> list[Any]:
        states = [state]
        for place in self._changing:
            state = self._model.step(state, self._calls[place])
            if state is REFUSED:
                break
            states.append(state)
        return states

    def _merge(self, states: list[Any], observers: Sequence[int]) -> tuple[Placed, ...]:
        operations = self._operations
        earliest = _Earliest(operations, self._changing)
        at: dict[int, list[Operation]] = {}
        for place in sorted(observers, key=lambda place: operations[place].call):
            operation = operations[place]
            call = _call(operation)
            gap = earliest.gap(operation)
            while gap < len(states) and self._model.step(states[gap], call) is REFUSED:
                gap += 1
            if gap == len(states):
                return ()
            earliest.seen(operation, gap)
            at.setdefault(gap, []).append(operation)
        order: list[Placed] = []
        for gap, state in enumerate(states):
            if gap:
                order.append(Placed(operations[self._changing[gap - 1]], state))
            order.extend(Placed(operation, state) for operation in at.get(gap, ()))
        return tuple(order) if respects_time(order) else ()


class _Earliest:
    """The first gap at which an operation may stand: after everything that returned before it was called."""

    def __init__(self, operations: Sequence[Operation], changing: Sequence[int]) -> None:
        returned = [
            (operations[place].end, gap)
            for gap, place in enumerate(changing, 1)
            if operations[place].outcome is not INFO
        ]
        self._returned = sorted(returned)
        self._waiting: list[tuple[float, int]] = []
        self._place = 0
        self._reached = 0

    def gap(self, operation: Operation) -> int:
        """For operations in the order of their calls."""
        call = operation.call
        while self._place < len(self._returned) and self._returned[self._place][0] < call:
            self._reached = max(self._reached, self._returned[self._place][1])
            self._place += 1
        still = []
        for end, gap in self._waiting:
            if end < call:
                self._reached = max(self._reached, gap)
            else:
                still.append((end, gap))
        self._waiting = still
        return self._reached

    def seen(self, operation: Operation, gap: int) -> None:
        """The operation stands at that gap."""
        self._waiting.append((operation.end, gap))


def respects_time(order: Sequence[Placed]) -> bool:
    """Whether nothing stands behind what was called after it had returned."""
    first_return = float("inf")
    for placed in reversed(order):
        if placed.operation.call > first_return:
            return False
        first_return = min(first_return, placed.operation.end)
    return True


def _call(operation: Operation) -> Call:
    output = freeze(operation.output) if operation.outcome is OK else UNKNOWN
    return Call(operation.function, freeze(operation.input), output)


def linearize_log(operations: Sequence[Operation]) -> tuple[Placed, ...]:
    """An order of a valid log's operations, with the log's length as the state; empty when some outcome is unknown.

    An append and a read that saw the end stand where the log has their length; any other read as soon as that length
    is reached and everything that returned before its call has happened.
    """
    if any(operation.outcome is INFO and operation.function == "append" for operation in operations):
        return ()
    settled = sorted((op for op in operations if op.outcome is OK), key=lambda op: op.end)
    ends = sorted(end_of(op) for op in settled if op.function == "append" and op.input)
    lengths: list[tuple[int, bool, int, Operation]] = []
    reached = place = 0
    for operation in sorted(settled, key=lambda op: op.call):
        while place < len(settled) and settled[place].end < operation.call:
            reached = max(reached, end_of(settled[place]))
            place += 1
        changes = operation.function == "append" and bool(operation.input)
        length = end_of(operation)
        if operation.function == "read" and not operation.output[1]:
            behind = bisect_left(ends, max(length, reached))
            length = ends[behind] if behind < len(ends) else max(length, reached)
        lengths.append((length, not changes, operation.call, operation))
    lengths.sort(key=lambda item: item[:3])
    order = tuple(Placed(operation, length) for length, _, _, operation in lengths)
    return order if respects_time(order) else ()
