"""How one part is checked: which algorithm applies to which model and history."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, Protocol

from raftlog.linearizability.checker.budget import Meter, OutOfBudget
from raftlog.linearizability.checker.exact.elements import ElementViolation, check_elements
from raftlog.linearizability.checker.exact.fifo import FifoViolation, NotFifo, check_fifo
from raftlog.linearizability.checker.exact.overwritten import check_overwritten
from raftlog.linearizability.checker.exact.write_counts import check_write_counts
from raftlog.linearizability.checker.exact.zones import NotUnique, ZoneViolation, check_zones
from raftlog.linearizability.checker.history import FAIL, INFO, OK, Key, Operation, TimeUnit, without
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.checker.log.gaps import Undecided
from raftlog.linearizability.checker.log.stream import LogViolation
from raftlog.linearizability.checker.log.witness import known_at, log_witness
from raftlog.linearizability.checker.model import Model, validate_all
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.models.sets import NumberedSet, OneElement, Set
from raftlog.linearizability.checker.search.search import Search
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Status, Witness
from raftlog.linearizability.checker.witness.prefixes import Prefix, bad_prefix, shortest_bad_prefix
from raftlog.linearizability.checker.witness.reduce import (
    STARTS_LIMIT,
    Core,
    Past,
    Questions,
    reduce,
    reduce_core,
    reduce_found,
)
from raftlog.linearizability.checker.witness.witness import lone_words, with_words, witness_of
from raftlog.linearizability.checker.witness.words import tell_fifo, tell_zones

_ZONE_BYTES = 400  # of a value, in three dictionaries
_LONG = 40  # configurations, times processes, an operation: a search that took as many may take for ever
_ENOUGH = 5_000  # configurations of such a search, at a set
_LIFE_BYTES = 200  # of a value in a queue
_SMALL = 1_000  # operations of a log or set that is worth a search for a witness when its own may not be the smallest

_process = attrgetter("process")
_VALID, _INVALID = Status.VALID, Status.INVALID  # to ask the class takes half a microsecond


class PartCheck(Protocol):
    """One part under check. `run` may be called again after OutOfBudget; `witness` once it answered INVALID."""

    algorithm: str

    @property
    def configurations(self) -> int:
        """How many were looked at."""

    @property
    def past_is_large(self) -> bool:
        """Whether so many states came up, or so little is known of them, that a long past cannot be cut off."""

    def run(self, meter: Meter) -> Status:
        """Answers VALID or INVALID, or raises OutOfBudget."""

    def end(self) -> int:
        """The return by which the violation is certain; orders the bad parts by how little of them is needed."""

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        """Why the part is invalid."""


def part_check(model: Model[Any], operations: Sequence[Operation]) -> PartCheck:
    """The check for the operations of one part, in the order of a History."""
    # A subclass may promise something else, so only the models themselves have short cuts.
    if type(model) is Log:
        return LogPart(model, operations)
    if type(model) is Register or type(model) is CasRegister:
        return RegisterPart(model, operations)
    if type(model) is Set or type(model) is NumberedSet:
        return SetPart(model, operations)
    if type(model) is Queue:
        return QueuePart(model, operations)
    return SearchPart(model, operations)


def validates_itself(model: Model[Any]) -> bool:
    """Whether the parts of this model validate what they look at, so that nobody need look at all of it before."""
    return type(model) is Log


class SearchPart:
    """Any model, by search."""

    def __init__(self, model: Model[Any], operations: Sequence[Operation]) -> None:
        self.algorithm = "search"
        self._model = model
        self._operations = without(FAIL, operations)
        self._search: Search | None = None

    @property
    def configurations(self) -> int:
        return 0 if self._search is None else self._search.explored

    @property
    def past_is_large(self) -> bool:
        search = self._search
        return search is not None and (search.table.killed or len(search.table.states) > STARTS_LIMIT)

    def run(self, meter: Meter) -> Status:
        if self._search is None:
            self._search = Search(self._model, self._operations)
        return self._search.run(meter)

    def end(self) -> int:
        assert self._search is not None
        end = self._operations[self._search.refused].returned
        assert end is not None
        return end

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        search = self._search
        assert search is not None
        # A state that was refused because of what comes later is missing among those the object may have had.
        states = () if search.table.killed else search.table.states
        past = Past(self._model, self._operations, states, not search.may_be_inexact)
        position, core = reduce(past, search.refused, meter)
        end = self._operations[position].returned
        assert end is not None
        return witness_of(core, key, end, unit, lone_words(core, self._operations))


class SetPart(SearchPart):
    """A set that is read whole: by search, unless some answer is wrong for one element alone."""

    def __init__(self, model: Model[Any], operations: Sequence[Operation]) -> None:
        super().__init__(model, operations)
        self._violation: ElementViolation | None = None
        self._looked = False

    def run(self, meter: Meter) -> Status:
        if not self._looked:
            self._looked = True
            self._violation = check_elements(self._operations)
        return super().run(meter) if self._violation is None else Status.INVALID

    def end(self) -> int:
        return super().end() if self._violation is None else known_at(self._violation.read)

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        violation = self._violation
        if violation is None:
            return super().witness(key, unit, meter)
        if len(self._operations) <= _SMALL:
            meter.ceiling = meter.configurations + _ENOUGH
            try:
                super().run(meter)  # something else may have been wrong before
                return super().witness(key, unit, meter)
            except OutOfBudget:
                pass
            finally:
                meter.ceiling = None
        end = self.end()
        known = [one for one in violation.operations if one.end <= end or (one.call <= end and one.outcome is INFO)]
        core = reduce_found(OneElement(violation.element), known, meter)
        return witness_of(core, key, end, unit)


class _JudgedPart:
    """A part that is judged exactly where its values allow it, else by search: it has a violation, a search, or both,
    when the search shall tell of the violation."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._violation: ZoneViolation | FifoViolation | None = None
        self._search: SearchPart | None = None

    @property
    def configurations(self) -> int:
        return 0 if self._search is None else self._search.configurations

    @property
    def past_is_large(self) -> bool:
        return self._search is not None and self._search.past_is_large

    def end(self) -> int:
        if self._violation is None:
            assert self._search is not None
            return self._search.end()
        return max(map(known_at, self._violation.operations))


class RegisterPart(_JudgedPart):
    """A register: by its zones when all written values differ; else by search, unless some value came back more often
    than it was written.

    Such a value settles the verdict at once. Asked why, the search still looks for the shortest bad beginning. Only
    where it takes long an answer and what was written over it have to do, if there is one such answer.
    """

    def __init__(self, model: Register, operations: Sequence[Operation]) -> None:
        self.algorithm = "zones"
        super().__init__(operations)
        self._model = model
        self._violation: ZoneViolation | None = None
        self._unexplained: Operation | None = None  # an answer for which no write is left

    def run(self, meter: Meter) -> Status:
        if self._search is None:
            meter.check(0, _ZONE_BYTES * len(self._operations))
            try:
                self._violation = check_zones(self._operations, self._model.initial)
                return _VALID if self._violation is None else _INVALID
            except NotUnique:
                self.algorithm = "search"
            self._unexplained = check_write_counts(self._operations, self._model.initial)
            if self._unexplained is not None:
                return _INVALID
            self._search = SearchPart(self._model, self._operations)
        return self._search.run(meter)

    def end(self) -> int:
        if self._unexplained is None:
            return super().end()
        end = known_at(self._unexplained)
        # It counts, too, that what could have brought the value back was refused.
        refused = [one for one in self._operations if one.function == "cas" and one.output is False and one.call <= end]
        return max(map(known_at, [self._unexplained, *refused]))

    @property
    def past_is_large(self) -> bool:
        if self._unexplained is None:
            return super().past_is_large
        return len({freeze(operation.output) for operation in self._operations}) > STARTS_LIMIT

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        if self._unexplained is not None:
            return self._witness_of_unexplained(self._unexplained, key, unit, meter)
        violation = self._violation
        if violation is None:
            assert self._search is not None
            return self._search.witness(key, unit, meter)
        prefix = self._prefix(meter)
        if prefix is None:
            core = reduce_found(self._model, violation.operations, meter)
            return witness_of(core, key, self.end(), unit, tell_zones(violation, unit))
        core = reduce_found(self._model, prefix.violation.operations, meter)
        words = tell_zones(self._later(prefix.violation), unit)
        return prefix.witness_of_originals(witness_of(core, key, prefix.end, unit, words))

    def _witness_of_unexplained(self, answer: Operation, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        violation = check_overwritten(self._operations, self._model.initial)
        try:
            found = self._searched(meter, hurried=violation is not None).witness(key, unit, meter)
            if violation is not None and violation.kind == "unwritten" and found.operations == violation.operations:
                return with_words(found, tell_zones(violation, unit))
            return found
        except OutOfBudget:
            pass
        if violation is not None:
            core = reduce_found(self._model, violation.operations, meter)
            end = max(map(known_at, violation.operations))
            return witness_of(core, key, end, unit, tell_zones(violation, unit))
        known = [one for one in without(FAIL, self._operations) if one.call <= answer.end]
        core = Core(self._model, known, {id(one) for one in known if one.outcome is INFO}, False)
        return witness_of(core, key, self.end(), unit)

    def _prefix(self, meter: Meter) -> Prefix[ZoneViolation] | None:
        def judge(operations: list[Operation]) -> ZoneViolation | None:
            return check_zones(operations, self._model.initial)

        return shortest_bad_prefix(self._operations, ("write",), self.end(), judge, meter)

    def _later(self, violation: ZoneViolation) -> ZoneViolation:
        """The violation, and of a value that nobody had written by then the write that came later."""
        if violation.kind == "unwritten":
            for operation in self._operations:
                if operation.function == "write" and freeze(operation.input) == violation.values[0]:
                    return ZoneViolation("early", violation.values, (operation, *violation.operations))
        return violation

    def _searched(self, meter: Meter, *, hurried: bool) -> SearchPart:
        """The search that finds the same, if it does not take long. Raises OutOfBudget."""
        search = self._search = SearchPart(self._model, self._operations)
        if hurried:
            processes = len(set(map(_process, self._operations)))
            meter.ceiling = meter.configurations + _LONG * len(self._operations) // max(processes, 1)
        try:
            search.run(meter)
        finally:
            meter.ceiling = None
        return search


class QueuePart(_JudgedPart):
    """A queue: by what happened to each value when all differ; else by search."""

    def __init__(self, model: Queue, operations: Sequence[Operation]) -> None:
        self.algorithm = "fifo"
        super().__init__(operations)
        self._model = model
        self._violation: FifoViolation | None = None

    def run(self, meter: Meter) -> Status:
        if self._search is None:
            meter.check(0, _LIFE_BYTES * len(self._operations))
            try:
                self._violation = check_fifo(self._operations)
                return Status.VALID if self._violation is None else Status.INVALID
            except NotFifo:
                self.algorithm = "search"
                self._search = SearchPart(self._model, self._operations)
        return self._search.run(meter)

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        violation = self._violation
        if violation is None:
            assert self._search is not None
            return self._search.witness(key, unit, meter)
        prefix = shortest_bad_prefix(self._operations, ("enqueue", "dequeue"), self.end(), check_fifo, meter)
        if prefix is None:
            core = reduce_found(self._model, violation.operations, meter)
            return witness_of(core, key, self.end(), unit, tell_fifo(violation, unit))
        core, violation = self._reduced(prefix, meter)
        words = tell_fifo(self._later(violation), unit)
        return prefix.witness_of_originals(witness_of(core, key, prefix.end, unit, words))

    def _reduced(self, prefix: Prefix[FifoViolation], meter: Meter) -> tuple[Core, FifoViolation]:
        """The core and what is wrong with it. A dequeue that was open at the end and found nothing has removed nothing:
        what its copy of unknown outcome might have done asks for no operation more."""
        model, originals, violation = self._model, prefix.originals, prefix.violation
        core = reduce_found(model, violation.operations, meter)
        idle = {id(op) for op in core.operations if id(op) in originals and _found_nothing(originals[id(op)])}
        if not idle:
            return core, violation
        kept = [operation for operation in core.operations if id(operation) not in idle]
        core = reduce_core(Core(model, kept, core.context - idle, False), Questions(model, meter))
        copies = [op.of_unknown_outcome() if id(op) in core.context else op for op in core.operations]
        return core, check_fifo(copies) or violation

    def _later(self, violation: FifoViolation) -> FifoViolation:
        """The violation, and of a value that nobody had enqueued by then the enqueue that came later."""
        if violation.kind == "unwritten":
            for operation in self._operations:
                is_later = operation.function == "enqueue" and operation.call > violation.operations[0].end
                if is_later and freeze(operation.input) == violation.value:
                    return replace(violation, kind="early", operations=(operation, *violation.operations))
        return violation


def _found_nothing(operation: Operation) -> bool:
    return operation.function == "dequeue" and operation.output is None


class LogPart:
    """A log: exactly; by search only when appends of unknown outcome cannot be told apart.

    `run` raises NotOfModel for an operation that is none of a log's. When it answers VALID, all were validated.
    """

    def __init__(self, model: Log, operations: Sequence[Operation]) -> None:
        self.algorithm = "log"
        self.configurations = 0
        self._model = model
        self._operations = operations
        self._violation: LogViolation | None = None
        self._undecided = False  # whether a shorter beginning may be bad and cannot be judged exactly
        self._search: SearchPart | None = None

    @property
    def past_is_large(self) -> bool:
        return self._search is not None and self._search.past_is_large

    def run(self, meter: Meter) -> Status:
        if self._search is None:
            try:
                self._violation = check_log(
                    self._operations,
                    complete=self._model.complete,
                    validate=lambda operations: validate_all(self._model, operations),
                    account=lambda held: meter.check(0, held),
                )
                return Status.VALID if self._violation is None else Status.INVALID
            except Undecided:
                self.algorithm = "search"
                self._search = SearchPart(self._model, self._operations)
        try:
            return self._search.run(meter)
        finally:
            self.configurations = self._search.configurations

    def end(self) -> int:
        if self._search is not None:
            return self._search.end()
        assert self._violation is not None
        return max(map(known_at, self._violation.operations), default=0)

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        if self._search is not None:
            return self._search.witness(key, unit, meter)
        assert self._violation is not None
        witness = self._witness(self._violation, key, unit, meter)
        exact = witness.minimal and not self._undecided
        if exact or len(self._operations) > _SMALL or not self._model.complete:
            return witness
        smaller = SearchPart(self._model, self._operations)
        try:
            found = smaller.run(meter) is Status.INVALID and smaller.witness(key, unit, meter)
        except OutOfBudget:
            return witness
        if not found or not found.minimal:
            return witness
        if found.prefix_end < witness.prefix_end:
            return found
        return witness if witness.minimal else replace(found, words=f"{witness.words} {found.words}")

    def _witness(self, violation: LogViolation, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        def judge(operations: list[Operation]) -> LogViolation | None:
            try:
                return check_log(operations, complete=self._model.complete)
            except Undecided:
                self._undecided = True
                return None

        prefix = shortest_bad_prefix(self._operations, ("append",), self.end(), judge, meter)
        if prefix is None:
            return log_witness(self._model, violation, self._operations, key, unit)
        end = prefix.end
        later = [operation for operation in self._operations if operation.call > end]
        witness = log_witness(
            self._model, prefix.violation, prefix.operations, key, unit, end=end, later=later
        )
        return prefix.witness_of_originals(witness)


class PrefixPart:
    """A part of which no more was judged than a beginning, and that is bad."""

    def __init__(self, prefix: Prefix[PartCheck]) -> None:
        self._prefix = prefix
        self._check = prefix.violation
        self.algorithm = self._check.algorithm

    @property
    def configurations(self) -> int:
        return self._check.configurations

    @property
    def past_is_large(self) -> bool:
        return self._check.past_is_large

    def run(self, meter: Meter) -> Status:
        return Status.INVALID

    def end(self) -> int:
        return self._check.end()

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        return self._prefix.witness_of_originals(self._check.witness(key, unit, meter))


def bad_before(model: Model[Any], operations: Sequence[Operation], end: int, meter: Meter) -> PrefixPart | None:
    """The part's beginning until just before that time, if nothing explains it. Raises OutOfBudget."""

    def without_answer(operation: Operation) -> Operation:
        return model.uncertain(operation) or operation.of_unknown_outcome()

    def judge(known: list[Operation]) -> PartCheck | None:
        if not any(operation.outcome is OK for operation in known):
            return None
        checked = part_check(model, known)
        return checked if checked.run(meter) is Status.INVALID else None

    meter.check(0, 0)
    prefix = bad_prefix(operations, end - 1, without_answer, judge)
    return None if prefix is None else PrefixPart(prefix)
