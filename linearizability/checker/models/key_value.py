"""A map from keys to strings or lists: `get`, `put`, `append` and `delete`, each on one key, and each key a part.

`get` answers the value, or `absent` where there is none; `append` puts its input behind the string or list that is
there and behind nothing where there is none.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

from raftlog.linearizability.checker.history import Operation
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

_function = itemgetter(0)
_APPENDED = (str, list, tuple)
_OUTLOOK_LIMIT = 1_000_000  # characters or items of prefixes worth keeping in order to merge states


class KeyValue(Model[Any]):
    """One key of a map. `absent` is what `get` answers where there is no value: null, or "" in some systems."""

    name = "key-value"
    functions = frozenset({"get", "put", "append", "delete"})

    def __init__(self, absent: Any = None) -> None:
        self.absent = freeze(absent)

    def initial_state(self) -> Any:
        return self.absent

    def step(self, state: Any, call: Call) -> Any | Refused:
        function, given, output = call
        if function == "get":
            return state if output == state or output is UNKNOWN else REFUSED
        if function == "put":
            return given
        if function == "delete":
            return self.absent
        if state is UNSEEN:
            return UNSEEN  # what nobody reads is still read by nobody when it is longer
        if state is None or state == self.absent:
            return given
        if type(state) is type(given):
            return state + given
        return ("mixed", state, given)

    def traits(self, call: Call) -> Traits:
        function = call[0]
        if function == "get":
            return OBSERVER
        return TOTAL if function == "append" else TOTAL | CONSTANT

    def outlook(self, calls: Sequence[Call], operations: Sequence[Operation]) -> Outlook | None:
        """A value that is no beginning of anything read is like any other such value."""
        read = {output for function, _, output in calls if function == "get"}
        if "append" not in map(_function, calls):
            return lambda state: state if state in read else UNSEEN
        if not all(isinstance(value, str) for value in read if value is not None and value is not UNKNOWN):
            return _beginnings_of_lists(read, self.absent)
        texts = sorted(value for value in read if isinstance(value, str))

        def merge(state: Any) -> Any:
            # What is appended where there is nothing stands alone.
            if state in read or (texts and (state is None or state == self.absent)):
                return state
            if not isinstance(state, str):
                return UNSEEN
            place = bisect_left(texts, state)
            return state if place < len(texts) and texts[place].startswith(state) else UNSEEN

        return merge

    @looks_at("append")
    def validate(self, operation: Operation) -> None:
        if operation.function == "append" and not isinstance(operation.input, _APPENDED):
            raise ValueError(f"append takes a string or a list, not {operation.input!r}")

    def describe_state(self, state: Any) -> str:
        return "is absent" if state == self.absent else f"holds {_shorten(state)}"

    def refusal(self, state: Any, call: Call) -> str:
        return f"answered {_shorten(call.output)}, but the key {self.describe_state(state)}"


def _beginnings_of_lists(read: set[Any], absent: Any) -> Outlook | None:
    lists = [value for value in read if isinstance(value, tuple)]
    if sum(len(value) ** 2 for value in lists) > _OUTLOOK_LIMIT:
        return None
    beginnings = {value[:length] for value in lists for length in range(len(value) + 1)} | read | {absent}
    return lambda state: state if state in beginnings or not isinstance(state, tuple) else UNSEEN


def _shorten(value: Any) -> str:
    """Long values differ at their ends, so both ends are shown."""
    text = repr(value)
    return text if len(text) <= 70 else f"{text[:24]} … {text[-40:]} ({len(value)} long)"
