"""The definition of linearizability, tried out literally: slow, short, and shared by no code of the checker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.history import Operation, Outcome
from raftlog.linearizability.checker.model import REFUSED, UNKNOWN, Call, Model
from raftlog.linearizability.checker.values import freeze


def is_linearizable(model: Model[Any], operations: Sequence[Operation]) -> bool:
    """Whether some order of the operations, a part of them left out if unknown, explains every answer."""
    ops = [operation for operation in operations if operation.outcome is not Outcome.FAIL]
    calls = []
    for op in ops:
        output = op.output if op.outcome is Outcome.OK else UNKNOWN
        calls.append(Call(op.function, freeze(op.input), freeze(output)))
    certain = sum(1 << place for place, op in enumerate(ops) if op.outcome is Outcome.OK)
    tried: set[tuple[int, Any]] = set()

    def place_next(placed: int, state: Any) -> bool:
        if placed & certain == certain:
            return True
        if (placed, state) in tried:
            return False
        tried.add((placed, state))
        bound = min(op.end for place, op in enumerate(ops) if not placed >> place & 1)
        for place, op in enumerate(ops):
            if placed >> place & 1 or op.call > bound:
                continue
            after = model.step(state, calls[place])
            if after is not REFUSED and place_next(placed | 1 << place, after):
                return True
        return False

    return any(place_next(0, state) for state in model.initial_states())
