"""Bad prefixes of a part: one that is bad at a moment, and the shortest of a part that is judged without a search."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from raftlog.linearizability.checker.budget import Meter, OutOfBudget
from raftlog.linearizability.checker.history import OK, Operation
from raftlog.linearizability.checker.verdict import Placed, PossibleState, Refusal, Witness

Violation = TypeVar("Violation")


@dataclass(frozen=True, slots=True)
class Prefix(Generic[Violation]):
    """What was known at the time `end`, and what is wrong with it.

    `operations` lie in the order of a History. Of those that ended later they have copies of unknown outcome, and
    none at all if they only look; `originals` goes back, by the identities of the copies.
    """

    end: int
    operations: list[Operation]
    originals: dict[int, Operation]
    violation: Violation

    def witness_of_originals(self, witness: Witness) -> Witness:
        """The witness with the operations of the history in the places of their copies."""
        if not self.originals:
            return witness

        def restored(operation: Operation) -> Operation:
            return self.originals.get(id(operation), operation)

        def order(steps: tuple[Placed, ...]) -> tuple[Placed, ...]:
            return tuple(Placed(restored(step.operation), step.state) for step in steps)

        def possible(one: PossibleState) -> PossibleState:
            refusals = tuple(Refusal(restored(refusal.operation), refusal.reason) for refusal in one.refusals)
            return replace(one, linearization=order(one.linearization), refusals=refusals)

        return replace(
            witness,
            operations=tuple(map(restored, witness.operations)),
            refused=restored(witness.refused),
            linearization=order(witness.linearization),
            possible=tuple(map(possible, witness.possible)),
            context=tuple(map(restored, witness.context)),
        )


def shortest_bad_prefix(
    operations: Sequence[Operation],
    changing: Collection[str],
    hint: int,
    judge: Callable[[list[Operation]], Violation | None],
    meter: Meter,
) -> Prefix[Violation] | None:
    """The prefix of these operations, in the order of a History, up to the first return that nothing explains.

    `changing` are the functions that do not only look, `hint` a time near that return, and `judge` says what is wrong
    with a prefix. When the budget ends early, the prefix is one that is longer; None when none was found.
    """

    def without_answer(operation: Operation) -> Operation | None:
        return operation.of_unknown_outcome() if operation.function in changing else None

    ends = sorted({operation.end for operation in operations if operation.outcome is OK})
    low, high = -1, min(bisect_left(ends, hint), len(ends) - 1)
    step = 1
    found: Prefix[Violation] | None = None
    try:
        while found is None and high < len(ends):
            found = bad_prefix(operations, ends[high], without_answer, judge)
            if found is None:
                meter.check(0, 0)
                low, high, step = high, min(high + step, max(high + 1, len(ends) - 1)), 2 * step
        step = 1
        while found is not None and high - low > 1:
            meter.check(0, 0)
            middle = max(high - step, (low + high) // 2)
            shorter = bad_prefix(operations, ends[middle], without_answer, judge)
            if shorter is None:
                low = middle
            else:
                found, high, step = shorter, middle, 2 * step
    except OutOfBudget:
        pass
    return found


def bad_prefix(
    operations: Sequence[Operation],
    end: float,
    without_answer: Callable[[Operation], Operation | None],
    judge: Callable[[list[Operation]], Violation | None],
) -> Prefix[Violation] | None:
    """What was known of these operations, in the order of a History, at the time `end`, if something is wrong with it.

    `without_answer` makes of an operation that ended later a copy of unknown outcome, or None if it only looked.
    """
    known: list[Operation] = []
    copies: list[Operation] = []
    originals: dict[int, Operation] = {}
    for operation in operations:
        if operation.call > end:
            continue
        if operation.outcome is not OK or operation.end <= end:
            known.append(operation)
            continue
        copy = without_answer(operation)
        if copy is not None:
            copies.append(copy)
            originals[id(copy)] = operation
    known += copies
    violation = judge(known)
    return None if violation is None else Prefix(int(end), known, originals, violation)
