"""Registers: one value, read and written whole, with or without compare-and-set.

Functions: `read` answers the value; `write` takes it; `cas` takes `[expected, new]` and answers whether it was
applied, where null says that it was. A register nobody has written holds None (JSON null).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.history import OK, Operation
from raftlog.linearizability.checker.model import (
    CONSTANT,
    OBSERVER,
    REFUSED,
    TOTAL,
    UNKNOWN,
    UNSEEN,
    Call,
    Model,
    Outlook,
    Refused,
    Traits,
    looks_at,
)
from raftlog.linearizability.checker.values import freeze

_WRITE = TOTAL | CONSTANT
_SEQUENCES = (list, tuple)
_ANSWERS = (bool, type(None))


class Register(Model[Any]):
    """A register with reads and writes."""

    name = "register"
    functions = frozenset({"read", "write"})

    def __init__(self, initial: Any = None) -> None:
        self.initial = freeze(initial)

    def initial_state(self) -> Any:
        return self.initial

    def step(self, state: Any, call: Call) -> Any | Refused:
        if call.function == "write":
            return call.input
        return state if call.output == state or call.output is UNKNOWN else REFUSED

    def traits(self, call: Call) -> Traits:
        return OBSERVER if call.function == "read" else _WRITE

    def outlook(self, calls: Sequence[Call], operations: Sequence[Operation]) -> Outlook | None:
        """A value that nobody reads is like any other that nobody reads."""
        seen = {output for function, _, output in calls if function == "read"}
        return lambda state: state if state in seen else UNSEEN

    def describe_state(self, state: Any) -> str:
        return f"holds {state!r}"

    def refusal(self, state: Any, call: Call) -> str:
        return f"answered {call.output!r}, but the register holds {state!r}"


class CasRegister(Register):
    """A register with reads, writes and compare-and-set."""

    name = "cas-register"
    functions = frozenset({"read", "write", "cas"})

    def step(self, state: Any, call: Call) -> Any | Refused:
        function, given, output = call
        if function == "read":
            return state if output == state or output is UNKNOWN else REFUSED
        if function == "write":
            return given
        expected, new = given
        if output is False:
            return state if state != expected else REFUSED
        return new if state == expected else REFUSED

    def traits(self, call: Call) -> Traits:
        function, _, output = call
        if function == "write":
            return _WRITE
        return OBSERVER if function == "read" or output is False else 0

    def outlook(self, calls: Sequence[Call], operations: Sequence[Operation]) -> Outlook | None:
        """A value that nobody reads and no compare-and-set expects is like any other such value."""
        seen = {given[0] if function == "cas" else output for function, given, output in calls if function != "write"}
        return lambda state: state if state in seen else UNSEEN

    @looks_at("cas")
    def validate(self, operation: Operation) -> None:
        if operation.function != "cas":
            return
        given = operation.input
        if not isinstance(given, _SEQUENCES) or len(given) != 2:
            raise ValueError(f"cas takes [expected, new], not {given!r}")
        if operation.outcome is OK and type(operation.output) not in _ANSWERS:
            raise ValueError(f"cas answers true (as null does) or false, not {operation.output!r}")

    def refusal(self, state: Any, call: Call) -> str:
        if call.function == "read":
            return super().refusal(state, call)
        expected, new = call.input
        if call.output is False:
            return f"was refused, but the register holds the expected {expected!r}"
        return f"replaced {expected!r} by {new!r}, but the register holds {state!r}"
