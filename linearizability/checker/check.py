"""The check of a whole history: parts, budget, verdict.

    verdict = check(history, Log())
    match verdict:
        case Valid(): ...
        case Invalid(): print(verdict.witness.words)
        case Unknown(): print(verdict.reason)
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

from raftlog.linearizability.checker.budget import Budget, Meter, OutOfBudget, TurnOver, to_explain
from raftlog.linearizability.checker.history import History, HistoryError, Key, Operation
from raftlog.linearizability.checker.model import Model, NotOfModel, is_by_key, keys_of
from raftlog.linearizability.checker.parts.choice import PrefixPart, bad_before, part_check, validates_itself
from raftlog.linearizability.checker.parts.online import witness_as_it_grew
from raftlog.linearizability.checker.parts.part import PartCheck
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
from raftlog.linearizability.checker.witness.linearize import linearize, linearize_log

_FIRST_LOOK = 20_000  # configurations each part may take before the others had their turn
_MORE = 8  # times as many in each further turn
_COMPARE = 200_000  # configurations that one part may take to see whether it was bad before another
_COMPARE_ALL = 5 * _COMPARE  # and all together
_DEFAULT = Budget()
_VALID, _INVALID, _UNKNOWN = Status.VALID, Status.INVALID, Status.UNKNOWN  # to ask the class takes half a microsecond
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
    budget = budget or _DEFAULT
    meter = Meter(budget)
    if not validates_itself(model):
        validate(history, model)
    suited = model.suited(history.operations)
    parts = split(suited, history.operations)
    try:
        verdict = _Check(history, suited, parts, meter).run(progress)
    except NotOfModel:
        validate(history, model)  # this one may not be the first
        raise
    if validates_itself(model) and not isinstance(verdict, Valid):
        validate(history, model)
    return verdict


def validate(history: History, model: Model[Any]) -> None:
    """Raise HistoryError for the first operation that is not one of the model's."""
    wrong = model.first_wrong(history.operations)
    if wrong is not None:
        operation, reason = wrong
        raise HistoryError(reason, operation.line, history.source)


def split(model: Model[Any], operations: Sequence[Operation]) -> dict[Key, list[Operation]]:
    """The operations by independent part, in the order in which the parts first appear."""
    keys = keys_of(model, operations)
    if len(keys) == 1:
        return {keys.pop(): list(operations)}
    by_key = is_by_key(model)
    parts: dict[Key, list[Operation]] = {}
    for operation in operations:
        key = operation.key if by_key else model.part(operation)
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
        self._rest = meter.budget  # once there is a verdict: for whatever is looked at later
        self._explained = 0.0  # seconds
        self._bad: dict[Key, DeferredPart] = {}

    def run(self, progress: Progress | None) -> Verdict:
        """Give every part a little, then those that need it more, until one is invalid or all are settled."""
        open_parts = list(self._parts)
        ceiling: int | None = _FIRST_LOOK
        while open_parts and self._out is None:
            if len(open_parts) == 1:
                ceiling = None
            left: list[Key] = []
            for place, key in enumerate(open_parts):
                if not self._settles(key, ceiling, len(open_parts)):
                    left.append(key)
                elif self._status[key] is _INVALID:
                    return self._invalid(key, open_parts[place + 1 :], ceiling)
                if progress is not None:
                    progress(len(self._status), len(self._parts))
            open_parts = left
            ceiling = None if ceiling is None else ceiling * _MORE
        self._rest = self._meter.rest()
        parts = tuple(map(self._part, self._parts))
        count, seconds = len(self._history), self._meter.elapsed()
        if self._out is not None:
            return Unknown(self._model, parts, count, seconds, limit=self._out.limit, reason=self._reason(self._out))
        return Valid(self._model, parts, count, seconds)

    def _settles(self, key: Key, ceiling: int | None, count: int) -> bool:
        """Check a part, one of so many, as long as its turn lasts. Answers whether it is settled."""
        meter = self._meter
        if self._out is not None:
            return False
        meter.turn(ceiling, count)
        try:
            self._status[key] = self._check_of(key).run(meter)
            return True
        except TurnOver:
            return False
        except OutOfBudget as out:
            self._out = out
            return False
        finally:
            meter.turn(None, count)

    def _check_of(self, key: Key) -> PartCheck:
        if key not in self._checks:
            self._checks[key] = part_check(self._model, self._parts[key])
        return self._checks[key]

    def _invalid(self, key: Key, left: list[Key], ceiling: int | None) -> Verdict:
        """The verdict once a part is invalid. Those left are checked as far when somebody looks at the parts."""
        seconds = self._meter.elapsed()
        self._rest = self._meter.rest()
        first_bad = Deferred(lambda: self._first_bad(key, ceiling))

        def all_parts() -> tuple[DeferredPart, ...]:
            self._settle_later(left, ceiling)
            first_bad.get()  # which may tell more of those that took long
            return tuple(map(self._part, self._parts))

        parts: Any = Deferred(all_parts)
        witness: Any = Deferred(lambda: first_bad.get()[0].witness)
        uncompared: Any = Deferred(lambda: first_bad.get()[1])
        count = len(self._history)
        return DeferredInvalid(self._model, parts, count, seconds, witness=witness, uncompared=uncompared)

    def _settle_later(self, keys: Collection[Key], ceiling: int | None) -> None:
        """Check parts in what is left of the budget once there is a verdict."""
        self._meter = Meter(self._rest)
        for key in keys:
            if key not in self._status:
                self._settles(key, ceiling, len(keys))
        self._rest = self._meter.rest()

    def _first_bad(self, key: Key, ceiling: int | None) -> tuple[DeferredPart, tuple[Key, ...]]:
        """The part whose shortest bad prefix ends first, given one that is bad, and those not compared with it.

        The others need only be looked at until that end.
        """
        first = self._part(key)
        others = [other for other in self._parts if self._status.get(other) is not _VALID and other != key]
        while others:
            earlier, uncompared = self._bad_before(others, first.witness.prefix_end)
            if not earlier:
                return first, tuple(uncompared)
            self._settle_later(earlier, ceiling)
            for other, prefix in earlier.items():
                if other not in self._status:
                    self._status[other], self._checks[other] = _INVALID, prefix
            key = min(earlier, key=lambda other: self._checks[other].end())
            end, first = first.witness.prefix_end, self._part(key)
            if first.witness.prefix_end >= end:  # what it takes to find the shortest prefix was not there
                self._checks[key] = earlier[key]
                del self._bad[key]
                first = self._part(key)
            again = {*earlier, *uncompared} - {key}
            others = [other for other in others if other in again]
        return first, ()

    def _bad_before(self, keys: Collection[Key], end: int) -> tuple[dict[Key, PrefixPart], list[Key]]:
        """Those of the parts that are bad before that time, and those of which nobody knows."""
        meter = self._allowance(_COMPARE_ALL)
        earlier: dict[Key, PrefixPart] = {}
        uncompared = []
        for key in keys:
            meter.turn(_COMPARE, len(keys))
            try:
                prefix = bad_before(self._model, self._parts[key], end, meter)
                if prefix is not None:
                    earlier[key] = prefix
            except OutOfBudget:
                uncompared.append(key)
        self._account(meter)
        return earlier, uncompared

    def _part(self, key: Key) -> DeferredPart:
        if key in self._bad:
            return self._bad[key]
        checked = self._check_of(key)
        status = self._status.get(key, _UNKNOWN)
        limit: Limit = self._out.limit if self._out is not None else "configurations"
        witness: Any = Deferred(lambda: self._explain(key)) if status is _INVALID else None
        order: Any = () if status is _UNKNOWN else Deferred(lambda: self._order(key, status))
        part = DeferredPart(
            key,
            status,
            self._parts[key],
            checked.algorithm,
            checked.configurations,
            order,
            witness,
            limit if status is _UNKNOWN else None,
        )
        if status is _INVALID:
            self._bad[key] = part
        return part

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
            self._account(meter)

    def _order(self, key: Key, status: Status) -> tuple[Placed, ...]:
        order: tuple[Placed, ...] = ()
        if status is _VALID and self._checks[key].algorithm == "log":
            order = linearize_log(self._parts[key])
        meter = self._allowance()
        try:
            return order or linearize(self._model, self._parts[key], meter)
        finally:
            self._account(meter)

    def _allowance(self, configurations: int | None = None) -> Meter:
        """An account for one explanation, in what all of them may still take."""
        return Meter(replace(to_explain(self._rest, self._explained), configurations=configurations))

    def _account(self, meter: Meter) -> None:
        """The explanation is over."""
        seconds = meter.elapsed()
        self._explained += seconds
        if self._rest.seconds is not None:
            self._rest = replace(self._rest, seconds=max(self._rest.seconds - seconds, 0.0))

    def _reason(self, out: OutOfBudget) -> str:
        settled = len(self._status)
        if len(self._checks) == 1:
            return f"Nothing contradicts the history so far, but the budget ran out: {out.reason}."
        return f"{settled:,} of {len(self._checks):,} parts are valid, then the budget ran out: {out.reason}."
