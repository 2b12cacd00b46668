"""Which algorithm checks a part, given its model; and the check of a part's prefix."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.budget import Meter
from raftlog.linearizability.checker.history import OK, Key, Operation, TimeUnit
from raftlog.linearizability.checker.model import REFUSED, Call, Model
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.models.sets import NumberedSet, Set
from raftlog.linearizability.checker.parts.log import LogPart
from raftlog.linearizability.checker.parts.part import PartCheck
from raftlog.linearizability.checker.parts.queue import QueuePart
from raftlog.linearizability.checker.parts.register import RegisterPart
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.parts.sets import SetPart
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Status, Witness
from raftlog.linearizability.checker.witness.prefixes import Prefix, bad_prefix

_FEW = 30  # operations whose answers are tried in their order before anything else is set up


def part_check(model: Model[Any], operations: Sequence[Operation]) -> PartCheck:
    """The check for the operations of one part, in the order of a History."""
    # A subclass may promise something else, so only the models themselves have short cuts.
    if type(model) is Log:
        return LogPart(model, operations)
    if type(model) is Register or type(model) is CasRegister:
        return RegisterPart(model, operations)
    if type(model) is Set or type(model) is NumberedSet:
        return SetPart(model, operations)
    if type(model) is Queue:
        return QueuePart(model, operations)
    return SearchPart(model, operations)


def validates_itself(model: Model[Any]) -> bool:
    """Whether the parts of this model validate what they look at, so that nobody need look at all of it before."""
    return type(model) is Log


class PrefixPart:
    """A part of which no more was judged than a prefix, and that is bad."""

    def __init__(self, prefix: Prefix[PartCheck]) -> None:
        self._prefix = prefix
        self._check = prefix.violation
        self.algorithm = self._check.algorithm

    @property
    def configurations(self) -> int:
        return self._check.configurations

    @property
    def past_is_large(self) -> bool:
        return self._check.past_is_large

    def run(self, meter: Meter) -> Status:
        return Status.INVALID

    def end(self) -> int:
        return self._check.end()

    def witness(self, key: Key, unit: TimeUnit, meter: Meter) -> Witness:
        return self._prefix.witness_of_originals(self._check.witness(key, unit, meter))


def bad_before(model: Model[Any], operations: Sequence[Operation], end: int, meter: Meter) -> PrefixPart | None:
    """The part's prefix until just before that time, if nothing explains it. Raises OutOfBudget."""

    def without_answer(operation: Operation) -> Operation:
        return model.uncertain(operation) or operation.of_unknown_outcome()

    def judge(known: list[Operation]) -> PartCheck | None:
        certain = [operation for operation in known if operation.outcome is OK]
        if not certain or (len(certain) <= _FEW and _right_one_by_one(model, certain)):
            return None
        checked = part_check(model, known)
        return checked if checked.run(meter) is Status.INVALID else None

    meter.check(0, 0)
    prefix = bad_prefix(operations, end - 1, without_answer, judge)
    return None if prefix is None else PrefixPart(prefix)


def _right_one_by_one(model: Model[Any], operations: Sequence[Operation]) -> bool:
    """Whether the answers are right in the order of the returns: then a few operations need no check of their own."""
    state = model.initial_state()
    for operation in operations:
        state = model.step(state, Call(operation.function, freeze(operation.input), freeze(operation.output)))
        if state is REFUSED:
            return False
    return True
