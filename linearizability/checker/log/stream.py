"""Append-only logs, checked exactly and without search, as a stream.

For an operation y let need(y) be the length that the log has at least once y is done: an append at offset o of c
records needs o + c, a read of [f, f + m) needs f + m. Let room(y) be the length that the log has at most just before
y: for an append o, for a read that saw the end f + m, for other reads no bound. If every offset holds one record,
appended once, without gap, and every end that was seen is the end of a batch, then the history is linearizable
unless some x returned before y was called although need(x) > room(y). So it is enough to keep the greatest need
returned so far. Appends of unknown outcome: one whose records were read has the offset where they were read and
never returns; the others are dropped, unless offsets are missing that they must fill (`log_gaps`).

Memory grows with the log, or stays flat when only the last records are remembered.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.values import freeze

Kind = Literal["late", "conflict", "overlap", "inside", "unexplained", "early", "doubled", "gap"]
_returned = attrgetter("returned")
_LEAP = 1024  # offsets by which one operation may be ahead of all others without being looked at
_TOGETHER = 512  # operations taken in one go: few enough that the processor still has them at hand for the next step
_LOOK_AFTER = 64  # reads that wait before they are looked through
_BEHIND = 4096  # offsets without an append by which the log may be ahead before late operations are looked for at once
_SPARE = 32  # places kept free behind the greatest need
_OFFSET_BYTES = 9  # a place in a list, with what lists keep in reserve
_WAITING_BYTES = 100
_NEVER = float("inf")
_INSIDE = -_NEVER


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
    the newest records are compared with what is read later. An offset more than `leap` ahead of all others, and of
    the places kept free, raises TooFar.

    Invariant: every offset before `owned` has its append, and `contents` has their records from `base` on. Appends
    further on stand in `ahead`, at their offset less `base`, and what else tells of offsets further on is `waiting`
    until it can be compared. `growers` are the operations that needed more than all that had returned before, `needs`
    how much, and `_following` is the place of the first that needs more than `owned`. `outgrown[i]`, for the edge of a
    batch up to `owned`, is when the first operation returned that needs more than `base + i`: whoever saw the log end
    there and was called later is late. Where no edge is, it is less than any time.
    """

    def __init__(self, *, complete: bool = True, remember: int | None = None, leap: int = _LEAP) -> None:
        self.complete = complete
        self.violation: LogViolation | None = None
        self.base = 0
        self.owned = 0
        self.greatest = 0  # the greatest need of any operation that returned
        self.contents: list[Any] = []
        self.ahead: list[Operation | None] = [None]
        self.outgrown: list[float] = [_NEVER]
        self.growers: list[Operation] = []
        self.needs: list[int] = []
        self.unknown: dict[Operation, None] = {}  # appends of unknown outcome
        self.unchecked = 0  # reads of records that are forgotten
        self._following = 0
        self._reads: list[Operation] = []
        self._ends: list[Operation] = []  # and appends of nothing, which tell no more than an end
        self._appends = 0  # taken so far, about
        self._looked_until = 0
        self._searched_in = self._reads
        self._searched_for = self._searched = 0
        self._is_behind = False
        self._look_at = _LOOK_AFTER
        self._remember = remember
        self._leap_limit = leap

    def extend(self, operations: Sequence[Operation]) -> LogViolation | None:
        """Take completed operations in the order of their returns. Answers the first violation, for good."""
        try:
            for begin in range(0, len(operations), _TOGETHER):
                if self.violation is None:
                    self._extend(operations[begin : begin + _TOGETHER])
        except Violated as found:
            self.violation = found.violation
        return self.violation

    def _extend(self, operations: Sequence[Operation]) -> None:
        reads, ends = self._take(operations)
        self._appends += len(operations) - len(reads) - len(ends)
        self._own_following()
        self._reads += self._compare_reads(reads)
        self._ends += self._compare_ends(ends)
        if len(self._reads) + len(self._ends) > self._look_at:
            self.look_through()
        self._look_behind(operations)

    def _take(self, operations: Sequence[Operation]) -> tuple[list[Operation], list[Operation]]:
        """Note what every operation needs, and where the appends stand. Answers the reads, and who only saw an end."""
        ahead, growers, needs = self.ahead, self.growers, self.needs
        base, owned, greatest = self.base, self.owned - self.base, self.greatest
        reserved = base + len(ahead)
        reads: list[Operation] = []
        ends: list[Operation] = []
        ok = OK
        # Every step in here counts: it is done for each operation, and nothing is called.
        for operation in operations:
            if operation.outcome is not ok:
                if operation.outcome is INFO and operation.function == "append":
                    self.unknown[operation] = None
                continue
            function = operation.function
            if function == "append":
                first = operation.output
                end = first + len(operation.input)
                if end >= reserved:
                    reserved = self._reserve(operation, end - greatest)
                if end > greatest:
                    growers.append(operation)
                    needs.append(end)
                    greatest = end
                place = first - base if base else first
                if end == first:
                    ends.append(operation)
                elif place < owned or ahead[place] is not None:
                    raise Violated(LogViolation("overlap", first, (operation,)))
                else:
                    ahead[place] = operation
                continue
            if function == "read":
                reads.append(operation)
                end = operation.input + len(operation.output[0])
            else:
                ends.append(operation)
                end = operation.output
            if end > greatest:
                if end >= reserved:
                    reserved = self._reserve(operation, end - greatest)
                growers.append(operation)
                needs.append(end)
                greatest = end
        self.greatest = greatest
        return reads, ends

    def _reserve(self, operation: Operation, distance: int) -> int:
        """Make room for offsets so far ahead of all others. Answers how far there is room now."""
        told = end_of(operation) - (operation.input if operation.function == "read" else operation.output)
        if distance > told + self._leap_limit:
            raise TooFar
        self._make_room(distance)
        return self.base + len(self.ahead)

    def _make_room(self, more: int) -> None:
        more += _SPARE + len(self.ahead) // 8
        self.ahead += [None] * more
        self.outgrown += [_INSIDE] * more

    def _own_following(self) -> None:
        """Move `owned` over the appends that follow it without a gap, each of which must not be late."""
        contents, ahead, outgrown, growers, needs = self.contents, self.ahead, self.outgrown, self.growers, self.needs
        base, following = self.base, self._following
        if following == len(needs):
            return
        owned = begin = self.owned - base
        need = needs[following] - base
        since: Any = growers[following].returned
        while operation := ahead[owned]:
            # It has returned itself, so some grower needs more than what was there before it.
            while need <= owned:
                following += 1
                need = needs[following] - base
                since = growers[following].returned
            # Only returns strictly before the call count: equal stamps are concurrent.
            if since < operation.call:
                raise Violated(LogViolation("late", operation.output, (growers[following], operation)))
            outgrown[owned] = since
            ahead[owned] = None
            contents += operation.input
            owned = len(contents)
        while following < len(needs) and needs[following] - base <= owned:
            following += 1
        outgrown[owned] = _NEVER if following == len(needs) else growers[following].returned  # type: ignore[assignment]
        self.owned, self._following = base + owned, following
        if any(ahead[begin:owned]):
            inside = next(filter(None, ahead[begin:owned]))
            raise Violated(LogViolation("overlap", inside.output, (inside,)))

    def _compare_reads(self, reads: list[Operation]) -> list[Operation]:
        """Compare the reads of records that have their appends by now. Answers the others."""
        contents, outgrown = self.contents, self.outgrown
        base, owned = self.base, self.owned - self.base
        still: list[Operation] = []
        if base:
            reads = self._without_forgotten(reads)
        for operation in reads:
            records, saw_end = operation.output
            place = operation.input - base if base else operation.input
            count = len(records)
            end = place + count
            if end > owned:
                still.append(operation)
            elif count > 1:
                if contents[place:end] != records or (saw_end and outgrown[end] < operation.call):
                    self._judge(operation)
            # Without a slice, for those who ask at the end of the log and get a record or none.
            elif (count and contents[place] != records[0]) or (saw_end and outgrown[end] < operation.call):
                self._judge(operation)
        return still

    def _without_forgotten(self, reads: list[Operation]) -> list[Operation]:
        """Judge the reads that begin before what is remembered; answers the others."""
        forgotten = {id(op): op for op in reads if op.input < self.base and end_of(op) <= self.owned}
        if not forgotten:
            return reads
        for operation in forgotten.values():
            self._judge(operation)
        return [operation for operation in reads if id(operation) not in forgotten]

    def _compare_ends(self, operations: list[Operation]) -> list[Operation]:
        """Compare the ends that were seen with the batches that are there by now. Answers who saw a later one."""
        base, owned, outgrown = self.base, self.owned, self.outgrown
        still: list[Operation] = []
        for operation in operations:
            end = operation.output
            if end > owned:
                still.append(operation)
            elif end < base or outgrown[end - base] < operation.call:
                self._judge(operation)
        return still

    @property
    def waiting(self) -> list[Operation]:
        """The operations that tell of more than has its appends."""
        return self._reads + self._ends

    def reader_of_next(self) -> Operation | None:
        """The first of those that wait that read what stands at `owned`."""
        offset, reads = self.owned, self._reads
        place = self._searched if self._searched_in is reads and self._searched_for == offset else 0
        while place < len(reads) and not reads[place].input <= offset < end_of(reads[place]):
            place += 1
        # Until one of the two changes, only those that come then are left to be looked at.
        self._searched_in, self._searched_for, self._searched = reads, offset, place
        return reads[place] if place < len(reads) else None

    def look_through(self) -> None:
        """Compare the waiting operations with the records that have their appends by now."""
        if self.owned != self._looked_until:
            self._looked_until = self.owned
            self._reads = self._compare_reads(self._reads)
            self._ends = self._compare_ends(self._ends)
        self._look_at = 2 * (len(self._reads) + len(self._ends)) + _LOOK_AFTER

    def _judge(self, operation: Operation) -> None:
        """Find out what is wrong with an operation, if anything is; all it tells of have their appends."""
        base = self.base
        end = end_of(operation)
        if operation.function == "read":
            records, saw_end = operation.output
            first: int = operation.input
            if first < base:
                self.unchecked += 1
                records = records[base - first :]
                first = base
            # They may be the same and only be no lists.
            if self.contents[first - base : max(end - base, 0)] != [*records]:
                self._conflict(operation, records, first)
            if not saw_end:
                return
        if end >= base and self.outgrown[end - base] == _INSIDE:
            raise Violated(LogViolation("inside", end, (operation,)))
        self.check_late([operation])
        self.unchecked += end < base

    def _conflict(self, operation: Operation, records: Sequence[Any], first: int) -> None:
        for offset, record in enumerate(records, first):
            if not same(self.contents[offset - self.base], record):
                raise Violated(LogViolation("conflict", offset, (operation,)))

    def check_late(self, operations: Iterable[Operation]) -> None:
        """Raise Violated for the first that was called when something had returned for which it has no room."""
        growers, needs = self.growers, self.needs
        for operation in operations:
            if operation.outcome is not OK:
                continue
            if operation.function == "read":
                records, saw_end = operation.output
                if not saw_end:
                    continue
                room = operation.input + len(records)
            else:
                room = operation.output
            place = bisect_right(needs, room)
            if place < len(needs) and growers[place].returned < operation.call:  # type: ignore[operator]
                raise Violated(LogViolation("late", room, (growers[place], operation)))

    def _look_behind(self, operations: Iterable[Operation]) -> None:
        """Where an append is missing, nothing behind it is judged for long: find at once what is late among that."""
        if self.greatest - self.owned <= _BEHIND:
            # Not as long as looking through all that waits would cost much when it falls behind again.
            self._is_behind = self._is_behind and len(self._reads) + len(self._ends) > _BEHIND
            return
        if not self._is_behind:
            operations = [*self.appends_ahead(), *self.waiting]
        self._is_behind = True
        self.check_late(operations)

    def own(self, operation: Operation) -> None:
        """An append of unknown outcome stands at `owned`. Raises Violated when an append behind it does not fit."""
        place = self.owned - self.base
        self._make_room(max(0, place + len(operation.input) + 1 - len(self.ahead)))
        self.ahead[place] = operation
        self._own_following()

    def appends_ahead(self) -> list[Operation]:
        """The appends that do not follow on the others, by their offsets."""
        return [operation for operation in self.ahead[self.owned - self.base :] if operation is not None]

    @property
    def waiting_count(self) -> int:
        """About how many operations wait for an append before them."""
        # Of appends about: as many as the stretch would have on average.
        stretch = self.greatest - self.owned
        return len(self._reads) + len(self._ends) + int(stretch * self._appends / max(self.greatest, 1))

    @property
    def bytes_used(self) -> int:
        """About how much memory the check holds beside the operations themselves."""
        places = 2 * len(self.ahead) + len(self.contents) + 2 * len(self.needs)
        return _OFFSET_BYTES * places + _WAITING_BYTES * (self.waiting_count + len(self.unknown))

    def first_beyond(self, length: int) -> Operation | None:
        """The operation that returned first among those that need more than this length."""
        place = bisect_right(self.needs, length)
        return self.growers[place] if place < len(self.needs) else None

    def bound_at(self, call: int) -> tuple[int, Operation | None]:
        """The greatest need returned before the call, and who needed it."""
        place = bisect_left(self.growers, call, key=_returned)
        return (self.needs[place - 1], self.growers[place - 1]) if place else (self.base, None)

    def forget(self) -> LogViolation | None:
        """Drop what no later operation can be compared with. Without `remember`, nothing is ever dropped.

        Answers the violation when what waits and can be compared by now has one.
        """
        if self._remember is None or self.owned - self.base <= 2 * self._remember:
            return None
        try:
            self.look_through()
        except Violated as found:
            self.violation = found.violation
            return self.violation
        drop = self.owned - self.base - self._remember
        del self.contents[:drop]
        del self.ahead[:drop]
        del self.outgrown[:drop]
        self.base += drop
        settled = bisect_right(self.needs, self.base)
        del self.needs[:settled]
        del self.growers[:settled]
        self._following -= settled
        return None


def same(record: Any, other: Any) -> bool:
    """Whether two records are equal as models see them: a tuple is the same as a list."""
    return bool(record == other) or freeze(record) == freeze(other)


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
