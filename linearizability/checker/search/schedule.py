"""When the operations of one part were called and returned, as lists of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.search.operation_table import Transition

AFTER_ALL = 1 << 64  # later than every stamp


class Schedule(NamedTuple):
    """The events of one part; an operation goes by its position among them, which is in the order of a History.

    Numbers in lists and no object an event: a hundred thousand of those would keep the garbage collector busy.
    """

    calls: list[int]  # the times of the calls by position, and one after all
    arrivals: list[int]  # the positions of the calls that matter, by their times, and one past the last
    positions: Sequence[int]  # of the returns, in order
    ends: Sequence[int]  # their times
    returns: Sequence[Any]  # the times of the returns by position
    unknown: frozenset[int]  # positions of the operations of unknown outcome that may have changed something


def schedule_of(
    operations: Sequence[Operation], transitions: Sequence[Transition], info_places: Sequence[int]
) -> Schedule:
    """The schedule of operations in the order of a History; those at the places in `info_places` never returned."""
    count = len(operations)
    returns: Sequence[Any] = [operation.returned for operation in operations]
    positions: Sequence[int] = range(count)
    ends, arrivals = returns, positions
    unknown = frozenset(info_places)
    if info_places:
        positions = [place for place in positions if place not in unknown]
        ends = [returns[place] for place in positions]
        looks = {place for place in info_places if transitions[place].observer}
        if looks:
            unknown -= looks
            arrivals = [place for place in arrivals if place not in looks]
    calls = [operation.call for operation in operations]
    calls.append(AFTER_ALL)
    arrivals = sorted(arrivals, key=calls.__getitem__)
    arrivals.append(count)
    return Schedule(calls, arrivals, positions, ends, returns, unknown)
