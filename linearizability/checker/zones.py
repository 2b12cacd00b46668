"""Registers whose written values are all different, checked without search.

P. B. Gibbons and E. Korach, Testing Shared Memories, SIAM J. Computing 26(4), 1997. The write of a value and the
reads of it form a cluster. Its zone lies between the earliest return and the latest call in it. If the earliest
return comes first, the register must have held the value all through that zone (a forward zone); else the whole
cluster can take effect at one instant of its zone (a backward zone). The history is linearizable unless

- a read answers a value nobody wrote, or returned before the write of its value was called,
- two forward zones overlap, or
- a backward zone lies inside a forward one.

Time n log n for the sort. Knows: clusters and zones. Refuses to know: how a violation is told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from operator import ne
from typing import Any, Literal

from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.jsonl import freeze

_INFINITY = float("inf")


@dataclass(frozen=True, slots=True)
class ZoneViolation:
    """Operations that cannot all be explained: a read alone, a read and its write, or what spans two zones; or an
    answer and before it the write that came between it and the last write of its value, if there is one.

    `values` are the one or two values in question, in the order of their zones.
    """

    kind: Literal["unwritten", "early", "overlap", "inside", "overwritten"]
    values: tuple[Any, ...]
    operations: tuple[Operation, ...]


class NotUnique(Exception):
    """Some value is written twice, or the history has other operations: zones do not apply."""


class _Clusters:
    """By value: the earliest return, the latest call, and the write.

    Three flat dictionaries and no object a value: a million of those would keep the garbage collector busy.
    Invariant: `first` is in ascending order.
    """

    __slots__ = ("first", "last", "write")

    def __init__(self) -> None:
        self.first: dict[Any, float] = {}
        self.last: dict[Any, float] = {}
        self.write: dict[Any, Operation] = {}


def check_zones(operations: Sequence[Operation], initial: Any = None) -> ZoneViolation | None:
    """The first violation found, or None. `operations` lie in the order of a History.

    Raises NotUnique when the history is not one for zones.
    """
    initial = freeze(initial)
    clusters = _Clusters()
    clusters.first[initial] = clusters.last[initial] = -_INFINITY
    _gather(operations, clusters)
    if initial in clusters.write or any(map(ne, clusters.first, clusters.first)):  # a NaN is no value
        raise NotUnique
    for value, first in clusters.first.items():
        write = clusters.write.get(value)
        if write is None:
            if value != initial:
                return ZoneViolation("unwritten", (value,), tuple(_reads(operations, value)[:1]))
        elif first < write.call:
            return ZoneViolation("early", (value,), (write, _reads(operations, value)[0]))
    conflict = _conflict(clusters)
    if conflict is None:
        return None
    kind, *values = conflict
    ends = [operation for value in values for operation in _ends(operations, clusters, value)]
    return ZoneViolation(kind, tuple(values), tuple(dict.fromkeys(ends)))


def _gather(operations: Sequence[Operation], clusters: _Clusters) -> None:
    first, last, writes = clusters.first, clusters.last, clusters.write
    unknown: list[Operation] = []
    for operation in operations:
        if operation.outcome is not OK:
            if operation.outcome is INFO and operation.function != "read":
                unknown.append(operation)
            continue
        writing = operation.function != "read"
        value = operation.input if writing else operation.output
        try:
            latest = last.get(value)
        except TypeError:
            value = freeze(value)
            latest = last.get(value)
        if latest is None:
            # Operations come in the order of their returns, so the first is the earliest.
            first[value] = operation.returned  # type: ignore[assignment]
            last[value] = operation.call
        elif operation.call > latest:
            last[value] = operation.call
        if writing:
            if value in writes or operation.function != "write":
                raise NotUnique
            writes[value] = operation
    for operation in unknown:
        # Seen, it took effect, if at any time after its call; unseen, it may never have happened.
        if operation.function != "write":
            raise NotUnique
        value = freeze(operation.input)
        if value in last:
            if value in writes:
                raise NotUnique
            writes[value] = operation
            last[value] = max(last[value], operation.call)


def _conflict(clusters: _Clusters) -> tuple[Literal["overlap", "inside"], Any, Any] | None:
    """Two zones that exclude each other. Zones that only share an end do not: equal stamps are concurrent."""
    latest = clusters.last
    begins: list[float] = []  # of the forward zones, ascending
    ends: list[float] = []
    names: list[Any] = []
    reach = -_INFINITY
    for value, first in clusters.first.items():
        last = latest[value]
        if first < last:
            if first < reach:
                return "overlap", names[-1], value
            reach = last
            begins.append(first)
            ends.append(last)
            names.append(value)
    for value, high in clusters.first.items():
        low = latest[value]
        if low <= high:
            place = bisect_left(begins, low) - 1
            if place >= 0 and high < ends[place]:
                return "inside", names[place], value
    return None


def _ends(operations: Sequence[Operation], clusters: _Clusters, value: Any) -> list[Operation]:
    """The write of the value, the operation that returned first and the one called last."""
    first, last = clusters.first[value], clusters.last[value]
    write = clusters.write.get(value)
    members = _reads(operations, value)
    found = []
    if write is not None:
        found.append(write)
        members.insert(0, write)
    found += [operation for operation in members if operation.returned == first and operation.outcome is OK][:1]
    found += [operation for operation in members if operation.call == last][:1]
    return found


def _reads(operations: Sequence[Operation], value: Any) -> list[Operation]:
    return [
        operation
        for operation in operations
        if operation.function == "read" and operation.outcome is OK and freeze(operation.output) == value
    ]
