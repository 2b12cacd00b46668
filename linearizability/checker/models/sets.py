"""A set: `add`, `remove` and `contains` take an element, `read` answers all elements as a list.

`add` may answer whether the element was new and `remove` whether it was there; null says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Key, Operation, Outcome
from raftlog.linearizability.checker.model import (
    CONSTANT,
    OBSERVER,
    REFUSED,
    TOTAL,
    UNKNOWN,
    Call,
    Model,
    Refused,
    Traits,
)
from raftlog.linearizability.checker.values import freeze

Elements: TypeAlias = frozenset[Any]


_SHARED = 1_000  # elements that sets of several keys may have in common numbers: each state has a bit for all of them


class Set(Model[Elements]):
    """The state is the elements."""

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

    def suited(self, operations: Sequence[Operation]) -> Model[Any]:
        """Where nobody reads the whole set, each element is an object of its own; else the elements get numbers."""
        if not any(operation.function == "read" for operation in operations):
            return SetElement()
        elements = _elements(operations)
        alone = all(operation.key == operations[0].key for operation in operations)
        return NumberedSet(elements) if alone or len(elements) <= _SHARED else self

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
        return " and ".join(told)


class NumberedSet(Model[int]):
    """A set whose elements are all known: the state is a number with a bit for each.

    A search keeps thousands of states, and twenty thousand elements take two megabytes as a frozenset.
    """

    name = "set"
    functions = Set.functions

    def __init__(self, elements: Sequence[Any]) -> None:
        """`elements` are all that anybody names, no two equal."""
        self._places = {element: place for place, element in enumerate(elements)}
        self._read: dict[int, tuple[Any, int]] = {}  # by identity, which is quicker than to hash them

    def initial_state(self) -> int:
        return 0

    def step(self, state: int, call: Call) -> int | Refused:
        function, given, output = call
        if function == "read":
            return state if output is UNKNOWN or state == self._state(output) else REFUSED
        bit = 1 << self._places[given]
        there = state & bit != 0
        if function == "contains":
            return state if output is UNKNOWN or output == there else REFUSED
        changes = there if function == "remove" else not there
        if output is not None and output is not UNKNOWN and output != changes:
            return REFUSED
        return state ^ bit if changes else state

    def _state(self, output: Any) -> int:
        known = self._read.get(id(output))
        if known is None:
            state = int.from_bytes(_packed(self._places[element] for element in output), "little")
            known = self._read[id(output)] = (output, state)
        return known[1]

    def traits(self, call: Call) -> Traits:
        return _WHOLE.traits(call)

    def validate(self, operation: Operation) -> None:
        _WHOLE.validate(operation)

    def describe_state(self, state: int) -> str:
        return _WHOLE.describe_state(self._named(state))

    def refusal(self, state: int, call: Call) -> str:
        return _WHOLE.refusal(self._named(state), call)

    def _named(self, state: int) -> Elements:
        return frozenset(element for element, place in self._places.items() if state >> place & 1)


class OneElement(Model[bool]):
    """What is done with one element of a set, and what reads of the whole set say of it."""

    name = "set"
    functions = Set.functions

    def __init__(self, element: Any) -> None:
        self.element = element

    def initial_state(self) -> bool:
        return False

    def step(self, state: bool, call: Call) -> bool | Refused:
        if call.function == "read":
            return state if call.output is UNKNOWN or (self.element in call.output) == state else REFUSED
        return _ELEMENT.step(state, call)

    def traits(self, call: Call) -> Traits:
        return OBSERVER if call.function == "read" else _ELEMENT.traits(call)

    def validate(self, operation: Operation) -> None:
        _WHOLE.validate(operation)

    def describe_state(self, state: bool) -> str:
        return f"{_ELEMENT.describe_state(state)} ({self.element!r})"

    def refusal(self, state: bool, call: Call) -> str:
        if call.function != "read":
            return _ELEMENT.refusal(state, call)
        how = "left out {}, which the set holds" if state else "had {}, which the set does not hold"
        return how.format(repr(self.element))


def _elements(operations: Sequence[Operation]) -> list[Any]:
    """All that the operations name, each once."""
    found: dict[Any, None] = {}
    for operation in operations:
        if operation.function != "read":
            found.setdefault(freeze(operation.input))
        elif operation.outcome is Outcome.OK:
            found.update(dict.fromkeys(freeze(list(operation.output))))
    return list(found)


def _packed(places: Iterable[int]) -> bytes:
    """The bits at these places."""
    packed = bytearray()
    for place in places:
        if place >> 3 >= len(packed):
            packed.extend(bytes((place >> 3) + 1 - len(packed)))
        packed[place >> 3] |= 1 << (place & 7)
    return bytes(packed)


class SetElement(Model[bool]):
    """One element of a set that nobody reads as a whole: it is there or not."""

    name = "set"
    functions = frozenset({"add", "remove", "contains"})

    def initial_state(self) -> bool:
        return False

    def step(self, state: bool, call: Call) -> bool | Refused:
        function, _, output = call
        if function == "contains":
            return state if output is UNKNOWN or output == state else REFUSED
        changes = state if function == "remove" else not state
        if output is not None and output is not UNKNOWN and output != changes:
            return REFUSED
        return function == "add"

    def traits(self, call: Call) -> Traits:
        if call.function == "contains" or call.output is False:
            return OBSERVER
        return TOTAL | CONSTANT if call.output is None or call.output is UNKNOWN else CONSTANT

    def part(self, operation: Operation) -> Key:
        element: Key = freeze(operation.input)
        return element if operation.key is None else (operation.key, element)

    def validate(self, operation: Operation) -> None:
        _WHOLE.validate(operation)

    def describe_state(self, state: bool) -> str:
        return "holds it" if state else "does not hold it"

    def refusal(self, state: bool, call: Call) -> str:
        return f"answered {call.output!r} for {call.input!r}, but the set {self.describe_state(state)}"


_WHOLE = Set()
_ELEMENT = SetElement()
