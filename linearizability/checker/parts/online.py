"""One object of a growing history."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from raftlog.linearizability.checker.budget import Meter, OutOfBudget
from raftlog.linearizability.checker.history import (
    FAIL,
    INFO,
    OK,
    Annotation,
    EventType,
    Key,
    Operation,
    TimeUnit,
    events_of,
    in_order,
)
from raftlog.linearizability.checker.log.gaps import Placing, Undecided, finish
from raftlog.linearizability.checker.log.stream import LogCheck, LogViolation, TooFar
from raftlog.linearizability.checker.log.witness import known_at, log_witness
from raftlog.linearizability.checker.model import Model, validate_all
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.parts.log import LogPart
from raftlog.linearizability.checker.search.frontier import ENTRY_BYTES, NEVER, Frontier
from raftlog.linearizability.checker.search.linearization_step import complete
from raftlog.linearizability.checker.search.operation_table import OperationTable
from raftlog.linearizability.checker.verdict import Status, Witness
from raftlog.linearizability.checker.witness.reduce import Past, Started, reduce
from raftlog.linearizability.checker.witness.witness import lone_words, witness_of

_RECENT = 256  # operations kept for the witness: at least so many, and at most twice as many
_REMEMBERED = 20_000  # records of a log that later reads are compared with
_LEAP = 1 << 20  # offsets by which a log may run ahead
_COMPACT_BYTES = 4 << 20  # of states and calls, before those no longer needed are dropped
_WIDTH = 256  # configurations held or looked at for one return, before unknown outcomes are no longer counted
_ACCOUNT_EVERY = 64  # operations
_FAR_FUTURE = 1 << 64
_OPERATION_BYTES = 400  # with its values, about


class OnlinePart(Protocol):
    """One object. `complete` and `finish` answer False at the first violation and may raise OutOfBudget.

    Operations are validated before they are judged: all methods but `finish` and `witness` may raise NotOfModel.
    """

    algorithm: str
    is_bad: bool

    @property
    def doubt(self) -> str | None:
        """Why the object may be bad although nothing was found."""

    def invoke(self, operation: Operation) -> None:
        """An operation was called."""

    def complete(self, operation: Operation) -> bool:
        """An operation ended, with whatever outcome."""

    def validate(self) -> None:
        """Validate what was not yet, before `finish`."""

    def finish(self) -> bool:
        """No more events will come: what is still open never answered."""

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        """Why the object is bad, from what is remembered."""


class OnlineLog:
    """A log: its check is a stream already."""

    def __init__(self, model: Log, meter: Meter) -> None:
        self.algorithm = "log"
        self.is_bad = False
        self._model = model
        self._functions = model.functions
        self._meter = meter
        self._check = LogCheck(complete=model.complete, remember=_REMEMBERED, leap=_LEAP)
        self._placing = Placing(self._check)
        self._returned: list[Operation] = []
        self._recent: deque[Operation] = deque(maxlen=_RECENT)
        self._open: dict[Operation, None] = {}
        self._ended = 0

    @property
    def doubt(self) -> str | None:
        count = self._check.unchecked
        return f"{count:,} answers told of records that had been forgotten" if count else None

    def invoke(self, operation: Operation) -> None:
        if operation.function not in self._functions:
            validate_all(self._model, (operation,))
        self._open[operation] = None

    def complete(self, operation: Operation) -> bool:
        self._open.pop(operation, None)
        returned = self._returned
        returned.append(operation)
        # A few at a time: the check is quicker at it, and nothing depends on what comes later.
        return True if len(returned) < _ACCOUNT_EVERY else self._judge()

    def _judge(self) -> bool:
        returned, self._returned = self._returned, []
        validate_all(self._model, returned)
        self._ended += len(returned)
        self._recent.extend(returned)
        check = self._check
        try:
            self.is_bad = check.extend(returned) is not None
        except TooFar:
            raise OutOfBudget("memory", "the log leaps ahead by more than a million offsets") from None
        if self.is_bad:
            return False
        if check.unknown and check.waiting:
            validate_all(self._model, self._open)
            self.is_bad = self._placing.place_told(self._open) is not None
        if not self.is_bad:
            self.is_bad = check.forget() is not None
        self._meter.check(0, check.bytes_used + _OPERATION_BYTES * check.waiting_count)
        return not self.is_bad

    def validate(self) -> None:
        validate_all(self._model, [*self._returned, *self._open])

    def finish(self) -> bool:
        if not self._judge():
            return False
        # Of a finished history the answers are there before they are fed.
        opened = [one.of_unknown_outcome() if one.outcome is OK else one for one in self._open]
        self._check.extend([operation for operation in opened if operation.function == "append"])
        try:
            self.is_bad = finish(self._check) is not None
        except Undecided:
            whole = self._whole(opened)
            if whole is None:
                raise OutOfBudget("configurations", "appends of unknown outcome look alike") from None
            self.is_bad = whole.run(self._meter) is Status.INVALID
        return not self.is_bad

    def _whole(self, opened: Iterable[Operation]) -> LogPart | None:
        """The check of a finished history, as long as nothing of this one was forgotten."""
        if self._ended > len(self._recent):
            return None
        return LogPart(self._model, in_order([*self._recent, *opened]))

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        whole = self._whole(self._open)
        try:
            if whole is not None and whole.run(meter) is Status.INVALID:
                return whole.witness(key, unit, meter)
        except OutOfBudget:
            pass
        violation: LogViolation | None = self._check.violation
        assert violation is not None
        return log_witness(self._model, violation, list(self._recent), key, unit)


class OnlineSearch:
    """Any object, by the frontier of the search.

    Invariant: everything called before `_judged_until` has been admitted to the frontier.
    """

    def __init__(self, model: Model[Any], meter: Meter, patience: int) -> None:
        self.algorithm = "search"
        self.is_bad = False
        self._unchecked = 0
        self._model = model
        self._meter = meter
        self._patience = patience
        self._always_valid = model.always_valid()
        self._table = OperationTable(model)
        numbers = dict.fromkeys(self._table.number(state) for state in model.initial_states())
        self._frontier = Frontier(self._table, numbers)
        self._frontier.checkpoint = self._checkpoint
        self._called: deque[Operation] = deque()  # not yet admitted
        self._returned: deque[Operation] = deque()  # not yet judged
        self._ended: set[int] = set()  # of those called
        self._given_up: dict[int, Operation] = {}  # too long open; kept, so that no other gets the identity
        self._bits: dict[int, int] = {}
        self._rank = 0
        self._ranks: dict[int, int] = {}
        self._explored = 0
        self._look_at = _ACCOUNT_EVERY
        self._refused: Operation | None = None
        self._unknown: list[Operation] = []  # of unknown outcome: they may happen at any later time
        # For the witness: what was admitted since a moment, the states then, and the same of a later moment.
        self._past: list[Operation] = []
        self._past_states: tuple[Any, ...] = tuple(model.initial_states())
        self._past_begin = -_FAR_FUTURE
        self._newer: list[Operation] = []
        self._newer_states = self._past_states
        self._newer_begin = -_FAR_FUTURE
        # The states possible at any return since then, as numbers and then as values.
        self._seen: set[int] = set()
        self._past_seen: dict[Any, None] = {}
        self._newer_seen: dict[Any, None] = {}

    @property
    def doubt(self) -> str | None:
        if self._unchecked:
            return f"{self._unchecked:,} answers came so late that they were not judged"
        if self._frontier.reusable:
            return "so many outcomes were unknown that such operations were allowed to happen more than once"
        return None

    def invoke(self, operation: Operation) -> None:
        if operation.function not in self._always_valid:
            validate_all(self._model, (operation,))
        self._called.append(operation)

    def complete(self, operation: Operation) -> bool:
        if operation.outcome is OK and operation.function not in self._always_valid:
            validate_all(self._model, (operation,))
        own = id(operation)
        if own in self._given_up:
            del self._given_up[own]
            self._unchecked += operation.outcome is not INFO
            return True
        self._ended.add(own)
        if operation.outcome is OK:
            self._rank += 1
            self._ranks[own] = self._rank
            self._returned.append(operation)
        assert operation.returned is not None
        return self._judge(operation.returned)

    def validate(self) -> None:
        """Each operation was, when it came."""

    def finish(self) -> bool:
        for operation in self._called:
            own = id(operation)
            if own not in self._ended:
                self._ended.add(own)
                if operation.outcome is OK:  # of a finished history the answers are there before they are fed
                    self._given_up[own] = operation
        return self._judge(_FAR_FUTURE)

    def _judge(self, now: int) -> bool:
        """Judge the returns before now that nothing open can have to do with any more."""
        called, ended, returned = self._called, self._ended, self._returned
        while returned:
            operation = returned[0]
            end = operation.returned
            assert end is not None
            if end >= now:
                break
            while called and called[0].call <= end and id(called[0]) in ended:
                self._admit(called.popleft())
            if called and called[0].call <= end:
                if len(returned) <= self._patience:
                    break
                self._given_up[id(called[0])] = called[0]
                ended.add(id(called[0]))
                continue
            returned.popleft()
            if not complete(self._frontier, self._bits.pop(id(operation)), operation):
                self._refused = operation
                self.is_bad = True
                return False
            self._seen.update(self._frontier.groups)
            self._look_at -= 1
            if not self._look_at:
                self._look_at = _ACCOUNT_EVERY
                self._account(end)
        return True

    def _admit(self, operation: Operation) -> None:
        own = id(operation)
        self._ended.discard(own)
        if own in self._given_up or operation.outcome is not OK:
            if operation.outcome is FAIL and own not in self._given_up:
                return
            transition = self._table.unknown_transition(operation)
            if not transition.observer:
                self._frontier.invoke(transition, NEVER, operation)
                self._unknown.append(operation)
            return
        self._bits[own] = self._frontier.invoke(self._table.transition(operation), self._ranks.pop(own), operation)
        self._past.append(operation)
        self._newer.append(operation)

    def _account(self, now: int) -> None:
        self._see()
        if len(self._newer) >= _RECENT:
            self._past, self._past_states, self._past_begin = self._newer, self._newer_states, self._newer_begin
            self._past_seen, self._newer_seen = self._newer_seen, {}
            # What is open now may happen later, and belongs to the past of both.
            self._newer = [operation for operation in self._past if id(operation) in self._bits]
            states = self._table.states
            self._newer_states = tuple(states[number] for number in self._frontier.groups)
            self._newer_begin = now
        frontier = self._frontier
        if frontier.has_pending and not frontier.reusable:
            effort = max(frontier.size() * _ACCOUNT_EVERY, frontier.explored - self._explored)
            if effort > _ACCOUNT_EVERY * _WIDTH:
                frontier.relax()
        if self._table.bytes_used > _COMPACT_BYTES:
            frontier.compact()
        self._checkpoint(frontier.size())

    def _checkpoint(self, configurations: int) -> None:
        frontier = self._frontier
        waiting = len(self._called) + len(self._returned) + len(self._past) + len(self._unknown)
        held = self._table.bytes_used + configurations * ENTRY_BYTES + waiting * _OPERATION_BYTES
        spent = frontier.explored - self._explored
        self._explored = frontier.explored
        self._meter.check(spent, held)

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        refused = self._refused
        assert refused is not None and refused.returned is not None
        # Those not admitted may explain what others answered that were open then, too.
        waiting = [operation for operation in self._called if operation.outcome is not FAIL]
        known = {id(operation): operation for operation in (*self._unknown, *self._past, *waiting)}
        remembered = list(known.values())
        # What was called before the past begins may have happened before it, and then is in the states it begins with.
        begin = self._past_begin
        older = frozenset(id(op) for op in remembered if op.call <= begin and op is not refused)
        self._see()
        operations = in_order(remembered)
        past = Past(
            Started(self._model, self._past_states), operations, [*self._past_seen, *self._newer_seen], True, older
        )
        position = next(place for place, operation in enumerate(operations) if operation is refused)
        position, core = reduce(past, position, meter)
        return witness_of(core, key, known_at(operations[position]), unit, lone_words(core, operations))

    def _see(self) -> None:
        """Note the states by value: their numbers change when the table forgets."""
        states = self._table.states
        self._newer_seen.update(dict.fromkeys(states[number] for number in sorted(self._seen)))
        self._seen.clear()


def witness_as_it_grew(
    model: Model[Any], operations: Sequence[Operation], key: Key, unit: TimeUnit, meter: Meter
) -> Witness | None:
    """Why a finished part is bad, from what was remembered when that became certain; None when it did not.

    The states that it then had are few, however many there were in all its past. `operations` lie in the order of a
    History.
    """
    part = OnlineSearch(model, meter, len(operations))
    try:
        for kind, operation in events_of(operations):
            if isinstance(operation, Annotation):
                continue
            if kind is EventType.INVOKE:
                part.invoke(operation)
            elif not part.complete(operation):
                return part.witness(key, unit, meter)
        return None if part.finish() else part.witness(key, unit, meter)
    except OutOfBudget:
        return None
