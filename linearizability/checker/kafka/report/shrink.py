"""The smallest part of an example that is an error all by itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from raftlog.linearizability.checker.history import Operation, Outcome

LARGEST = 24  # operations; larger examples (long cycles) are left as they are
# What only looks; the rest changes something, and without its answer it may have happened or not.
_LOOKS = frozenset(
    {"poll", "committed", "describe-group", "high-watermark", "last-stable-offset", "list-offsets", "leader"}
)

Shows = Callable[[Sequence[Operation]], bool]


def uncertain(operation: Operation) -> Operation | None:
    """The operation as one that may have happened or not, at any time after its call; None if it only looked."""
    if operation.function in _LOOKS:
        return None
    return replace(operation, output=None, returned=None, outcome=Outcome.INFO)


class Smallest(NamedTuple):
    """A part of the operations, in the order of calls, that shows the error and loses it without any one of them.

    `minimal` says whether it also loses it when an operation that changes something may have happened or not.
    """

    operations: tuple[Operation, ...]
    minimal: bool


def smallest(operations: Sequence[Operation], shows: Shows) -> Smallest | None:
    """The smallest part that still shows the error; None where the rest of the history is needed to see it."""
    kept = list(operations)
    if len(kept) > LARGEST or not shows(kept):
        return None
    smaller = True
    while smaller:
        smaller = False
        for operation in tuple(kept):
            rest = [other for other in kept if other is not operation]
            if rest and shows(rest):
                kept, smaller = rest, True
    minimal = True
    for operation in kept:
        copy = uncertain(operation)
        if copy is not None and shows([copy if other is operation else other for other in kept]):
            minimal = False
    return Smallest(tuple(sorted(kept, key=lambda one: one.call)), minimal)
