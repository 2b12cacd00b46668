"""A counter: `add` takes a number (1 when left out) and may answer the new value; `read` answers the value."""

from __future__ import annotations

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.model import OBSERVER, REFUSED, TOTAL, UNKNOWN, Call, Model, Refused, Traits

_LARGEST = 2**1024  # sums of larger ones become too long to be written down


class Counter(Model[int]):
    """A whole number that only grows and shrinks by additions."""

    name = "counter"
    functions = frozenset({"add", "read"})

    def __init__(self, initial: int = 0) -> None:
        self.initial = initial

    def initial_state(self) -> int:
        return self.initial

    def step(self, state: int, call: Call) -> int | Refused:
        if call.function == "add":
            state += 1 if call.input is None else call.input
            return state if call.output is None or call.output is UNKNOWN or call.output == state else REFUSED
        return state if call.output == state or call.output is UNKNOWN else REFUSED

    def traits(self, call: Call) -> Traits:
        if call.function == "read":
            return OBSERVER
        return TOTAL if call.output is None or call.output is UNKNOWN else 0

    def validate(self, operation: Operation) -> None:
        if operation.function == "add" and type(operation.input) not in (int, type(None)):
            raise ValueError(f"add takes a whole number, not {operation.input!r}")
        if operation.function == "add" and operation.input is not None and abs(operation.input) > _LARGEST:
            raise ValueError("add takes a number of at most 1,024 bits")

    def describe_state(self, state: int) -> str:
        return f"stands at {state}"

    def refusal(self, state: int, call: Call) -> str:
        if call.function == "add":
            after = state + (1 if call.input is None else call.input)
            return f"answered {call.output!r}, but the counter stands at {state} and would then stand at {after}"
        return f"answered {call.output!r}, but the counter stands at {state}"
