"""A register's answer that no write of its value can explain, found without search.

A necessary condition only, for histories whose values repeat and on which the search takes long: an answer needs a
write of its value that was called before the answer returned, and that no other write followed wholly before the answer
was asked for. What compare-and-set found is an answer, and what it left is a write. It is what
remains of Gibbons and Korach's clusters (`zones.py`) when a value has several writes.

Time n log n. Knows: writes by value and by time. Refuses to know: how a violation is told, and whether the rest of the
history can be explained.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

from raftlog.linearizability.checker.history import FAIL, OK, Operation
from raftlog.linearizability.checker.jsonl import freeze
from raftlog.linearizability.checker.zones import ZoneViolation


class _Sources:
    """The writes of one value, in the order of their calls; of each, the latest end among it and those before."""

    __slots__ = ("calls", "latest", "writes")

    def __init__(self, writes: list[Operation]) -> None:
        self.writes = sorted(writes, key=lambda write: write.call)
        self.calls = [write.call for write in self.writes]
        self.latest = list(accumulate(self.writes, _later_end))

    def until(self, time: int) -> Operation | None:
        """Of those called by then, the one that may have taken effect last."""
        place = bisect_right(self.calls, time) - 1
        return self.latest[place] if place >= 0 else None


class _Certain:
    """All writes that surely took effect, in the order of their returns; of each, the latest call up to it."""

    __slots__ = ("latest", "returns")

    def __init__(self, writes: list[Operation]) -> None:
        writes = sorted(writes, key=lambda write: write.end)
        self.returns = [write.end for write in writes]
        self.latest = list(accumulate(writes, _later_call))

    def before(self, time: int) -> Operation | None:
        """Of those over before then, the one that was called last."""
        place = bisect_left(self.returns, time) - 1
        return self.latest[place] if place >= 0 else None


def _later_end(one: Operation, other: Operation) -> Operation:
    return other if other.end > one.end else one


def _later_call(one: Operation, other: Operation) -> Operation:
    return other if other.call > one.call else one


def check_overwritten(operations: Sequence[Operation], initial: Any = None) -> ZoneViolation | None:
    """The first answer, in the order of the operations, that no write explains; None says nothing about the history."""
    initial = freeze(initial)
    by_value: dict[Any, list[Operation]] = {}
    certain: list[Operation] = []
    for write, value in _writes(operations):
        by_value.setdefault(value, []).append(write)
        if write.outcome is OK:
            certain.append(write)
    overwriting = _Certain(certain)
    sources = {value: _Sources(writes) for value, writes in by_value.items()}
    for answer, value in _answers(operations):
        blocker = overwriting.before(answer.call)
        if value == initial and blocker is None:
            continue
        written = sources.get(value)
        source = written.until(answer.returned or 0) if written is not None else None
        if source is not None and (blocker is None or source.end >= blocker.call):
            continue
        if source is None and value != initial:
            if written is None:
                return ZoneViolation("unwritten", (value,), (answer,))
            return ZoneViolation("early", (value,), (written.writes[0], answer))
        assert blocker is not None
        found = (blocker, answer) if source is None else (source, blocker, answer)
        return ZoneViolation("overwritten", (value, _written(blocker)), found)
    return None


def _writes(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Any]]:
    """What did or may have left a value, with the value."""
    for operation in operations:
        if operation.outcome is FAIL or operation.function == "read" or operation.output is False:
            continue
        yield operation, _written(operation)


def _written(operation: Operation) -> Any:
    return freeze(operation.input[1] if operation.function == "cas" else operation.input)


def _answers(operations: Sequence[Operation]) -> Iterator[tuple[Operation, Any]]:
    """What surely found a value, with the value."""
    for operation in operations:
        if operation.outcome is not OK:
            continue
        if operation.function == "read":
            yield operation, freeze(operation.output)
        elif operation.function == "cas" and operation.output is not False:
            yield operation, freeze(operation.input[0])
