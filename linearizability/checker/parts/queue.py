"""A queue: by what happened to each value, or by search."""

from __future__ import annotations

from dataclasses import replace

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.exact.fifo import FifoViolation, NotFifo, check_fifo
from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.parts.judged import ExactEvidence, JudgedPart
from raftlog.linearizability.checker.parts.part import Evidence
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.witness.explanation import tell_fifo
from raftlog.linearizability.checker.witness.prefixes import Prefix
from raftlog.linearizability.checker.witness.reduce import Core, Questions, reduce_core

_LIFE_BYTES = 200  # of a value in a queue


class QueuePart(JudgedPart):
    """A queue: by what happened to each value when all differ; else by search."""

    algorithm = "fifo"

    def _judge(self, meter: Meter) -> Evidence | None:
        meter.check(0, _LIFE_BYTES * len(self._operations))
        try:
            violation = check_fifo(self._operations)
        except NotFifo:
            self.algorithm = "search"
            return None
        if violation is None:
            return None
        functions = ("enqueue", "dequeue")
        return _ByValues(self._model, self._operations, violation, functions, check_fifo, _enqueued_later, tell_fifo)


class _ByValues(ExactEvidence[FifoViolation]):
    """What happened to a few values that nothing explains."""

    def reduced(self, prefix: Prefix[FifoViolation], meter: Meter) -> tuple[Core, FifoViolation]:
        """A dequeue that was open at the end and found nothing has removed nothing: what its copy of unknown outcome
        might have done asks for no operation more."""
        core, violation = super().reduced(prefix, meter)
        model, originals = self.model, prefix.originals
        idle = {id(op) for op in core.operations if id(op) in originals and _found_nothing(originals[id(op)])}
        if not idle:
            return core, violation
        kept = [operation for operation in core.operations if id(operation) not in idle]
        core = reduce_core(Core(model, kept, core.context - idle, False), Questions(model, meter))
        copies = [op.of_unknown_outcome() if id(op) in core.context else op for op in core.operations]
        return core, check_fifo(copies) or violation


def _enqueued_later(violation: FifoViolation, operation: Operation) -> FifoViolation | None:
    is_later = operation.function == "enqueue" and operation.call > violation.operations[0].end
    if not is_later or freeze(operation.input) != violation.value:
        return None
    return replace(violation, kind="early", operations=(operation, *violation.operations))


def _found_nothing(operation: Operation) -> bool:
    return operation.function == "dequeue" and operation.output is None
