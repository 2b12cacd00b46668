"""The check of a whole log, whatever its offsets are.

The check keeps something for every offset up to the greatest, so a log with offsets far apart is made dense first.

Of a complete log every offset must have its append. Offsets that nobody tells of can only be filled by appends of
unknown outcome, so once more of them are empty than such appends have records, nothing depends on how many more.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from raftlog.linearizability.checker.history import FAIL, INFO, OK, Operation
from raftlog.linearizability.checker.log.gaps import finish
from raftlog.linearizability.checker.log.stream import LogCheck, LogViolation, TooFar, end_of

_STRETCH = 1024  # operations between two looks at the budget
_COPY_BYTES = 300  # of an operation
_ANY = 1 << 62


def check_log(
    operations: Sequence[Operation],
    *,
    complete: bool,
    validate: Callable[[Sequence[Operation]], None] | None = None,
    account: Callable[[int], None] | None = None,
) -> LogViolation | None:
    """The first violation found in the operations of one log, in the order of a History; None when there is none.

    `validate` is handed operations that are looked at next, and may raise; after a violation the others are not.
    `account` is told the bytes held from time to time and may raise. Raises Undecided.
    """
    validate, account = validate or _ignore, account or _ignore
    try:
        return _check(LogCheck(complete=complete), operations, validate, account)
    except TooFar:
        validate(operations)
        copies = _COPY_BYTES * len(operations)
        account(copies)
        dense = DenseLog(operations, complete=complete)
        check = LogCheck(complete=complete, leap=_ANY)
        violation = _check(check, dense.operations, _ignore, lambda held: account(held + copies))
        return None if violation is None else dense.original(violation)


def _ignore(_: Any) -> None:
    pass


def _check(
    check: LogCheck,
    operations: Sequence[Operation],
    validate: Callable[[Sequence[Operation]], None],
    account: Callable[[int], None],
) -> LogViolation | None:
    for begin in range(0, len(operations), _STRETCH):
        # Both in one go: it takes longest to fetch the operations from memory.
        stretch = operations[begin : begin + _STRETCH]
        validate(stretch)
        if check.extend(stretch) is not None:
            return check.violation
        account(check.bytes_used)
    return finish(check)


class DenseLog:
    """Copies of operations on a log in which no long stretch of offsets is untold; `original` goes back."""

    def __init__(self, operations: Sequence[Operation], *, complete: bool) -> None:
        self._originals: dict[int, Operation] = {}
        self._begins: list[int] = []  # of the stretches that are told of, ascending
        self._shifts: list[int] = []  # how far each moved down
        spare = sum(len(op.input) for op in operations if op.outcome is INFO and op.function == "append")
        self._lay_out(_stretches(operations), spare + 1 if complete else 1)
        self.operations = [self._moved(operation) for operation in operations if operation.outcome is not FAIL]

    def _lay_out(self, stretches: Iterable[tuple[int, int]], room: int) -> None:
        reached = shift = 0
        for begin, end in stretches:
            kept = max(1, min(begin - reached, room)) if begin > reached else 0
            room -= kept
            shift += begin - reached - kept
            self._begins.append(begin)
            self._shifts.append(shift)
            reached = end

    def _moved(self, operation: Operation) -> Operation:
        if operation.outcome is not OK:
            copy = replace(operation)
        elif operation.function == "read":
            copy = replace(operation, input=self._down(operation.input))
        else:
            copy = replace(operation, output=self._down(operation.output))
        self._originals[id(copy)] = operation
        return copy

    def _down(self, offset: int) -> int:
        return offset - self._shifts[bisect_right(self._begins, offset) - 1]

    def original(self, violation: LogViolation) -> LogViolation:
        """The violation of these operations as one of those they were made from."""
        operations = tuple(self._originals[id(operation)] for operation in violation.operations)
        told = [begin - shift for begin, shift in zip(self._begins, self._shifts, strict=True)]
        place = bisect_right(told, violation.offset) - 1
        shift = self._shifts[place] if place >= 0 else 0
        return replace(violation, offset=violation.offset + shift, operations=operations)


def _stretches(operations: Iterable[Operation]) -> list[tuple[int, int]]:
    """The offsets that somebody tells of, ends included, in stretches that do not touch."""
    told = sorted({_told(operation) for operation in operations if operation.outcome is OK} | {(0, 0)})
    stretches: list[tuple[int, int]] = []
    for begin, end in told:
        if stretches and begin <= stretches[-1][1]:
            stretches[-1] = (stretches[-1][0], max(end, stretches[-1][1]))
        else:
            stretches.append((begin, end))
    return stretches


def _told(operation: Operation) -> tuple[int, int]:
    return (operation.input if operation.function == "read" else operation.output), end_of(operation)
