"""A register: by its zones, by counting writes, or by search."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import attrgetter

from raftlog.linearizability.checker.budget import Meter, OutOfBudget
from raftlog.linearizability.checker.exact.overwritten import check_overwritten
from raftlog.linearizability.checker.exact.write_counts import check_write_counts
from raftlog.linearizability.checker.exact.zones import NotUnique, ZoneViolation, check_zones
from raftlog.linearizability.checker.history import FAIL, INFO, Key, Operation, TimeUnit, without
from raftlog.linearizability.checker.log.witness import known_at
from raftlog.linearizability.checker.models.register import Register
from raftlog.linearizability.checker.parts.judged import ExactEvidence, JudgedPart
from raftlog.linearizability.checker.parts.part import Evidence
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Witness
from raftlog.linearizability.checker.witness.explanation import tell_zones
from raftlog.linearizability.checker.witness.reduce import STARTS_LIMIT, Core, reduce_found
from raftlog.linearizability.checker.witness.witness import with_words, witness_of

_ZONE_BYTES = 400  # of a value, in three dictionaries
_LONG = 40  # configurations, times processes, an operation: a search that took as many may take for ever

_process = attrgetter("process")


class RegisterPart(JudgedPart):
    """A register: by its zones when all written values differ; else by search, unless an answer has no write left."""

    algorithm = "zones"
    _model: Register

    def _judge(self, meter: Meter) -> Evidence | None:
        meter.check(0, _ZONE_BYTES * len(self._operations))
        judge = partial(check_zones, initial=self._model.initial)
        try:
            found = judge(self._operations)
            way = (("write",), judge, _written_later, tell_zones)
            return None if found is None else ExactEvidence(self._model, self._operations, found, *way)
        except NotUnique:
            self.algorithm = "search"
        answer = check_write_counts(self._operations, self._model.initial)
        return None if answer is None else _ByWriteCounts(self._model, self._operations, answer)


def _written_later(violation: ZoneViolation, operation: Operation) -> ZoneViolation | None:
    if operation.function != "write" or freeze(operation.input) != violation.values[0]:
        return None
    return ZoneViolation("early", violation.values, (operation, *violation.operations))


class _ByWriteCounts:
    """An answer for which no write is left.

    Asked why, the search still looks for the shortest bad prefix. Only where it takes long an answer and what was
    written over it have to do, if there is one such answer.
    """

    def __init__(self, model: Register, operations: Sequence[Operation], answer: Operation) -> None:
        self._model = model
        self._operations = operations
        self._answer = answer

    def end(self) -> int:
        end = known_at(self._answer)
        # It counts, too, that what could have brought the value back was refused.
        refused = [one for one in self._operations if one.function == "cas" and one.output is False and one.call <= end]
        return max(map(known_at, [self._answer, *refused]))

    @property
    def past_is_large(self) -> bool:
        return len({freeze(operation.output) for operation in self._operations}) > STARTS_LIMIT

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
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
        known = [one for one in without(FAIL, self._operations) if one.call <= self._answer.end]
        core = Core(self._model, known, {id(one) for one in known if one.outcome is INFO}, False)
        return witness_of(core, key, self.end(), unit)

    def _searched(self, meter: Meter, *, hurried: bool) -> SearchPart:
        """The search that finds the same, if it does not take long. Raises OutOfBudget."""
        search = SearchPart(self._model, self._operations)
        if hurried:
            processes = len(set(map(_process, self._operations)))
            meter.ceiling = meter.configurations + _LONG * len(self._operations) // max(processes, 1)
        try:
            search.run(meter)
        finally:
            meter.ceiling = None
        return search
