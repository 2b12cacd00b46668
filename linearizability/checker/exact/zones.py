"""Registers whose written values are all different, checked without search.

P. B. Gibbons and E. Korach, Testing Shared Memories, SIAM J. Computing 26(4), 1997. The write of a value and the
reads of it form a cluster. Its zone lies between the earliest return and the latest call in it. If the earliest
return comes first, the register must have held the value all through that zone (a forward zone); else the whole
cluster can take effect at one instant of its zone (a backward zone). The history is linearizable unless

- a read answers a value nobody wrote, or returned before the write of its value was called,
- two forward zones overlap, or
- a backward zone lies inside a forward one.

Time n log n for the sort.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import ne
from typing import Any, Literal

from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.values import freeze

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

    One dictionary, flat lists and no object a value: a million of those would keep the garbage collector busy.
    Invariant: `places` says where in the lists a value is, in ascending order, and `first` is in ascending order. The
    initial value has the place 0, and without a write.
    """

    __slots__ = ("early", "first", "last", "places", "unwritten", "write")

    def __init__(self, initial: Any) -> None:
        self.places: dict[Any, int] = {initial: 0}
        self.first: list[Any] = [-_INFINITY]
        self.last: list[Any] = [-_INFINITY]
        self.write: list[Operation | None] = [None]
        self.unwritten = 0  # how many values beside the initial one were read and not written
        self.early = False  # whether a read returned before the write of its value was called


def check_zones(operations: Sequence[Operation], initial: Any = None) -> ZoneViolation | None:
    """The first violation found, or None. `operations` lie in the order of a History.

    Raises NotUnique when the history is not one for zones.
    """
    clusters = _Clusters(freeze(initial))
    _gather(operations, clusters)
    if clusters.write[0] is not None or any(map(ne, clusters.places, clusters.places)):  # a NaN is no value
        raise NotUnique
    if clusters.unwritten or clusters.early:
        return _unexplained(operations, clusters)
    conflict = _conflict(clusters) if _exclude(clusters) else None
    if conflict is None:
        return None
    kind, *values = conflict
    ends = [operation for value in values for operation in _ends(operations, clusters, value)]
    return ZoneViolation(kind, tuple(values), tuple(dict.fromkeys(ends)))


def _gather(operations: Sequence[Operation], clusters: _Clusters) -> None:
    first, last, write = clusters.first, clusters.last, clusters.write
    place_of = clusters.places.setdefault
    fresh = 1  # the place of the next value that was not seen before
    unwritten, early, ok = 0, False, OK
    unknown: list[Operation] = []
    # Every step in here counts: it is done for each operation, and one look at the dictionary is enough.
    for operation in operations:
        if operation.outcome is not ok:
            if operation.outcome is INFO and operation.function != "read":
                unknown.append(operation)
            continue
        function = operation.function
        if function == "read":
            value = operation.output
            try:
                place = place_of(value, fresh)
            except TypeError:
                place = place_of(freeze(value), fresh)
            if place == fresh:
                unwritten += 1
                write.append(None)
            elif operation.call > last[place]:
                last[place] = operation.call
                continue
            else:
                continue
        elif function == "write":
            value = operation.input
            try:
                place = place_of(value, fresh)
            except TypeError:
                place = place_of(freeze(value), fresh)
            if place < fresh:
                early |= _write(clusters, place, operation)
                unwritten -= 1
                continue
            write.append(operation)
        else:
            raise NotUnique
        # Operations come in the order of their returns, so the first is the earliest.
        first.append(operation.returned)
        last.append(operation.call)
        fresh += 1
    for operation in unknown:
        # Seen, it took effect, if at any time after its call; unseen, it may never have happened.
        if operation.function != "write":
            raise NotUnique
        seen = clusters.places.get(freeze(operation.input))
        if seen is not None:
            early |= _write(clusters, seen, operation)
            unwritten -= 1
    clusters.unwritten, clusters.early = unwritten, early


def _write(clusters: _Clusters, place: int, operation: Operation) -> bool:
    """Note the write of a value that was seen before. Answers whether a read of it returned before the call."""
    if clusters.write[place] is not None:
        raise NotUnique
    clusters.write[place] = operation
    if operation.call > clusters.last[place]:
        clusters.last[place] = operation.call
    return bool(clusters.first[place] < operation.call)


def _unexplained(operations: Sequence[Operation], clusters: _Clusters) -> ZoneViolation | None:
    """The first value that was read unwritten, or before its write."""
    for value, place in clusters.places.items():
        write = clusters.write[place]
        if write is None:
            if place:
                return ZoneViolation("unwritten", (value,), tuple(_reads(operations, value)[:1]))
        elif clusters.first[place] < write.call:
            return ZoneViolation("early", (value,), (write, _reads(operations, value)[0]))
    return None


def _exclude(clusters: _Clusters) -> bool:
    """Whether any two zones exclude each other. Zones that only share an end do not: equal stamps are concurrent.

    As long as no forward zones overlap, a backward one can only lie inside the last that begins before it.
    """
    begin = end = -_INFINITY
    for first, last in zip(clusters.first, clusters.last, strict=True):
        if first < last:
            if first < end:
                return True
            begin, end = first, last
        elif first < end and begin < last:
            return True
    return False


def _conflict(clusters: _Clusters) -> tuple[Literal["overlap", "inside"], Any, Any] | None:
    """The first two zones that exclude each other, and forward ones that overlap before all else."""
    zones = list(zip(clusters.places, clusters.first, clusters.last, strict=True))
    forward = [(first, last, value) for value, first, last in zones if first < last]
    for (_, end, before), (begin, _, value) in pairwise(forward):
        if begin < end:
            return "overlap", before, value
    begins = [begin for begin, _, _ in forward]
    for value, high, low in zones:
        place = bisect_left(begins, low) - 1
        if low <= high and place >= 0 and high < forward[place][1]:
            return "inside", forward[place][2], value
    return None


def _ends(operations: Sequence[Operation], clusters: _Clusters, value: Any) -> list[Operation]:
    """The write of the value, the operation that returned first and the one called last."""
    place = clusters.places[value]
    first, last, write = clusters.first[place], clusters.last[place], clusters.write[place]
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
