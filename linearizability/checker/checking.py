"""The check of a whole history: parts, budget, verdict.

    verdict = check(history, Log())
    match verdict:
        case Valid(): ...
        case Invalid(): print(verdict.witness.words)
        case Unknown(): print(verdict.reason)

Knows: how the budget is shared among parts. Refuses to know: any algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from raftlog.linearizability.checker.budget import Budget, Meter, OutOfBudget
from raftlog.linearizability.checker.history import History, HistoryError, Key, Operation
from raftlog.linearizability.checker.linearize import linearize, linearize_log
from raftlog.linearizability.checker.model import Model, part_of
from raftlog.linearizability.checker.online_parts import witness_as_it_grew
from raftlog.linearizability.checker.parts import PartCheck, part_check
from raftlog.linearizability.checker.verdict import (
    Deferred,
    DeferredInvalid,
    DeferredPart,
    Limit,
    Placed,
    Status,
    Unknown,
    Valid,
    Verdict,
    Witness,
)

_FIRST_LOOK = 20_000  # configurations each part may take before the others had their turn
_MORE = 8  # times as many in each further turn
_EXPLAIN_SECONDS = 10.0  # the time to make violations small and to find orders, beside the budget of the check
_EXPLAIN_AT_LEAST = 0.1
_LONG = 1_000  # operations of a part of which a witness may need only the last

Progress = Callable[[int, int], None]  # parts settled, parts in all


def check(
    history: History | Sequence[Operation],
    model: Model[Any],
    *,
    budget: Budget | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Whether some order of the operations explains every answer.

    Without a budget time is not limited, and memory is by Budget's default. Raises HistoryError for an operation
    that the model does not know or whose input or output it cannot make sense of.
    """
    if not isinstance(history, History):
        history = History.of(history)
    budget = budget or Budget()
    meter = Meter(budget)
    validate(history, model)
    model = model.suited(history.operations)
    parts = split(model, history.operations)
    return _Check(history, model, parts, meter).run(progress)


def validate(history: History, model: Model[Any]) -> None:
    """Raise HistoryError for the first operation that is not one of the model's."""
    wrong = model.first_wrong(history.operations)
    if wrong is not None:
        operation, reason = wrong
        raise HistoryError(reason, operation.line, history.source)


def split(model: Model[Any], operations: Sequence[Operation]) -> dict[Key, list[Operation]]:
    """The operations by independent part, in the order in which the parts first appear."""
    part = part_of(model)
    keys = set(map(part, operations))
    if len(keys) == 1:
        return {keys.pop(): list(operations)}
    parts: dict[Key, list[Operation]] = {}
    for operation in operations:
        key = part(operation)
        try:
            parts[key].append(operation)
        except KeyError:
            parts[key] = [operation]
    return parts


class _Check:
    """One check under way."""

    def __init__(self, history: History, model: Model[Any], parts: dict[Key, list[Operation]], meter: Meter) -> None:
        self._history = history
        self._model = model
        self._parts = parts
        self._meter = meter
        self._checks: dict[Key, PartCheck] = {}  # of those parts that had a turn
        self._status: dict[Key, Status] = {}
        self._out: OutOfBudget | None = None
        self._explained = 0.0  # seconds

    def run(self, progress: Progress | None) -> Verdict:
        """Give every part a little, then those that need it more, until one is invalid or all are settled."""
        open_parts = list(self._parts)
        ceiling: int | None = _FIRST_LOOK
        while open_parts and self._out is None:
            if len(open_parts) == 1:
                ceiling = None
            left: list[Key] = []
            for place, key in enumerate(open_parts):
                if not self._settles(key, ceiling):
                    left.append(key)
                elif self._status[key] is Status.INVALID:
                    return self._invalid(key, open_parts[place + 1 :], ceiling)
                if progress is not None:
                    progress(len(self._status), len(self._parts))
            open_parts = left
            ceiling = None if ceiling is None else ceiling * _MORE
        parts = tuple(map(self._part, self._parts))
        count, seconds = len(self._history), self._meter.elapsed()
        if self._out is not None:
            return Unknown(self._model, parts, count, seconds, limit=self._out.limit, reason=self._reason(self._out))
        return Valid(self._model, parts, count, seconds)

    def _settles(self, key: Key, ceiling: int | None) -> bool:
        """Check a part until the ceiling. Answers whether it is settled."""
        meter = self._meter
        if self._out is not None:
            return False
        meter.ceiling = None if ceiling is None else meter.configurations + ceiling
        try:
            self._status[key] = self._check_of(key).run(meter)
            return True
        except OutOfBudget as out:
            if meter.ceiling is None or meter.configurations < meter.ceiling:
                self._out = out
            return False
        finally:
            meter.ceiling = None

    def _check_of(self, key: Key) -> PartCheck:
        if key not in self._checks:
            self._checks[key] = part_check(self._model, self._parts[key])
        return self._checks[key]

    def _invalid(self, key: Key, left: list[Key], ceiling: int | None) -> Verdict:
        """The verdict once a part is invalid. Those left are checked as far when somebody looks at the parts."""
        bad = self._part(key)
        rest = self._meter.rest()

        def all_parts() -> tuple[DeferredPart, ...]:
            self._meter = Meter(rest)
            for other in left:
                self._settles(other, ceiling)
            return tuple(bad if other == key else self._part(other) for other in self._parts)

        parts: Any = Deferred(all_parts)
        witness: Any = Deferred(lambda: bad.witness)
        return DeferredInvalid(self._model, parts, len(self._history), self._meter.elapsed(), witness=witness)

    def _part(self, key: Key) -> DeferredPart:
        checked = self._check_of(key)
        status = self._status.get(key, Status.UNKNOWN)
        limit: Limit = self._out.limit if self._out is not None else "configurations"
        witness: Any = Deferred(lambda: self._explain(key)) if status is Status.INVALID else None
        order: Any = () if status is Status.UNKNOWN else Deferred(lambda: self._order(key, status))
        return DeferredPart(
            key,
            status,
            self._parts[key],
            checked.algorithm,
            checked.configurations,
            order,
            witness,
            limit if status is Status.UNKNOWN else None,
        )

    def _explain(self, key: Key) -> Witness:
        meter = self._allowance()
        checked, operations = self._checks[key], self._parts[key]
        try:
            if len(operations) > _LONG and checked.past_is_large:
                recent = witness_as_it_grew(self._model, operations, key, self._history.time_unit, meter)
                if recent is not None and recent.minimal:
                    return recent
            return checked.witness(key, self._history.time_unit, meter)
        finally:
            self._explained += meter.elapsed()

    def _order(self, key: Key, status: Status) -> tuple[Placed, ...]:
        order: tuple[Placed, ...] = ()
        if status is Status.VALID and self._checks[key].algorithm == "log":
            order = linearize_log(self._parts[key])
        meter = self._allowance()
        try:
            return order or linearize(self._model, self._parts[key], meter)
        finally:
            self._explained += meter.elapsed()

    def _allowance(self) -> Meter:
        """An account for one explanation. All together get so much time, and each at least a little."""
        seconds = max(_EXPLAIN_SECONDS - self._explained, _EXPLAIN_AT_LEAST)
        return Meter(replace(self._meter.budget, seconds=seconds, configurations=None, clock_at_start=None))

    def _reason(self, out: OutOfBudget) -> str:
        settled = len(self._status)
        if len(self._checks) == 1:
            return f"Nothing contradicts the history so far, but the budget ran out: {out.reason}."
        return f"{settled:,} of {len(self._checks):,} parts are valid, then the budget ran out: {out.reason}."
