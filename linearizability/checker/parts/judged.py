"""A part that is judged without a search where its values allow it, and what is found so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.history import Key, Operation, TimeUnit
from raftlog.linearizability.checker.log.witness import known_at
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.parts.part import Evidence
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.verdict import Status, Witness
from raftlog.linearizability.checker.witness.prefixes import Prefix, shortest_bad_prefix
from raftlog.linearizability.checker.witness.reduce import Core, reduce_found
from raftlog.linearizability.checker.witness.witness import witness_of


class JudgedPart:
    """A part that is judged exactly where its values allow it, else by search. `algorithm` says how."""

    algorithm: str

    def __init__(self, model: Model[Any], operations: Sequence[Operation]) -> None:
        self._model = model
        self._operations = operations
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
            self._evidence = self._search = SearchPart(self._model, self._operations)
        return self._search.run(meter)

    def _judge(self, meter: Meter) -> Evidence | None:
        """What is wrong, if anything; sets the algorithm to "search" where None says nothing."""
        raise NotImplementedError


class Violation(Protocol):
    """What an exact check finds: a few operations that nothing explains."""

    @property
    def kind(self) -> str: ...

    @property
    def operations(self) -> tuple[Operation, ...]: ...


V = TypeVar("V", bound=Violation)


@dataclass(frozen=True, slots=True)
class ExactEvidence(Generic[V]):
    """What an exact check found, by which `judge` it did, and how to `tell` it.

    `changing` are the functions that do not only look. `later` gives a violation about a value that nobody had written
    by then the operation that wrote it later, if this is the one.
    """

    model: Model[Any]
    operations: Sequence[Operation]
    violation: V
    changing: tuple[str, ...]
    judge: Callable[[list[Operation]], V | None]
    later: Callable[[V, Operation], V | None]
    tell: Callable[[V, TimeUnit], str]

    past_is_large = False

    def end(self) -> int:
        return max(map(known_at, self.violation.operations))

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        prefix = shortest_bad_prefix(self.operations, self.changing, self.end(), self.judge, meter)
        if prefix is None:
            core = reduce_found(self.model, self.violation.operations, meter)
            return witness_of(core, key, self.end(), unit, self.tell(self.violation, unit))
        core, violation = self.reduced(prefix, meter)
        if violation.kind == "unwritten":
            found = (self.later(violation, operation) for operation in self.operations)
            violation = next(filter(None, found), violation)
        return prefix.witness_of_originals(witness_of(core, key, prefix.end, unit, self.tell(violation, unit)))

    def reduced(self, prefix: Prefix[V], meter: Meter) -> tuple[Core, V]:
        """The core of a prefix, and what is wrong with it."""
        return reduce_found(self.model, prefix.violation.operations, meter), prefix.violation
