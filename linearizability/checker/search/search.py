"""The search over one part of a finished history.

The first is depth first, because the first guess is mostly right (`depth_first`). What would take it long is for the
search breadth first, which goes on where there are many orders (`breadth_first`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.history import INFO, Operation, places_of
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.search.breadth_first import BreadthFirst
from raftlog.linearizability.checker.search.depth_first import DepthFirst, GivenUp
from raftlog.linearizability.checker.search.frontier import Frontier
from raftlog.linearizability.checker.search.operation_table import OperationTable
from raftlog.linearizability.checker.search.schedule import schedule_of
from raftlog.linearizability.checker.verdict import Status

_OPERATION_BYTES = 120  # what the search itself keeps of an operation
_VALID, _INVALID = Status.VALID, Status.INVALID  # to ask the class takes half a microsecond
_CHOICE_BYTES = 1_000  # a choice that can be come back to, with the configurations there, about


class Search:
    """One part under search.

    `operations` lie in the order of a History and hold no failed ones; there is at least one. `run` may be called
    again after OutOfBudget.
    """

    def __init__(self, model: Model[Any], operations: Sequence[Operation], *, traced: bool = False) -> None:
        self.table = OperationTable(model)
        info_places = places_of(INFO, operations)
        self.transitions = self.table.intern(operations, info_places)
        self.table.look_ahead(self.transitions, operations)
        self._schedule = schedule_of(operations, self.transitions, info_places)
        numbers = dict.fromkeys(map(self.table.number, model.initial_states()))
        self._states = [number for number in numbers if number >= 0]
        self._traced = traced
        self._depth = DepthFirst(self.table, self.transitions, self._schedule)
        self._breadth: BreadthFirst | None = None
        self._attempt = iter(()) if traced else self._depth_first()
        self._status: Status | None = None

    @property
    def frontier(self) -> Frontier:
        """The configurations after the last return survived, of a search that is traced."""
        assert self._breadth is not None
        return self._breadth.frontier

    @property
    def explored(self) -> int:
        """The configurations looked at in the attempt that decided."""
        return self._depth.explored if self._breadth is None else self._breadth.explored

    @property
    def may_be_inexact(self) -> bool:
        """Whether `refused` may be some returns away from the first that nothing survives."""
        return self.table.killed or (self._breadth is not None and self._breadth.may_be_inexact)

    @property
    def refused(self) -> int:
        """The position of the operation whose return nothing survives, once the status is INVALID."""
        return self._depth.refused if self._breadth is None else self._breadth.refused

    def run(self, meter: Meter) -> Status:
        """Search on. Answers VALID or INVALID; raises OutOfBudget and can then be called again."""
        meter.check(0, self._bytes(0))
        for spent, choices in self._attempt:
            meter.check(spent, self._bytes(choices))
        if self._status is None:
            if self._breadth is None:
                self._breadth = BreadthFirst(
                    self.table, self.transitions, self._schedule, self._states, traced=self._traced
                )
            return self._breadth.run(meter)
        return self._status

    def _bytes(self, choices: int) -> int:
        return self.table.bytes_used + len(self.transitions) * _OPERATION_BYTES + choices * _CHOICE_BYTES

    def _depth_first(self) -> Iterator[tuple[int, int]]:
        """Search depth first. Yields how many configurations were looked at since the last time and how many
        choices are remembered. Sets the status if it comes to one."""
        depth = self._depth
        accounted = 0
        try:
            for choices in depth.walk(self._states):
                yield depth.explored - accounted, choices
                accounted = depth.explored
            self._status = _VALID if depth.survived else _INVALID
        except GivenUp:
            yield depth.explored - accounted, 0
