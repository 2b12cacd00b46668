"""The committed offsets of a consumer group, guarded by its generation. The key names the group.

Functions: `join` begins a generation and answers its number, greater than all before; `commit` takes
`{"offset": 5, "partition": "orders-0", "generation": 3}`, the last two optional, and answers true (as null does), or
false when the generation is fenced; `fetch` takes the partition (null when there is one) and answers its offset, null
for none. A `join` of unknown outcome may have begun the generation in its input, `{"generation": 4}`, or else the next.
Commits without a generation are never fenced, and a group whose history has no generation at all falls apart into
its partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from raftlog.linearizability.checker.history import Key, Operation, Outcome
from raftlog.linearizability.checker.model import OBSERVER, REFUSED, TOTAL, UNKNOWN, Call, Model, Refused, Traits, named
from raftlog.linearizability.checker.values import freeze

_FIELDS = {"offset", "partition", "generation"}


class GroupState(NamedTuple):
    """The generation and the offsets as sorted pairs of partition and offset."""

    generation: int
    offsets: tuple[tuple[Any, int], ...]

    def offset(self, partition: Any) -> int | None:
        """The committed offset, None for none."""
        return dict(self.offsets).get(partition)


class ConsumerOffsets(Model[GroupState]):
    """One consumer group. With `guarded` False generations play no part, and partitions are independent."""

    name = "offsets"
    functions = frozenset({"join", "commit", "fetch"})

    def __init__(self, *, guarded: bool = True) -> None:
        self.guarded = guarded

    def initial_state(self) -> GroupState:
        return GroupState(-1, ())

    def step(self, state: GroupState, call: Call) -> GroupState | Refused:
        if call.function == "fetch":
            known = call.output is not UNKNOWN
            return REFUSED if known and state.offset(call.input) != call.output else state
        if call.function == "join":
            generation = _joined(call, state.generation + 1)
            return state._replace(generation=generation) if generation > state.generation else REFUSED
        offset, partition, named_generation = _commit(call.input)
        fenced = named_generation is not None and named_generation != state.generation
        if call.output is False:
            return state if fenced else REFUSED
        if fenced:
            return REFUSED
        offsets = dict(state.offsets)
        offsets[partition] = offset
        return state._replace(offsets=tuple(sorted(offsets.items(), key=repr)))

    def traits(self, call: Call) -> Traits:
        if call.function == "fetch" or (call.function == "commit" and call.output is False):
            return OBSERVER
        if call.function == "commit" and _commit(call.input)[2] is None:
            return TOTAL
        return 0

    def uncertain(self, operation: Operation) -> Operation | None:
        copy = super().uncertain(operation)
        if copy is not None and copy.function == "join" and operation.outcome is Outcome.OK:
            copy.input = {"generation": operation.output}
        return copy

    def part(self, operation: Operation) -> Key:
        if self.guarded or operation.function == "join":
            return operation.key
        given = freeze(operation.input)
        partition = given if operation.function == "fetch" else _commit(given)[1]
        return operation.key if partition is None else (operation.key, partition)

    def suited(self, operations: Sequence[Operation]) -> Model[Any]:
        """Where no generation is ever named, each partition is an object of its own."""
        for operation in operations:
            if operation.function == "join":
                return self
            if operation.function == "commit" and _commit(freeze(operation.input))[2] is not None:
                return self
        return ConsumerOffsets(guarded=False)

    def validate(self, operation: Operation) -> None:
        given = operation.input
        if operation.function == "commit":
            if not isinstance(given, dict) or type(given.get("offset")) is not int or not given.keys() <= _FIELDS:
                raise ValueError(f'commit takes {{"offset": …, "partition": …, "generation": …}}, not {given!r}')
            if type(given.get("generation")) not in (int, type(None)):
                raise ValueError(f"a generation is a whole number, not {given['generation']!r}")
            if operation.outcome is Outcome.OK and type(operation.output) not in (bool, type(None)):
                raise ValueError(f"commit answers true (as null does) or false, not {operation.output!r}")
        if operation.function == "join":
            generation = named(freeze(given), "generation")
            if type(generation) not in (int, type(None)):
                raise ValueError(f"a generation is a whole number, not {generation!r}")
            if operation.outcome is Outcome.OK and type(operation.output) is not int:
                raise ValueError(f"join answers a generation, a whole number, not {operation.output!r}")

    def describe_state(self, state: GroupState) -> str:
        told = ", ".join(f"{offset}" if where is None else f"{where}: {offset}" for where, offset in state.offsets)
        generation = f"generation {state.generation}, " if state.generation >= 0 else ""
        return f"is at {generation}{told or 'no offset'}"

    def refusal(self, state: GroupState, call: Call) -> str:
        if call.function == "fetch":
            return f"answered {call.output!r}, but the committed offset is {state.offset(call.input)!r}"
        if call.function == "join":
            return f"began generation {call.output}, but generation {state.generation} had begun before"
        generation = _commit(call.input)[2]
        if call.output is False:
            return f"was fenced, although generation {generation} is the current one"
        return f"took effect for generation {generation}, although the group is in generation {state.generation}"


def _commit(given: tuple[tuple[str, Any], ...]) -> tuple[int, Any, int | None]:
    fields = dict(given)
    return fields["offset"], fields.get("partition"), fields.get("generation")


def _joined(call: Call, following: int) -> int:
    """The generation that a join began, or would begin."""
    if call.output is not UNKNOWN:
        return call.output  # type: ignore[no-any-return]
    generation: int | None = named(call.input, "generation")
    return following if generation is None else generation
