"""Values of a history in a form that can be compared and hashed."""

from __future__ import annotations

import json
from operator import itemgetter
from typing import Any

from raftlog.linearizability.checker.history import HistoryError

_first = itemgetter(0)


class Pairs(tuple[Any, ...]):
    """A JSON object as its sorted pairs: it is told as the object that it was, and no list equals it."""

    __slots__ = ()
    __hash__ = tuple.__hash__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pairs) and tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __repr__(self) -> str:
        return "{" + ", ".join(f"{name!r}: {value!r}" for name, value in self) + "}"


def freeze(value: Any) -> Any:
    """The value with lists as tuples and objects as sorted pairs, so that it can be compared and hashed.

    Raises HistoryError for one that cannot be: a NaN, which does not even equal itself, or what may change.
    """
    kind = type(value)  # asked for each value of a history: the common kinds first, without isinstance
    if kind is int or kind is str or kind is Pairs or value is None:
        return value
    if kind is list or kind is tuple:
        return tuple([freeze(item) for item in value])
    if isinstance(value, list | tuple):
        return tuple([freeze(item) for item in value])
    if isinstance(value, dict):
        return Pairs(sorted(((str(name), freeze(item)) for name, item in value.items()), key=_first))
    if isinstance(value, set | frozenset):
        return frozenset(freeze(item) for item in value)
    if kind.__hash__ is None or value != value:
        raise HistoryError(f"{show(value)} cannot be compared with other values: record it as text")
    return value


def show(value: Any) -> str:
    """The value as JSON, cut where it is long."""
    text = json.dumps(value, default=repr)
    return text if len(text) <= 60 else text[:57] + "..."
