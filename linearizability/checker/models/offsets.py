"""The committed offsets of a consumer group, guarded by its generation. The key names the group.

Functions: `join` begins a generation and answers its number, greater than all before; `commit` takes
`{"offset": 5, "partition": "orders-0", "generation": 3}`, the last two optional, and answers true, or false when the
generation is fenced; `fetch` takes the partition (null when there is one) and answers its offset, null for none.
Commits without a generation are never fenced, and a group whose history has no generation at all falls apart into
its partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from raftlog.linearizability.checker.history import Key, Operation, Outcome
from raftlog.linearizability.checker.jsonl import freeze
from raftlog.linearizability.checker.model import OBSERVER, REFUSED, TOTAL, UNKNOWN, Call, Model, Refused, Traits

_FIELDS = {"offset", "partition", "generation"}


class GroupState(NamedTuple):
    """The generation and the offsets as sorted pairs of partition and offset."""

    generation: int
    offsets: tuple[tuple[Any, int], ...]

    def offset(self, partition: Any) -> int | None:
        """The committed offset, None for none."""
        return dict(self.offsets).get(partition)


class ConsumerOffsets(Model[GroupState]):
    """One consumer group."""

    name = "offsets"
    functions = frozenset({"join", "commit", "fetch"})

    def initial_state(self) -> GroupState:
        return GroupState(-1, ())

    def step(self, state: GroupState, call: Call) -> GroupState | Refused:
        if call.function == "fetch":
            known = call.output is not UNKNOWN
            return REFUSED if known and state.offset(call.input) != call.output else state
        if call.function == "join":
            generation = state.generation + 1 if call.output is UNKNOWN else call.output
            return state._replace(generation=generation) if generation > state.generation else REFUSED
        offset, partition, generation = _commit(call.input)
        fenced = generation is not None and generation != state.generation
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

    def split(self, operations: Sequence[Operation]) -> dict[Key, list[Operation]]:
        parts: dict[Key, list[Operation]] = {}
        for group in super().split(operations).values():
            guarded = any(
                operation.function == "join"
                or (operation.function == "commit" and _commit(freeze(operation.input))[2] is not None)
                for operation in group
            )
            for operation in group:
                given = freeze(operation.input)
                partition = given if operation.function == "fetch" else None
                if operation.function == "commit":
                    partition = _commit(given)[1]
                key = operation.key if guarded or partition is None else (operation.key, partition)
                parts.setdefault(key, []).append(operation)
        return parts

    def validate(self, operation: Operation) -> None:
        given = operation.input
        if operation.function == "commit":
            if not isinstance(given, dict) or type(given.get("offset")) is not int or not given.keys() <= _FIELDS:
                raise ValueError(f'commit takes {{"offset": …, "partition": …, "generation": …}}, not {given!r}')
            if type(given.get("generation")) not in (int, type(None)):
                raise ValueError(f"a generation is a whole number, not {given['generation']!r}")
        if operation.function == "join" and operation.outcome is Outcome.OK and type(operation.output) is not int:
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
