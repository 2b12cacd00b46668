"""What the check of one part can tell, whichever algorithm it is done by."""

from __future__ import annotations

from typing import Protocol

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.history import Key, TimeUnit
from raftlog.linearizability.checker.verdict import Status, Witness


class Evidence(Protocol):
    """Why a part is invalid."""

    @property
    def past_is_large(self) -> bool:
        """Whether so many states came up, or so little is known of them, that a long past cannot be cut off."""

    def end(self) -> int:
        """The return by which the violation is certain; orders the bad parts by how little of them is needed."""

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        """In words, with the operations that show it."""


class PartCheck(Evidence, Protocol):
    """One part under check. `run` may be called again after OutOfBudget; the evidence is there once it answered
    INVALID.
    """

    algorithm: str

    @property
    def configurations(self) -> int:
        """How many were looked at."""

    def run(self, meter: Meter) -> Status:
        """Answers VALID or INVALID, or raises OutOfBudget."""
