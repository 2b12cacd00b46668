"""The search breadth first: all configurations there may be go over the returns together.

The first attempt is frugal: it uses operations of unknown outcome only where nothing else explains a return, and
cuts a frontier that grows past a width. What survives a frugal attempt to the end proves the history Valid. When all
dies, three things are tried in turn.

- Reuse: operations of unknown outcome may happen any number of times. They then leave no trace in a configuration,
  which keeps the frontier small, and what even that cannot explain is a violation.
- Retreat: go back a little, take that stretch with more room, and go on frugally. Then back further.
- Complete attempts from where something was first left out, which leave out nothing, each with more room.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from enum import Enum

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.search.frontier import ENTRY_BYTES, NEVER, Frontier
from raftlog.linearizability.checker.search.linearization_step import StepTooWide, complete
from raftlog.linearizability.checker.search.operation_table import OperationTable, Transition
from raftlog.linearizability.checker.search.schedule import AFTER_ALL, Schedule
from raftlog.linearizability.checker.verdict import Status

_WIDTH = 64  # configurations kept by a frugal attempt
_STEP_WIDTH = 8  # configurations that one return may take, as a multiple of the width
_NEAR = 64  # returns: what dies so close to where something was left out is searched completely at once
_SNAPSHOT_EVERY = 32  # returns
_SNAPSHOTS = 24  # at most so many are kept, sparser the older they are
_RETREATS = 6  # from one place, before giving up on frugality
_FIRST_LOOK = 50_000  # configurations of the first complete attempt
_ACCOUNT_EVERY = 128  # returns or configurations between two looks at the frontier's size and the budget
_OPERATION_BYTES = 120  # what the search itself keeps of an operation


@dataclass(frozen=True, slots=True)
class _Effort:
    """How much an attempt may leave out. With `cuts` it leaves out what is too much; else it is given up there."""

    width: int
    cuts: bool
    pending_limit: int | None = None
    reusable: bool = False
    configurations: int | None = None


_FRUGAL = _Effort(_WIDTH, True, 0)
_REUSING = _Effort(_WIDTH, False, reusable=True)
_COMPLETE = _Effort(_WIDTH, False, configurations=_FIRST_LOOK)


class _End(Enum):
    """How an attempt ended."""

    SURVIVED = 1
    DIED = 2
    GIVEN_UP = 3


@dataclass(slots=True)
class _Place:
    """Where an attempt stands: everything that changes along the history."""

    frontier: Frontier
    bits: dict[int, int]  # operations called, by their place in the order of returns
    called: int = 0
    position: int = 0
    cut: bool = False  # whether something was left out

    def copy(self) -> _Place:
        return _Place(self.frontier.copy(), self.bits.copy(), self.called, self.position, self.cut)


@dataclass(slots=True)
class _Task:
    """A stretch of the history to walk over: from a place to a position, or to the end."""

    place: _Place
    effort: _Effort
    until: int = AFTER_ALL


class BreadthFirst:
    """One part under search. `run` may be called again after OutOfBudget.

    With `traced` the configurations keep how they came about.
    """

    def __init__(
        self,
        table: OperationTable,
        transitions: Sequence[Transition],
        schedule: Schedule,
        states: Sequence[int],
        *,
        traced: bool = False,
    ) -> None:
        self._table = table
        self._transitions = transitions
        self._schedule = schedule
        frontier = Frontier(table, states, traced=traced)
        self._place = _Place(frontier, {})
        self._start: _Place | None = None  # where something was first left out: later attempts begin there
        self._snapshots: list[_Place] = []
        self._steps = self._strategy()
        self._task = next(self._steps)
        self._walking = frontier
        self._accounted = 0
        self._meter: Meter | None = None

    @property
    def frontier(self) -> Frontier:
        """The configurations after the last return survived."""
        return self._place.frontier

    @property
    def explored(self) -> int:
        """The configurations looked at in the attempt that decided."""
        return self._place.frontier.explored

    @property
    def may_be_inexact(self) -> bool:
        """Whether `refused` may be some returns away from the first that nothing survives."""
        return self._place.frontier.reusable

    @property
    def refused(self) -> int:
        """The position of the operation whose return nothing survives, once the status is INVALID."""
        return self._place.position

    def run(self, meter: Meter) -> Status:
        """Search on. Answers VALID or INVALID; raises OutOfBudget and can then be called again."""
        self._meter = meter
        while True:
            try:
                end = self._walk(self._task)
            finally:
                self._walking.checkpoint = None  # it would keep all of this alive
            try:
                self._task = self._steps.send(end)
            except StopIteration as result:
                status: Status = result.value
                return status

    def _strategy(self) -> Generator[_Task, _End, Status]:
        """What to try next, given how the last attempt ended. Leaves the decisive place in `_place`."""
        place = self._place
        end = yield _Task(place, _FRUGAL)
        if not place.cut:
            return Status.VALID if end is _End.SURVIVED else Status.INVALID
        assert self._start is not None
        reusing: _Place | None = self._start.copy() if self._schedule.unknown else None
        reached, retreats = -AFTER_ALL, 0
        while end is not _End.SURVIVED and retreats < _RETREATS:
            died_at = place.position
            retreats = retreats + 1 if died_at <= reached + _NEAR else 0
            reached = max(reached, died_at)
            if reusing is not None:
                end = yield _Task(reusing, _REUSING, died_at + 1)
                if end is _End.DIED:
                    self._place = reusing
                    return Status.INVALID
                if end is _End.GIVEN_UP:
                    reusing = None
            if died_at - self._start.position <= _NEAR and not retreats:
                self._place = place = self._start.copy()
                end = yield _Task(place, _COMPLETE)
                if end is not _End.GIVEN_UP:
                    return Status.VALID if end is _End.SURVIVED else Status.INVALID
            self._place = place = self._retreat(died_at, retreats)
            end = yield _Task(place, _Effort(_WIDTH << retreats, True, 1 + retreats // 2), died_at + _SNAPSHOT_EVERY)
            if end is _End.SURVIVED:
                end = yield _Task(place, _FRUGAL)
        if end is _End.SURVIVED:
            return Status.VALID
        width = _WIDTH
        while end is _End.GIVEN_UP or place.cut:
            width *= 8
            self._place = place = self._start.copy()
            end = yield _Task(place, _Effort(width, False))
        return Status.VALID if end is _End.SURVIVED else Status.INVALID

    def _retreat(self, died_at: int, retreats: int) -> _Place:
        """A place from before: the further back, the more often this was tried."""
        back = died_at - (_SNAPSHOT_EVERY << 2 * retreats)
        while self._snapshots and self._snapshots[-1].position > back:
            self._snapshots.pop()
        assert self._start is not None
        place = (self._snapshots[-1] if self._snapshots else self._start).copy()
        place.cut = True
        return place

    def _walk(self, task: _Task) -> _End:
        """Move over returns. Raises OutOfBudget with the place as it was before the return that was too much."""
        place, effort = task.place, task.effort
        frontier = place.frontier
        frontier.reusable = effort.reusable
        frontier.pending_limit = effort.pending_limit
        frontier.step_limit = effort.width * _STEP_WIDTH
        frontier.checkpoint = self._checkpoint
        frontier.may_cut = place.cut
        self._walking = frontier
        self._accounted = frontier.explored
        enough = None if effort.configurations is None else frontier.explored + effort.configurations
        bits = place.bits
        invoke = frontier.invoke
        calls, arrivals, positions, ends, _, unknown = self._schedule
        called = place.called
        transitions = self._transitions
        index = arrivals[called]
        called_at = calls[index]
        look_at = frontier.explored + _ACCOUNT_EVERY
        begin = bisect_left(positions, place.position)
        end = bisect_left(positions, task.until)
        for position, returned in zip(positions[begin:end], ends[begin:end], strict=True):
            # Equal stamps are concurrent: whatever is called by now may still come first.
            while called_at <= returned:
                bits[index] = invoke(transitions[index], NEVER if index in unknown else index, index)
                called += 1
                index = arrivals[called]
                called_at = calls[index]
            bit = bits[position]
            if bit:
                place.position = position
                place.called = called
                end_of_it = self._complete(bit, place, effort)
                if end_of_it is not _End.SURVIVED:
                    return end_of_it
            del bits[position]
            if not position & 127 or frontier.explored > look_at:
                place.position = position + 1
                place.called = called
                look_at = frontier.explored + _ACCOUNT_EVERY
                if not self._fits(place, effort) or (enough is not None and frontier.explored > enough):
                    return _End.GIVEN_UP
        # A place further on than this stays there: what returned before it is forgotten.
        place.position = max(place.position, min(task.until, len(self._transitions)))
        place.called = called
        return _End.SURVIVED

    def _complete(self, bit: int, place: _Place, effort: _Effort) -> _End:
        """Move over one return."""
        try:
            survived = complete(place.frontier, bit, place.position)
        except StepTooWide:
            if not effort.cuts:
                return _End.GIVEN_UP
            self._leave_out(place)
            survived = complete(place.frontier, bit, place.position)
        return _End.SURVIVED if survived else _End.DIED

    def _leave_out(self, place: _Place) -> None:
        """From here on the attempt is not complete; later ones begin here."""
        if self._start is None:
            self._start = place.copy()
        place.cut = place.frontier.may_cut = True

    def _fits(self, place: _Place, effort: _Effort) -> bool:
        """Look at the budget and at the frontier's size; False when the attempt is to be given up."""
        frontier = place.frontier
        size = frontier.size()
        self._checkpoint(size)
        if size > effort.width:
            if not effort.cuts:
                return False
            self._leave_out(place)
            frontier.truncate(effort.width)
        if effort.cuts and place.cut:
            self._remember(place)
        return True

    def _remember(self, place: _Place) -> None:
        """Keep a place to go back to; of the older half of them every second is enough."""
        snapshots = self._snapshots
        if snapshots and place.position < snapshots[-1].position + _SNAPSHOT_EVERY:
            return
        snapshots.append(place.copy())
        if len(snapshots) > _SNAPSHOTS:
            del snapshots[1 : _SNAPSHOTS // 2 : 2]

    def _checkpoint(self, configurations: int) -> None:
        assert self._meter is not None
        frontier = self._walking
        held = self._table.bytes_used + len(self._transitions) * _OPERATION_BYTES + configurations * ENTRY_BYTES
        spent = frontier.explored - self._accounted
        self._accounted = frontier.explored
        self._meter.check(spent, held)
