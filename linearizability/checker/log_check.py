"""Append-only logs, checked exactly and without search, as a stream.

For an operation y let need(y) be the length that the log has at least once y is done: an append at offset o of c
records needs o + c, a read of [f, f + m) needs f + m. Let room(y) be the length that the log has at most just before
y: for an append o, for a read that saw the end f + m, for other reads no bound. If every offset holds one record,
appended once, without gap, and every end that was seen is the end of a batch, then the history is linearizable
unless some x returned before y was called although need(x) > room(y). So it is enough to keep the greatest need
returned so far. Appends of unknown outcome: one whose records were read has the offset where they were read and
never returns; the others are dropped, unless offsets are missing that they must fill (`log_gaps`).

Memory grows with the log, or stays flat when only the last records are remembered. Knows: offsets, needs and rooms.
Refuses to know: how a violation is told.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from raftlog.linearizability.checker.history import INFO, OK, Operation

Kind = Literal["late", "conflict", "overlap", "inside", "unexplained", "early", "doubled", "gap"]
_returned = attrgetter("returned")
_LEAP = 1024  # offsets by which one operation may be ahead of all others without being looked at
_OFFSET_BYTES = 18  # two places in lists and a byte, with what lists keep in reserve
_WAITING_BYTES = 100
_LOOK_AFTER = 256  # reads that wait before they are looked through


class TooFar(Exception):
    """An offset lies so far ahead of all others that memory would be wasted on those between: see `log_sparse`."""


class Violated(Exception):
    """Raised inside the check, to leave it from any depth."""

    def __init__(self, violation: LogViolation) -> None:
        self.violation = violation
        super().__init__(violation.kind)


@dataclass(frozen=True, slots=True)
class LogViolation:
    """Why a log history is not linearizable.

    "late": `operations[0]` returned before `operations[1]` was called, but needs more than the second has room for.
    "conflict": an operation tells another record of the offset than an earlier one did. "overlap": two appends were
    given one offset. "inside": an end was seen inside a batch. "unexplained": a record was read that no append
    explains. "early": what `operations[2]` read at the offset can only come from `operations[1]`, an append of unknown
    outcome, but `operations[0]` needs more than that append had room for, and returned before it was called.
    "doubled": an append's records were read at two places. "gap": nobody appended the offset.
    """

    kind: Kind
    offset: int
    operations: tuple[Operation, ...]


class LogCheck:
    """One log, fed with operations in the order of their returns.

    With `complete` False other clients may have appended what nobody here did. With `remember` only about so many of
    the newest records are compared with what is read later. An offset more than `leap` ahead of all others raises
    TooFar.

    Invariant: every offset before `owned` has its append, and `contents` has their records from `base` on;
    `batch_ends[i]` is 1 where `base + i` is the end of a batch; `first_beyond[i]` is the operation that returned
    first among those that need more than `base + i` records. Appends further on are `ahead`, and reads further on
    `waiting` until they can be compared.
    """

    def __init__(self, *, complete: bool = True, remember: int | None = None, leap: int = _LEAP) -> None:
        self.complete = complete
        self.violation: LogViolation | None = None
        self.contents: list[Any] = []
        self.batch_ends = bytearray(b"\1")
        self.first_beyond: list[Operation] = []
        self.base = 0
        self.owned = 0
        self.ahead: dict[int, Operation] = {}  # by their first offset
        self.waiting: list[Operation] = []
        self.unknown: list[Operation] = []  # appends of unknown outcome
        self.unchecked = 0  # reads of records that are forgotten
        self._remember = remember
        self._leap_limit = leap

    @property
    def greatest(self) -> int:
        """The greatest need of any operation that returned."""
        return self.base + len(self.first_beyond)

    def extend(self, operations: Iterable[Operation]) -> LogViolation | None:
        """Take completed operations in the order of their returns. Answers the first violation, for good."""
        if self.violation is None:
            try:
                self._extend(operations)
            except Violated as found:
                self.violation = found.violation
        return self.violation

    def _extend(self, operations: Iterable[Operation]) -> None:
        contents, batch_ends, first_beyond = self.contents, self.batch_ends, self.first_beyond
        base, owned = self.base, self.owned
        ahead, waiting = self.ahead, self.waiting
        greatest = self.greatest
        look_at = len(waiting) + _LOOK_AFTER
        ok = OK
        for operation in operations:
            if operation.outcome is not ok:
                if operation.outcome is INFO and operation.function == "append":
                    self.unknown.append(operation)
                continue
            if operation.function == "append":
                first = room = operation.output
                records = operation.input
                need = first + len(records)
                bounded = True
                if first == owned and records:
                    contents += records
                    batch_ends += _batch(len(records))
                    owned = self.owned = need
                    if owned in ahead:
                        self.own(ahead.pop(owned))
                        owned = self.owned
                elif first > owned and records and first not in ahead:
                    ahead[first] = operation
                else:
                    self._odd_append(operation)
            elif operation.function == "read":
                first = operation.input
                records, bounded = operation.output
                need = room = first + len(records)
                if need > owned:
                    waiting.append(operation)
                    if len(waiting) > look_at:
                        waiting = self.look_through()
                        look_at = 2 * len(waiting) + _LOOK_AFTER
                elif contents[first - base : need - base] != records or (bounded and not batch_ends[need - base]):
                    self.compare(operation)
            else:
                need = room = operation.output
                bounded = True
                if need > owned:
                    waiting.append(operation)
                    if len(waiting) > look_at:
                        waiting = self.look_through()
                        look_at = 2 * len(waiting) + _LOOK_AFTER
                elif not batch_ends[need - base]:
                    self.compare(operation)
            # Only returns strictly before the call count: equal stamps are concurrent.
            if bounded and room < greatest and first_beyond[room - base].returned < operation.call:
                self._late(room, operation)
            if need > greatest:
                if need - greatest > _LEAP:
                    self._leap(operation, need - greatest)
                first_beyond += [operation] * (need - greatest)
                greatest = need

    @property
    def bytes_used(self) -> int:
        """About how much memory the check holds beside the operations themselves."""
        waiting = len(self.ahead) + len(self.waiting) + len(self.unknown)
        return _OFFSET_BYTES * len(self.first_beyond) + _WAITING_BYTES * waiting

    def _leap(self, operation: Operation, distance: int) -> None:
        told = 0
        if operation.function == "append":
            told = len(operation.input)
        elif operation.function == "read":
            told = len(operation.output[0])
        if distance > told + self._leap_limit:
            raise TooFar

    def own(self, operation: Operation) -> None:
        """The append stands at `owned`, and with it those that were waiting for it."""
        contents, batch_ends, ahead = self.contents, self.batch_ends, self.ahead
        owned = self.owned
        following: Operation | None = operation
        while following is not None:
            records = following.input
            contents += records
            batch_ends += _batch(len(records))
            owned += len(records)
            following = ahead.pop(owned, None)
        self.owned = owned

    def look_through(self) -> list[Operation]:
        """Compare the waiting reads with the records that have their appends by now; answers those that still wait."""
        contents, batch_ends = self.contents, self.batch_ends
        base, owned = self.base, self.owned
        still = []
        for operation in self.waiting:
            if operation.function != "read":
                if operation.output > owned:
                    still.append(operation)
                else:
                    self.compare(operation)
                continue
            first = operation.input
            records, bounded = operation.output
            need = first + len(records)
            if need > owned:
                still.append(operation)
            elif contents[first - base : need - base] != records or (bounded and not batch_ends[need - base]):
                self.compare(operation)
        self.waiting = still
        return still

    def compare(self, operation: Operation) -> None:
        """Compare an operation with the records that are there; all it tells of have their appends."""
        end = end_of(operation)
        if operation.function == "read":
            records, bounded = operation.output
            first: int = operation.input
            if first < self.base:
                self.unchecked += 1
                records = records[self.base - first :]
                first = self.base
            for place, record in enumerate(records, first - self.base):
                if self.contents[place] != record:
                    raise Violated(LogViolation("conflict", place + self.base, (operation,)))
            if not bounded:
                return
        if end >= self.base and not self.batch_ends[end - self.base]:
            raise Violated(LogViolation("inside", end, (operation,)))

    def _odd_append(self, operation: Operation) -> None:
        if operation.input:
            raise Violated(LogViolation("overlap", operation.output, (operation,)))
        # It appended nothing and only saw the end.
        if operation.output > self.owned:
            self.waiting.append(operation)
        else:
            self.compare(operation)

    def _late(self, room: int, operation: Operation) -> None:
        place = room - self.base
        earlier = self.first_beyond[max(place, 0)]
        if place < 0 and not earlier.precedes(operation):
            self.unchecked += 1
            return
        raise Violated(LogViolation("late", room, (earlier, operation)))

    def bound_at(self, call: int) -> tuple[int, Operation | None]:
        """The greatest need returned before the call, and who needed it."""
        place = bisect_left(self.first_beyond, call, key=_returned)
        return (self.base + place, self.first_beyond[place - 1]) if place else (self.base, None)

    def forget(self) -> None:
        """Drop what no later operation can be compared with. Without `remember`, nothing is ever dropped."""
        if self._remember is None or self.owned - self.base <= 2 * self._remember:
            return
        self.look_through()
        drop = self.owned - self.base - self._remember
        del self.contents[:drop]
        del self.first_beyond[:drop]
        del self.batch_ends[:drop]
        self.base += drop


def _batch(count: int) -> bytes:
    """The marks of a batch: 1 at its end."""
    return _BATCHES[count] if count < len(_BATCHES) else bytes(count - 1) + b"\1"


_BATCHES = [b"", *(bytes(count) + b"\1" for count in range(64))]


def end_of(operation: Operation) -> int:
    """The offset behind the last record that the operation tells of."""
    end: int
    if operation.function == "read":
        end = operation.input + len(operation.output[0])
    elif operation.function == "append":
        end = operation.output + len(operation.input)
    else:
        end = operation.output
    return end
