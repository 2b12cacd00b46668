"""What a read of a whole set says of a single element, held against the operations on that element alone.

Necessary conditions only: a set that can be explained can be explained for each of its elements. They find at once what
a search over all elements may not live to see: one that was added and is left out, and one that nobody had added.

Time: reads times elements, in steps of C.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raftlog.linearizability.checker.history import FAIL, OK, Operation
from raftlog.linearizability.checker.values import freeze

_MOST = 20_000_000  # elements times reads: beyond, the search has to do


@dataclass(frozen=True, slots=True)
class ElementViolation:
    """What the read says of the element is impossible; `operations` are those on the element, and the read."""

    element: Any
    read: Operation
    operations: tuple[Operation, ...]


def check_elements(operations: Sequence[Operation]) -> ElementViolation | None:
    """The first read, in the order of a History, that one element refutes by itself; None says nothing."""
    reads = [one for one in operations if one.function == "read" and one.outcome is OK]
    called: dict[Any, int] = {}  # the first call of an add
    added: dict[Any, float] = {}  # the first return of an add that surely happened
    removed: set[Any] = set()
    for operation in operations:
        if operation.outcome is FAIL or operation.function not in ("add", "remove"):
            continue
        element = freeze(operation.input)
        if operation.function == "remove":
            removed.add(element)
            continue
        called[element] = min(called.get(element, operation.call), operation.call)
        added[element] = min(added.get(element, operation.end), operation.end)
    if len(reads) * len(called) > _MOST:
        return None
    kept = {element: end for element, end in added.items() if element not in removed}
    for read in reads:
        present = frozenset(freeze(list(read.output)))
        wrong = [element for element in present if called.get(element, read.end + 1) > read.end]
        wrong += [element for element in kept.keys() - present if kept[element] < read.call]
        if wrong:
            element = min(wrong, key=repr)
            about = [one for one in operations if one.function != "read" and freeze(one.input) == element]
            return ElementViolation(element, read, (*about, read))
    return None
