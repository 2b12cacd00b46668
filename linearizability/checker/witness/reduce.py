"""From a part that nothing explains to the few operations that nothing explains.

Leaving out an operation that only looks makes a history easier to explain. One that changes something may not simply
go: a read of its value would then look wrong. It is instead taken to be of unknown outcome, which again only makes
the history easier to explain. Whatever still cannot be explained is therefore a violation of the whole history too.

The past is cut off first. A violation is found in the last operations before it, from whatever states the object
has had until then: a handful of operations instead of thousands.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from raftlog.linearizability.checker.budget import Meter, OutOfBudget
from raftlog.linearizability.checker.history import INFO, OK, Key, Operation, in_order
from raftlog.linearizability.checker.model import OBSERVER, TOTAL, UNKNOWN, Call, Model, Outlook, Refused, Traits
from raftlog.linearizability.checker.search.search import Search
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Status

_EVER = float("inf")
_FIRST_WINDOW = 8  # returns
_WIDER = 4  # times as wide, when that was not enough
STARTS_LIMIT = 4096  # states: with more of them the past is not cut off
_REMEMBERED = 64  # operations of a question whose answer is kept
_CONFIGURATIONS = 200_000  # of one question; a harder one counts as not answered


class Started(Model[Any]):
    """A model that begins in any of several states: those an object may have had when a window of time begins."""

    def __init__(self, model: Model[Any], states: Sequence[Hashable]) -> None:
        self.model = model
        self.states = tuple(states)
        self.name = model.name  # type: ignore[misc]
        self.functions = model.functions  # type: ignore[misc]

    def initial_state(self) -> Any:
        return self.states[0]

    def initial_states(self) -> tuple[Any, ...]:
        return self.states

    def step(self, state: Any, call: Call) -> Any | Refused:
        return self.model.step(state, call)

    def traits(self, call: Call) -> Traits:
        return self.model.traits(call)

    def outlook(self, calls: Sequence[Call], operations: Sequence[Operation]) -> Outlook | None:
        return self.model.outlook(calls, operations)

    def uncertain(self, operation: Operation) -> Operation | None:
        return self.model.uncertain(operation)

    def validate(self, operation: Operation) -> None:
        self.model.validate(operation)

    def part(self, operation: Operation) -> Key:
        return self.model.part(operation)

    def describe_operation(self, operation: Operation) -> str:
        return self.model.describe_operation(operation)

    def describe_state(self, state: Any) -> str:
        return self.model.describe_state(state)

    def refusal(self, state: Any, call: Call) -> str:
        return self.model.refusal(state, call)


@dataclass(slots=True)
class Core:
    """What is left: `operations` in the order of a History; `context` are the identities of those that only may have
    happened. Nothing explains them under `model`.
    """

    model: Model[Any]
    operations: list[Operation]
    context: set[int]
    minimal: bool


# Whether it is refuted, the states that came up, until when they are all there are, and what was asked about, which
# must live as long as its identities count.
_Answer: TypeAlias = tuple[bool | None, list[Any], float, Any]


class Questions:
    """Asks whether small histories can be explained, on one account, and the same small one only once."""

    def __init__(self, model: Model[Any], meter: Meter) -> None:
        self._model = model
        self._meter = meter
        self._copies: dict[int, Operation | None] = {}
        self._answers: dict[tuple[int, tuple[int, ...], tuple[int, ...]], _Answer] = {}
        self.states: list[Any] = []  # that came up in the last question answered
        self.until = _EVER  # when the object had no other states than those

    def refutes(
        self, model: Model[Any], operations: Sequence[Operation], uncertain: set[int], until: float = _EVER
    ) -> bool | None:
        """Whether nothing explains these operations, in the order of a History, those uncertain made so.

        Nothing is known of answers after `until`. None when the answer would cost too much.
        """
        sure = []
        maybe = []
        for operation in operations:
            if id(operation) not in uncertain:
                sure.append(operation)
                continue
            copy = self._uncertain(operation)
            if copy is not None:
                maybe.append(copy)
            elif operation.end > until:
                maybe.append(operation.of_unknown_outcome())
        if not sure:
            return False
        asked = (id(model), tuple(map(id, sure)), tuple(map(id, maybe)))
        answer = self._answers.get(asked)
        if answer is None:
            answer = self._search(model, sure + maybe)
            if len(operations) <= _REMEMBERED:
                self._answers[asked] = answer
        refuted, self.states, self.until, _ = answer
        return refuted

    def _search(self, model: Model[Any], operations: list[Operation]) -> _Answer:
        self._meter.ceiling = self._meter.configurations + _CONFIGURATIONS
        try:
            search = Search(model, operations)
            status = search.run(self._meter)
        except OutOfBudget as out:
            if self._meter.configurations < self._meter.ceiling:
                raise OutOfBudget(out.limit, out.reason) from None
            return None, self.states, self.until, (model, operations)
        finally:
            self._meter.ceiling = None
        refuted = status is Status.INVALID
        until = operations[search.refused].end if refuted else _EVER
        return refuted, search.table.states, until, (model, operations)

    def _uncertain(self, operation: Operation) -> Operation | None:
        key = id(operation)
        if key not in self._copies:
            self._copies[key] = self._model.uncertain(operation)
        return self._copies[key]


def reduce(past: Past, hint: int, meter: Meter) -> tuple[int, Core]:
    """The position of the first return that nothing survives, and the core of what leads to it.

    When the budget ends early, the core is what was reached, and not minimal.
    """
    questions = Questions(past.model, meter)
    try:
        position, core = _Prefixes(past, questions).first(hint)
    except OutOfBudget:
        return hint, past.all_of_it(hint)
    return position, _reduced(core, questions)


def reduce_found(model: Model[Any], operations: Sequence[Operation], meter: Meter) -> Core:
    """The core of operations found by another way than search."""
    context = {id(operation) for operation in operations if operation.outcome is INFO}
    return reduce_core(Core(model, in_order(operations), context, False), Questions(model, meter))


def reduce_core(core: Core, questions: Questions) -> Core:
    """A smaller core; the same when it can be explained or nobody can tell."""
    try:
        if not questions.refutes(core.model, core.operations, core.context):
            return core
    except OutOfBudget:
        return core
    return _reduced(core, questions)


def _reduced(core: Core, questions: Questions) -> Core:
    try:
        _weaken(core, questions)
        _drop_context(core, questions)
        core.minimal = is_minimal(core, questions)
    except OutOfBudget:
        core.minimal = False
    return core


@dataclass(frozen=True, slots=True)
class Past:
    """A part that nothing explains. `operations` lie in the order of a History; `states` are all that the object may
    have had until the return at the hint, or empty when they are not all known. `exact` is set when the hint is the
    first return that nothing survives, provided that it is one at all. `older` are the identities of operations that
    may have happened before the model's initial states.
    """

    model: Model[Any]
    operations: Sequence[Operation]
    states: Sequence[Hashable]
    exact: bool
    older: frozenset[int] = frozenset()

    def all_of_it(self, position: int) -> Core:
        """The core with everything in it."""
        operations = list(self.operations)
        if self.states:
            end = operations[position].end
            operations = [operation for operation in operations if operation.call <= end]
        context = {id(op) for op in operations if op.outcome is INFO or id(op) in self.older}
        return Core(self.model, operations, context, False)


class _Prefixes:
    """Looks for the first return that nothing survives.

    The search only tells a place near it. What it knows of later answers lets it see too early that it is on a wrong
    way, and operations of unknown outcome that may happen twice hide a violation for a while.
    """

    def __init__(self, past: Past, questions: Questions) -> None:
        self._past = past
        self._questions = questions
        self._until = _EVER  # when the starts are all states that the object may have had
        self._returns = [place for place, op in enumerate(past.operations) if op.outcome is OK]
        self._starts = list(dict.fromkeys([*past.model.initial_states(), *past.states])) if past.states else []
        self._cores: dict[int, Core] = {}

    def first(self, hint: int) -> tuple[int, Core]:
        """The position and the core of the shortest bad prefix. Raises OutOfBudget when that costs too much."""
        returns = self._returns
        self._until = self._past.operations[hint].end
        high = returns.index(hint)
        step = 1
        if self._refuted(high):
            low = high - 1 if self._past.exact else -1
            while low < high - 1 and high >= step and self._refuted(high - step):
                high -= step
                step *= 2
            low = max(low, high - step)
        else:
            low = high
            high = min(low + step, len(returns) - 1)
            while not self._refuted(high):
                if high == len(returns) - 1:
                    raise OutOfBudget("configurations", "too many orders")
                step *= 2
                low = high
                high = min(high + step, len(returns) - 1)
        while high - low > 1:
            middle = (low + high) // 2
            if self._refuted(middle):
                high = middle
            else:
                low = middle
        return returns[high], self._cores[high]

    def _refuted(self, place: int) -> bool:
        core = self._core(self._returns[place])
        if core is not None:
            self._cores[place] = core
        return core is not None

    def _core(self, position: int) -> Core | None:
        """The last operations before the position that are refuted whatever the state before them."""
        past = self._past
        end = past.operations[position].end
        prefix = [operation for operation in past.operations if operation.call <= end]
        told_later = [operation for operation in prefix if operation.end > end and self._tells(operation)]
        if any(id(operation) in past.older for operation in told_later):
            return None  # its answer has a share in the states that the past begins with
        until = min((operation.call for operation in told_later), default=_EVER)
        core = self._window(position, prefix, self._starts, min(until, self._until))
        if core is not None:
            return core
        context = {id(op) for op in prefix if op.end > end or id(op) in past.older}
        refuted = self._questions.refutes(past.model, prefix, context, end)
        if refuted is None:
            raise OutOfBudget("configurations", "too many orders")
        if not refuted:
            return None
        if not self._starts:
            # Now it is known which states are possible as far as this prefix tells.
            states = [*past.model.initial_states(), *self._questions.states]
            core = self._window(position, prefix, list(dict.fromkeys(states)), min(until, self._questions.until))
        return core or Core(past.model, prefix, context, False)

    def _tells(self, operation: Operation) -> bool:
        """Whether the answer says something of the states that the object had while the operation was open."""
        if operation.outcome is not OK:
            return False
        traits = self._past.model.traits
        given = freeze(operation.input)
        looks = traits(Call(operation.function, given, UNKNOWN)) & OBSERVER
        return not looks and not traits(Call(operation.function, given, freeze(operation.output))) & TOTAL

    def _window(self, position: int, prefix: list[Operation], starts: list[Any], until: float) -> Core | None:
        """The last operations of the prefix that are refuted from every one of these states; None for no such few.

        They begin before `until`: the states that the object had later are not all among these.
        """
        past = self._past
        end = past.operations[position].end
        returns = [op.end for op in past.operations[:position] if op.outcome is OK]
        size = _FIRST_WINDOW
        while size < len(returns) and 0 < len(starts) <= STARTS_LIMIT:
            begin = returns[-size]
            size *= _WIDER
            if begin >= until:
                continue
            started = Started(past.model, starts)
            inside = [operation for operation in prefix if operation.end > begin]
            # What was called before the window may have happened before it; then it is in the state it begins with.
            context = {id(op) for op in inside if op.call <= begin or op.end > end}
            if self._questions.refutes(started, inside, context, end):
                return Core(started, inside, context, False)
        return None


def _weaken(core: Core, questions: Questions) -> None:
    """Make as many operations as possible uncertain: in halves, quarters, and at last one by one."""
    sure = [operation for operation in core.operations if id(operation) not in core.context]
    size = max(1, len(sure) // 2)
    while True:
        changed = False
        place = 0
        while place < len(sure):
            attempt = core.context.union(map(id, sure[place : place + size]))
            if questions.refutes(core.model, core.operations, attempt):
                core.context = attempt
                del sure[place : place + size]
                changed = True
            else:
                place += size
        if size == 1 and not changed:
            break
        size = max(1, min(size, len(sure)) // 2)
    looks = {id(op) for op in core.operations if id(op) in core.context and _only_looked(core.model, op)}
    core.operations = [operation for operation in core.operations if id(operation) not in looks]
    core.context -= looks


def _only_looked(model: Model[Any], operation: Operation) -> bool:
    copy = model.uncertain(operation)
    return copy is None or model.traits(Call(copy.function, freeze(copy.input), UNKNOWN)) & OBSERVER != 0


def _drop_context(core: Core, questions: Questions) -> None:
    """Leave out context, as long as each sure operation is still needed without it."""
    if not core.context or _drop(core, set(core.context), questions):
        return
    context = [operation for operation in core.operations if id(operation) in core.context]
    size = max(1, len(context) // 2)
    while size:
        place = 0
        while place < len(context):
            if _drop(core, set(map(id, context[place : place + size])), questions):
                del context[place : place + size]
            else:
                place += size
        size //= 2


def _drop(core: Core, gone: set[int], questions: Questions) -> bool:
    kept = [operation for operation in core.operations if id(operation) not in gone]
    attempt = Core(core.model, kept, core.context - gone, False)
    if not is_minimal(attempt, questions):
        return False
    core.operations, core.context = attempt.operations, attempt.context
    return True


def is_minimal(core: Core, questions: Questions) -> bool:
    """Whether every proper part of the core can be explained."""
    for operation in core.operations:
        if id(operation) in core.context:
            continue
        if questions.refutes(core.model, core.operations, core.context | {id(operation)}) is not False:
            return False
    return True
