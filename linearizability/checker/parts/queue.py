"""A queue: by what happened to each value, or by search."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.exact.fifo import FifoViolation, NotFifo, check_fifo
from raftlog.linearizability.checker.history import Key, Operation, TimeUnit
from raftlog.linearizability.checker.log.witness import known_at
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.parts.judged import Evidence, JudgedPart
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Witness
from raftlog.linearizability.checker.witness.prefixes import Prefix, shortest_bad_prefix
from raftlog.linearizability.checker.witness.reduce import (
    Core,
    Questions,
    reduce_core,
    reduce_found,
)
from raftlog.linearizability.checker.witness.witness import witness_of
from raftlog.linearizability.checker.witness.words import tell_fifo

_LIFE_BYTES = 200  # of a value in a queue


class QueuePart(JudgedPart):
    """A queue: by what happened to each value when all differ; else by search."""

    def __init__(self, model: Queue, operations: Sequence[Operation]) -> None:
        super().__init__("fifo")
        self._model = model
        self._operations = operations

    def _judge(self, meter: Meter) -> Evidence | None:
        meter.check(0, _LIFE_BYTES * len(self._operations))
        try:
            violation = check_fifo(self._operations)
            return None if violation is None else _ByValues(self._model, self._operations, violation)
        except NotFifo:
            self.algorithm = "search"
            return None

    def _searched(self) -> SearchPart:
        return SearchPart(self._model, self._operations)


class _ByValues:
    """What happened to a few values that nothing explains."""

    past_is_large = False

    def __init__(self, model: Queue, operations: Sequence[Operation], violation: FifoViolation) -> None:
        self._model = model
        self._operations = operations
        self._violation = violation

    def end(self) -> int:
        return max(map(known_at, self._violation.operations))

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        prefix = shortest_bad_prefix(self._operations, ("enqueue", "dequeue"), self.end(), check_fifo, meter)
        if prefix is None:
            core = reduce_found(self._model, self._violation.operations, meter)
            return witness_of(core, key, self.end(), unit, tell_fifo(self._violation, unit))
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
