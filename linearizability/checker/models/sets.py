"""A set: `add`, `remove` and `contains` take an element, `read` answers all elements as a list.

`add` may answer whether the element was new and `remove` whether it was there; null says nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Key, Operation, Outcome
from raftlog.linearizability.checker.jsonl import freeze
from raftlog.linearizability.checker.model import OBSERVER, REFUSED, TOTAL, UNKNOWN, Call, Model, Refused, Traits

Elements: TypeAlias = frozenset[Any]


class Set(Model[Elements]):
    """The state is the elements. A history in which nobody reads the whole set falls apart into its elements."""

    name = "set"
    functions = frozenset({"add", "remove", "contains", "read"})

    def initial_state(self) -> Elements:
        return frozenset()

    def step(self, state: Elements, call: Call) -> Elements | Refused:
        function, given, output = call
        if function == "read":
            return state if output is UNKNOWN or state == frozenset(output) else REFUSED
        there = given in state
        if function == "contains":
            return state if output is UNKNOWN or output == there else REFUSED
        changes = there if function == "remove" else not there
        if output is not None and output is not UNKNOWN and output != changes:
            return REFUSED
        if not changes:
            return state
        return state - {given} if there else state | {given}

    def traits(self, call: Call) -> Traits:
        if call.function in ("read", "contains") or call.output is False:
            return OBSERVER
        return TOTAL if call.output is None or call.output is UNKNOWN else 0

    def split(self, operations: Sequence[Operation]) -> dict[Key, list[Operation]]:
        if any(operation.function == "read" for operation in operations):
            return super().split(operations)
        parts: dict[Key, list[Operation]] = {}
        for operation in operations:
            element = freeze(operation.input)
            key = element if operation.key is None else (operation.key, element)
            parts.setdefault(key, []).append(operation)
        return parts

    def validate(self, operation: Operation) -> None:
        output = operation.output
        if operation.outcome is not Outcome.OK:
            return
        if operation.function == "read":
            if not isinstance(output, list | tuple | set | frozenset):
                raise ValueError(f"read answers a list of elements, not {output!r}")
        elif not isinstance(output, bool) and (operation.function == "contains" or output is not None):
            raise ValueError(f"{operation.function} answers true or false, not {output!r}")

    def describe_state(self, state: Elements) -> str:
        if not state:
            return "is empty"
        names = sorted(map(repr, state))
        return "holds {" + ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "") + "}"

    def refusal(self, state: Elements, call: Call) -> str:
        if call.function != "read":
            held = "holds it" if call.input in state else "does not hold it"
            return f"answered {call.output!r} for {call.input!r}, but the set {held}"
        missing = sorted(map(repr, state - frozenset(call.output)))
        extra = sorted(map(repr, frozenset(call.output) - state))
        told = [f"left out {', '.join(missing[:5])}"] if missing else []
        told += [f"had {', '.join(extra[:5])}, which the set does not hold"] if extra else []
        return "the answer " + " and ".join(told)
