"""Taking apart what a history says: keys, offsets, pairs, named fields.

Everything raises `BadField`, which the caller turns into a HistoryError with the line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

EPOCHS = 1 << 16  # a producer's epoch is a 16-bit number; an id that is used up is followed by a larger one
OFFSET_LIMIT = 2**63 - 1  # Kafka's offsets are signed 64-bit integers, and the largest stands for never


class BadField(Exception):
    """What is wrong, in words that follow the name of the operation."""


def show(value: Any) -> str:
    """The value for an error message, shortened."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def key_name(key: Any) -> str:
    """A key's name: a string is its own, 3 is "3", and ["orders", 0] is "orders-0"."""
    if type(key) is str:
        return key
    if type(key) is int:
        return str(key)
    if isinstance(key, list | tuple) and len(key) == 2 and type(key[0]) is str and type(key[1]) is int:
        return f"{key[0]}-{key[1]}"
    raise BadField(f"a key is a string, an integer or [topic, partition], not {show(key)}")


def offset_of(value: Any) -> int | None:
    """An offset; null and -1, which brokers answer when they do not know, are None."""
    if value is None:
        return None
    if type(value) is not int:
        raise BadField(f"an offset is an integer or null, not {show(value)}")
    if value == -1:
        return None
    if not 0 <= value < OFFSET_LIMIT:
        raise BadField(f"offset {value} is out of range")
    return value


def integer(value: Any, name: str, default: int | None = None) -> int:
    """An integer of 64 bits; `default` for null, unless there is none."""
    if value is None and default is not None:
        return default
    if type(value) is not int or not -OFFSET_LIMIT <= value <= OFFSET_LIMIT:
        raise BadField(f'"{name}" is {show(value)}, not an integer of 64 bits')
    return value


def text(value: Any, name: str) -> str:
    """A name: a string, or an integer for it."""
    if type(value) is str:
        return value
    if type(value) is int:
        return str(value)
    raise BadField(f'"{name}" is {show(value)}, not a string')


def items(value: Any, what: str) -> Iterable[tuple[Any, Any]]:
    """The pairs of an object, or of a list of two-element lists."""
    if isinstance(value, Mapping):
        return value.items()
    if not isinstance(value, list | tuple):
        raise BadField(f"{what}: an object or a list of pairs is needed, not {show(value)}")
    for pair in value:
        if not isinstance(pair, list | tuple) or len(pair) != 2:
            raise BadField(f"{what}: {show(pair)} is not a pair")
    return value


def sequence(value: Any, what: str) -> list[Any] | tuple[Any, ...]:
    """A list; null is an empty one."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise BadField(f"{what} is {show(value)}, not a list")
    return value


def named(value: Any, known: frozenset[str], what: str) -> Mapping[str, Any]:
    """The fields of an object that has no others than the known ones; null has none."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadField(f"{what} is {show(value)}, not an object")
    unknown = [name for name in value if name not in known]
    if unknown:
        raise BadField(f"{what} has no field {show(unknown[0])}, only {', '.join(sorted(known))}")
    return value


def hashable(value: Any) -> Any:
    """The value so that it can be looked up: lists and objects by what they hold. True, 1 and 1.0 are one value."""
    if isinstance(value, list | tuple):
        return tuple([hashable(item) for item in value])
    if isinstance(value, Mapping):
        return ("object", *sorted((str(name), repr(hashable(item))) for name, item in value.items()))
    try:
        hash(value)
    except TypeError:
        return (type(value).__name__, repr(value))
    return value
