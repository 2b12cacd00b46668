"""A set that is read whole: by search, unless some answer is wrong for one element alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.budget import Meter, OutOfBudget
from raftlog.linearizability.checker.exact.elements import ElementViolation, check_elements
from raftlog.linearizability.checker.history import INFO, Key, Operation, TimeUnit
from raftlog.linearizability.checker.log.witness import known_at
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.sets import OneElement
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.verdict import Status, Witness
from raftlog.linearizability.checker.witness.reduce import reduce_found
from raftlog.linearizability.checker.witness.witness import witness_of

_ENOUGH = 5_000  # configurations of a search for a witness that may have taken for ever
_SMALL = 1_000  # operations of a set that is worth a search for a witness when its own may not be the smallest


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
