"""Witnesses for logs: two operations that contradict each other, or one that nothing accounts for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Key, Operation, TimeUnit
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.checker.log.gaps import Undecided
from raftlog.linearizability.checker.log.stream import LogViolation, end_of, same
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.verdict import Placed, PossibleState, Refusal, Witness
from raftlog.linearizability.checker.witness.explanation import capital, tell_log, who

# Two operations contradict each other, whatever else was appended.
_CONTRADICTIONS = ("late", "conflict", "overlap", "inside")


def log_witness(
    model: Log,
    violation: LogViolation,
    operations: Sequence[Operation],
    key: Key,
    unit: TimeUnit,
    *,
    end: int | None = None,
    later: Sequence[Operation] = (),
) -> Witness:
    """The witness of a violation of a log with these operations, which nothing explains from `end` on; those `later`
    have no share in it."""
    violation = with_partner(violation, operations, later)
    contradiction = violation.kind in _CONTRADICTIONS and len(violation.operations) == 2
    judged_by = Log(complete=False) if contradiction else model
    words = tell_log(violation, unit)
    sure = [operation for operation in violation.operations if operation.outcome is not FAIL]
    if violation.kind == "unexplained":
        sure = sure[:1]
    witness = _witness(judged_by, violation, sure, (key, words))
    if violation.kind == "early":
        # What was read is often impossible without the third operation already.
        smaller = _witness(judged_by, violation, sure[1:], (key, words))
        witness = smaller if smaller.minimal else witness
    return witness if end is None else replace(witness, prefix_end=end)


def _witness(model: Log, violation: LogViolation, operations: list[Operation], heading: tuple[Key, str]) -> Witness:
    key, words = heading
    refused, others = _roles(violation, operations)
    length = _length(violation, others)
    order = tuple(Placed(operation, end_of(operation)) for operation in others if operation.outcome is OK)
    possible: tuple[PossibleState, ...] = ()
    if refused is not None:
        why = Refusal(refused, words.removeprefix(f"{capital(who(refused))} ").removesuffix("."))
        possible = (PossibleState(length, model.describe_state(length), order, (why,)),)
    core = sorted(operations, key=lambda operation: (operation.call, operation.index))
    end = max((known_at(operation) for operation in core), default=0)
    context = tuple(operation for operation in core if operation.outcome is INFO)
    last = refused if refused is not None else core[-1]
    witness = Witness(key, tuple(core), last, end, order, possible, words, False, context, model)
    return replace(witness, minimal=_is_minimal(witness))


def known_at(operation: Operation) -> int:
    """When all that can be told of the operation was known."""
    return operation.call if operation.returned is None else operation.returned


def _roles(violation: LogViolation, sure: list[Operation]) -> tuple[Operation | None, list[Operation]]:
    """Which operation is refused, and which others refute it."""
    refused = sure[-1] if violation.kind in ("late", "early", "doubled") else sure[0] if sure else None
    return refused, [operation for operation in sure if operation is not refused]


def _length(violation: LogViolation, others: list[Operation]) -> int:
    known = [end_of(operation) for operation in others if operation.outcome is OK]
    return max(known, default=violation.offset)


def _is_minimal(witness: Witness) -> bool:
    context = {id(operation) for operation in witness.context}
    needed = [operation for operation in witness.operations if id(operation) not in context]
    return _refutes(witness, None) is True and all(_refutes(witness, operation) is False for operation in needed)


def _refutes(witness: Witness, without: Operation | None) -> bool | None:
    try:
        return check_log(witness.alone(without).operations, complete=witness.model.complete) is not None
    except Undecided:
        return None


def with_partner(
    violation: LogViolation, operations: Sequence[Operation], later: Sequence[Operation] = ()
) -> LogViolation:
    """The violation with the second operation that shows it: the check keeps no record of who told it what.

    Of those `later` the append of what nobody had appended before.
    """
    if len(violation.operations) != 1:
        return violation
    one = violation.operations[0]
    offset = violation.offset
    partner = None
    if violation.kind == "conflict":
        partner = _teller_of_another(one, offset, operations)
    elif violation.kind == "overlap":
        first, end = one.output, end_of(one)
        appends = (op for op in operations if _is_append(op) and op is not one and op.input)
        partner = next((op for op in appends if op.output < end and end_of(op) > first), None)
    elif violation.kind == "inside":
        appends = (op for op in operations if _is_append(op) and op.input)
        partner = next((op for op in appends if op.output < offset < end_of(op)), None)
    elif violation.kind == "unexplained":
        record = record_at(one, offset)
        late = [op for op in later if op.function == "append" and op.outcome is not FAIL]
        failed = (op for op in operations if op.function == "append" and op.outcome is FAIL)
        partner = next((op for op in chain(late, failed) if any(same(record, one) for one in op.input)), None)
    return violation if partner is None else replace(violation, operations=(one, partner))


def _is_append(operation: Operation) -> bool:
    return operation.function == "append" and operation.outcome is OK


def _teller_of_another(one: Operation, offset: int, operations: Sequence[Operation]) -> Operation | None:
    record = record_at(one, offset)
    read = None
    for operation in operations:
        if operation is one or operation.outcome is not OK or operation.function == "end":
            continue
        first = operation.output if operation.function == "append" else operation.input
        if first <= offset < end_of(operation) and not same(record_at(operation, offset), record):
            if operation.function == "append":
                return operation
            read = read or operation
    return read


def record_at(operation: Operation, offset: int) -> Any:
    """What the append or read tells of the offset."""
    if operation.function == "append":
        return operation.input[offset - operation.output]
    return operation.output[0][offset - operation.input]
