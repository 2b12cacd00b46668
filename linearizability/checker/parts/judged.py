"""A part that is judged without a search where its values allow it."""

from __future__ import annotations

from typing import Protocol

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.history import Key, TimeUnit
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.verdict import Status, Witness


class Evidence(Protocol):
    """Why a part is invalid, found without a search; a search tells the same of itself."""

    @property
    def past_is_large(self) -> bool:
        """See PartCheck."""

    def end(self) -> int:
        """See PartCheck."""

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        """See PartCheck."""


class JudgedPart:
    """A part that is judged exactly where its values allow it, else by search. `algorithm` says how."""

    def __init__(self, algorithm: str) -> None:
        self.algorithm = algorithm
        self._evidence: Evidence | None = None
        self._search: SearchPart | None = None

    @property
    def configurations(self) -> int:
        return 0 if self._search is None else self._search.configurations

    @property
    def past_is_large(self) -> bool:
        return self._evidence is not None and self._evidence.past_is_large

    def end(self) -> int:
        assert self._evidence is not None
        return self._evidence.end()

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        assert self._evidence is not None
        return self._evidence.witness(key, unit, meter)

    def run(self, meter: Meter) -> Status:
        if self._search is None:
            self._evidence = self._judge(meter)
            if self.algorithm != "search" or self._evidence is not None:
                return Status.VALID if self._evidence is None else Status.INVALID
            self._evidence = self._search = self._searched()
        return self._search.run(meter)

    def _judge(self, meter: Meter) -> Evidence | None:
        """What is wrong, if anything; sets the algorithm to "search" where None says nothing."""
        raise NotImplementedError

    def _searched(self) -> SearchPart:
        raise NotImplementedError
