"""A first-in-first-out queue: `enqueue` takes a value, `dequeue` answers the oldest, or null when there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.model import (
    OBSERVER,
    REFUSED,
    TOTAL,
    UNKNOWN,
    Call,
    Model,
    Outlook,
    Refused,
    Traits,
    looks_at,
)

Items: TypeAlias = tuple[Any, ...]


class _Never:
    """Stands for a value that nobody dequeues."""

    def __repr__(self) -> str:
        return "…"


_NEVER = _Never()


class Queue(Model[Items]):
    """The state is what is in the queue, oldest first. None is no value: it is the answer of an empty queue."""

    name = "queue"
    functions = frozenset({"enqueue", "dequeue"})

    def initial_state(self) -> Items:
        return ()

    def step(self, state: Items, call: Call) -> Items | Refused:
        if call.function == "enqueue":
            return (*state, call.input)
        if not state:
            return state if call.output is None else REFUSED
        if call.output is UNKNOWN or call.output == state[0]:
            return state[1:]
        return REFUSED

    def traits(self, call: Call) -> Traits:
        if call.function == "enqueue":
            return TOTAL
        return OBSERVER if call.output is None else 0

    def outlook(self, calls: Sequence[Call], operations: Sequence[Operation]) -> Outlook | None:
        """Values nobody is seen to dequeue look alike, and only dequeues of unknown outcome can remove them. When no
        value comes twice, the order of the others is known from their dequeues."""
        enqueued = [call.input for call in calls if call.function == "enqueue"]
        left = {
            call.output: operation
            for call, operation in zip(calls, operations, strict=True)
            if call.function == "dequeue" and call.output is not UNKNOWN
        }
        blind = sum(call.function == "dequeue" and call.output is UNKNOWN for call in calls)
        unique = len(set(enqueued)) == len(enqueued)

        def merge(state: Items) -> Any:
            if not state:
                return state
            last = left.get(state[-1]) if unique else None
            spare = blind
            merged = list(state)
            for place, value in enumerate(state):
                leaves = left.get(value)
                if leaves is None:
                    merged[place] = _NEVER
                    if not spare:
                        return REFUSED if last is not None else tuple(merged[: place + 1])
                    spare -= 1
                elif last is not None and last.precedes(leaves):
                    return REFUSED
            return tuple(merged)

        return merge

    @looks_at("enqueue")
    def validate(self, operation: Operation) -> None:
        if operation.function == "enqueue" and operation.input is None:
            raise ValueError("enqueue takes a value, and null is none: it is what an empty queue answers")

    def describe_state(self, state: Items) -> str:
        if not state:
            return "is empty"
        first = ", ".join(map(repr, state[:4]))
        return f"holds {first}" + (f" and {len(state) - 4} more" if len(state) > 4 else "")

    def refusal(self, state: Items, call: Call) -> str:
        if call.output is None:
            return f"found the queue empty, but it {self.describe_state(state)}"
        if not state:
            return f"answered {call.output!r}, but the queue is empty"
        where = "is not in it" if call.output not in state else f"stands at place {state.index(call.output) + 1}"
        return f"answered {call.output!r}, which {where}: the queue {self.describe_state(state)}"
