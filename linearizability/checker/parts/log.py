"""A log: exactly; by search only when appends of unknown outcome cannot be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raftlog.linearizability.checker.budget import Meter, OutOfBudget
from raftlog.linearizability.checker.history import Key, Operation, TimeUnit
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.checker.log.gaps import Undecided
from raftlog.linearizability.checker.log.stream import LogViolation
from raftlog.linearizability.checker.log.witness import known_at, log_witness
from raftlog.linearizability.checker.model import validate_all
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.verdict import Status, Witness
from raftlog.linearizability.checker.witness.prefixes import shortest_bad_prefix

_SMALL = 1_000  # operations of a log that is worth a search for a witness when its own may not be the smallest


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
        self._undecided = False  # whether a shorter prefix may be bad and cannot be judged exactly
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
