"""The search over one part of a finished history.

Knows: in which order calls and returns move the frontier, when to try with few configurations first, and how to
stop and go on. Refuses to know: what the frontier does inside, and how a result is explained.

A frontier that grows past `width` is cut to the configurations that used up the fewest operations of unknown
outcome. If what is left survives to the end, the history is Valid all the same; if it dies, the search goes back to
where it first cut and keeps more. So a history with many ways to explain it costs little, and only one that cannot
be explained is searched whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raftlog.linearizability.checker.alphabet import Alphabet, Letter
from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.frontier import ENTRY_BYTES, NEVER, Frontier
from raftlog.linearizability.checker.history import INFO, Operation
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.verdict import Status

FIRST_WIDTH = 256
_WIDEN = 8
_ACCOUNT_EVERY = 512  # returns or configurations between two looks at the budget
_OPERATION_BYTES = 120  # what the search itself keeps of an operation


@dataclass(slots=True)
class _Place:
    """Where a run stands: everything that changes along the history."""

    frontier: Frontier
    bits: dict[int, int]  # operations called, by their place in the order of returns
    called: int = 0
    position: int = 0
    truncated: bool = False

    def copy(self) -> _Place:
        return _Place(self.frontier.copy(), self.bits.copy(), self.called, self.position, self.truncated)


class Search:
    """One part under search.

    `operations` lie in the order of a History and hold no failed ones. `run` may be called again after OutOfBudget.
    """

    def __init__(self, model: Model[Any], operations: Sequence[Operation], *, traced: bool = False) -> None:
        self.operations = operations
        self.alphabet = Alphabet(model)
        self._traced = traced
        self._calls = [operation.call for operation in operations]
        self._order = sorted(range(len(operations)), key=self._calls.__getitem__)
        self._optional = [operation.outcome is INFO for operation in operations]
        self.alphabet.look_ahead(operations)
        letter = self.alphabet.letter
        self._letters: list[Letter] = [letter(operation) for operation in operations]
        numbers = dict.fromkeys(self.alphabet.number(state) for state in model.initial_states())
        frontier = Frontier(self.alphabet, [number for number in numbers if number >= 0], traced=traced)
        self._place = _Place(frontier, {})
        self._cut: _Place | None = None  # where the frontier was first cut
        self._width = FIRST_WIDTH
        self._accounted = 0
        self._meter: Meter | None = None

    @property
    def frontier(self) -> Frontier:
        """The configurations after the last return survived."""
        return self._place.frontier

    @property
    def refused(self) -> Operation | None:
        """The operation whose return nothing survives, once the status is INVALID."""
        position = self._place.position
        return self.operations[position] if position < len(self.operations) else None

    def run(self, meter: Meter) -> Status:
        """Search on. Answers VALID or INVALID; raises OutOfBudget and can then be called again."""
        self._meter = meter
        while True:
            if self._walk(self._place):
                return Status.VALID
            if not self._place.truncated:
                return Status.INVALID
            assert self._cut is not None
            if any(self._optional) and not self._explained_by_reuse():
                return Status.INVALID
            self._width *= _WIDEN
            self._place = self._cut.copy()

    def _explained_by_reuse(self) -> bool:
        """Whether the rest survives, or might, if operations of unknown outcome could happen more than once.

        They then leave no trace in a configuration, which keeps the frontier small; and what even that cannot
        explain is a violation.
        """
        assert self._cut is not None
        place = self._cut.copy()
        place.frontier.reusable = True
        if self._walk(place) or place.truncated:
            return True
        self._place = place
        return False

    def _walk(self, place: _Place) -> bool:
        """Move over the returns that are left; False at the first that nothing survives."""
        operations = self.operations
        optional = self._optional
        frontier = place.frontier
        frontier.checkpoint = self._checkpoint
        bits = place.bits
        account_at = place.position + _ACCOUNT_EVERY
        for position in range(place.position, len(operations)):
            if optional[position]:
                continue
            place.position = position
            returned = operations[position].returned
            assert returned is not None
            self._call_until(place, returned)
            if not frontier.retire(bits[position], position):
                return False
            del bits[position]
            place.position = position + 1
            if position >= account_at or frontier.explored - self._accounted > _ACCOUNT_EVERY:
                account_at = position + _ACCOUNT_EVERY
                self._account(place)
        place.position = len(operations)
        return True

    def _call_until(self, place: _Place, time: int) -> None:
        """Admit every operation called up to and including the time: equal stamps are concurrent."""
        order = self._order
        calls = self._calls
        letters = self._letters
        optional = self._optional
        admit = place.frontier.admit
        called = place.called
        while called < len(order):
            index = order[called]
            if calls[index] > time:
                break
            called += 1
            letter = letters[index]
            if not optional[index]:
                place.bits[index] = admit(letter, index, index)
            elif not letter.observer:
                admit(letter, NEVER, index)
        place.called = called

    def _account(self, place: _Place) -> None:
        frontier = place.frontier
        size = frontier.size()
        self._checkpoint(size)
        if size <= self._width:
            return
        if self._cut is None:
            self._cut = place.copy()
        frontier.truncate(self._width)
        place.truncated = True

    def _checkpoint(self, configurations: int) -> None:
        assert self._meter is not None
        frontier = self._place.frontier
        held = self.alphabet.bytes_used + len(self.operations) * _OPERATION_BYTES + configurations * ENTRY_BYTES
        spent = frontier.explored - self._accounted
        self._accounted = frontier.explored
        self._meter.check(max(spent, 0), held)
