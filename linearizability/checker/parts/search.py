"""A part of any model, by search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.history import FAIL, Key, Operation, TimeUnit, without
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.search.search import Search
from raftlog.linearizability.checker.verdict import Status, Witness
from raftlog.linearizability.checker.witness.reduce import STARTS_LIMIT, Past, reduce
from raftlog.linearizability.checker.witness.witness import lone_words, witness_of


class SearchPart:
    """Any model, by search."""

    def __init__(self, model: Model[Any], operations: Sequence[Operation]) -> None:
        self.algorithm = "search"
        self._model = model
        self._operations = without(FAIL, operations)
        self._search: Search | None = None

    @property
    def configurations(self) -> int:
        return 0 if self._search is None else self._search.explored

    @property
    def past_is_large(self) -> bool:
        search = self._search
        return search is not None and (search.table.killed or len(search.table.states) > STARTS_LIMIT)

    def run(self, meter: Meter) -> Status:
        if self._search is None:
            self._search = Search(self._model, self._operations)
        return self._search.run(meter)

    def end(self) -> int:
        assert self._search is not None
        end = self._operations[self._search.refused].returned
        assert end is not None
        return end

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        search = self._search
        assert search is not None
        # A state that was refused because of what comes later is missing among those the object may have had.
        states = () if search.table.killed else search.table.states
        past = Past(self._model, self._operations, states, not search.may_be_inexact)
        position, core = reduce(past, search.refused, meter)
        end = self._operations[position].returned
        assert end is not None
        return witness_of(core, key, end, unit, lone_words(core, self._operations))
