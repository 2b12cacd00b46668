"""Where to begin and where to end, as Spark's options and checkpoints write it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from raftlog.pipeline.given import BadOption

Partition: TypeAlias = tuple[str, int]
Offsets: TypeAlias = Mapping[Partition, int]
"""The next offset to read, by partition."""
Written: TypeAlias = dict[str, dict[str, int]]
"""Offsets as they lie in a checkpoint: topic to partition to offset, sorted, because Spark compares the text."""

LATEST, EARLIEST = -1, -2


class Position(NamedTuple):
    """Where to begin or end. `kind`: earliest, latest, committed, timestamp (one for all, in ms), offsets, timestamps.

    The last two have a value for each partition.
    """

    kind: str
    timestamp: int = -1
    values: Mapping[Partition, int] | None = None


NEW: Written = {"(new)": {}}
"""Where a query begins that has no checkpoint yet. No topic has such a name."""
_BEGUN = "(from) "
"""Before names of topics at the end of a query's first micro-batch: where it began, since Spark keeps only ends."""


def write(offsets: Offsets, begun: Offsets | None = None) -> Written:
    """`begun`: at the end of the first micro-batch, where that one begins, also when it comes again."""
    written: Written = {}
    for prefix, part in ((_BEGUN, begun or {}), ("", offsets)):
        for (topic, index), offset in sorted(part.items()):
            written.setdefault(prefix + topic, {})[str(index)] = offset
    return written


def read(written: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    return _read({topic: indexes for topic, indexes in written.items() if not topic.startswith("(")})


def read_begun(written: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    """What `write` was told of where the first micro-batch begins."""
    return _read({name[len(_BEGUN) :]: indexes for name, indexes in written.items() if name.startswith(_BEGUN)})


def _read(written: Mapping[str, Mapping[str, int]]) -> dict[Partition, int]:
    return {(topic, int(index)): offset for topic, indexes in written.items() for index, offset in indexes.items()}


def parse_position(name: str, text: str, words: Iterable[str]) -> Position:
    """`text` is one of `words`, or JSON such as {"topic": {"0": 23, "1": -2}}. Raises BadOption."""
    word = text.strip().lower()
    if word in words:
        return Position(word)
    return Position("offsets", values=parse_numbers(name, text, f"{', '.join(words)} or "))


def parse_numbers(name: str, text: str, instead: str = "", *, least: int = EARLIEST) -> dict[Partition, int]:
    """A number for each partition. Raises BadOption."""
    example = f'write {instead}JSON like {{"topic": {{"0": 23, "1": 5}}}}'
    found: dict[Partition, int] = {}
    for topic, indexes in _object(name, text, example).items():
        if not isinstance(indexes, dict):
            raise BadOption(f"{name}: topic {topic!r} has no partitions; {example}")
        for index, number in indexes.items():
            if not index.isdigit() or not isinstance(number, int) or isinstance(number, bool):
                raise BadOption(f"{name}: {index!r}: {number!r} under {topic!r} is no partition and number; {example}")
            if number < least:
                raise BadOption(f"{name}: {topic}[{index}] cannot be {number}")
            found[topic, int(index)] = number
    return found


def parse_assign(text: str) -> tuple[Partition, ...]:
    """JSON such as {"topicA": [0, 1], "topicB": [2]}. Raises BadOption."""
    example = 'write JSON like {"topicA": [0, 1], "topicB": [2]}'
    found: list[Partition] = []
    for topic, indexes in _object("assign", text, example).items():
        if not isinstance(indexes, list) or not all(type(index) is int and index >= 0 for index in indexes):
            raise BadOption(f"assign: the partitions of {topic!r} are {indexes!r}; {example}")
        found += [(topic, index) for index in indexes]
    if not found:
        raise BadOption(f"assign names no partition; {example}")
    return tuple(dict.fromkeys(found))


def _object(name: str, text: str, example: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        raise BadOption(f"{name}={text!r}: {example}") from None
    if not isinstance(found, dict):
        raise BadOption(f"{name}={text!r}: {example}")
    return found


def check_covers(name: str, values: Mapping[Partition, int], partitions: Iterable[Partition]) -> None:
    """Values for each partition, or none, must be those that are read. Raises BadOption."""
    there = set(partitions)
    missing, beyond = sorted(there - values.keys()), sorted(values.keys() - there)
    if missing or beyond:
        words = [f"{label} {', '.join(f'{topic}[{index}]' for topic, index in found)}" for label, found in (
            ("says nothing about", missing), ("names, without its being read,", beyond)) if found]
        raise BadOption(f"{name} {' and '.join(words)}: give a number for each partition that is read "
                        "(-2 for its start, -1 for its end)")
