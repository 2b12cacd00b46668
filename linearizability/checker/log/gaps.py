"""What is left of a log when its history is over: offsets without an acknowledged append.

A record that was read gives its append away. Offsets that nobody read are filled with the appends that nobody saw;
one of them can stand at an offset when every need returned before its call fits below. With single records it is
enough to fill the lowest offset with any append that may stand there; in general this is bin packing, which is tried
out up to a limit.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection
from operator import itemgetter
from typing import Any, TypeAlias

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.log.stream import LogCheck, LogViolation, Violated, end_of, same
from raftlog.linearizability.checker.values import freeze

_NOTHING = object()  # the first record of an append of none
_PACKING_LIMIT = 1_000_000  # numbers kept of positions looked at before saying that this is too hard


class Undecided(Exception):
    """Two appends of unknown outcome look alike, or too many ways to fill a gap: the check has no answer."""


class Placing:
    """Lets appends of unknown outcome own the offsets behind the owned ones, when a read tells that they are there.

    For a log that still grows; a finished one needs no such help before `finish`.
    """

    def __init__(self, check: LogCheck) -> None:
        self._check = check
        self._indexed: dict[Operation, Any] = {}  # of those in check.unknown: its first record
        self._by_first: dict[Any, dict[Operation, None]] = {}

    def place_told(self, opened: Collection[Operation]) -> LogViolation | None:
        """Place as many as can be. `opened` are the operations still open: one may have appended the same."""
        check = self._check
        try:
            while self._place_next(opened):
                pass
        except Violated as found:
            check.violation = found.violation
        return check.violation

    def _place_next(self, opened: Collection[Operation]) -> bool:
        check = self._check
        offset = check.owned
        reader = check.reader_of_next()
        if reader is None:
            return False
        record = reader.output[0][offset - reader.input]
        self._index()
        fitting = [*self._by_first.get(freeze(record), ())]
        if len(fitting) != 1:
            return False
        if any(op.function == "append" and op.input and same(op.input[0], record) for op in opened):
            return False
        self._forget(fitting[0])
        bound, earlier = check.bound_at(fitting[0].call)
        if bound > offset and earlier is not None:
            raise Violated(LogViolation("early", offset, (earlier, fitting[0], reader)))
        check.own(fitting[0])
        return True

    def _index(self) -> None:
        """Take in what came since the last time: it stands behind all else."""
        for operation in reversed(self._check.unknown):
            if operation in self._indexed:
                break
            first = freeze(operation.input[0]) if len(operation.input) else _NOTHING
            self._indexed[operation] = first
            self._by_first.setdefault(first, {})[operation] = None

    def _forget(self, operation: Operation) -> None:
        del self._check.unknown[operation]
        first = self._indexed.pop(operation)
        del self._by_first[first][operation]
        if not self._by_first[first]:
            del self._by_first[first]


def finish(check: LogCheck) -> LogViolation | None:
    """Judge what only the end of the history can tell. Raises Undecided when it cannot be told this way."""
    if check.violation is None:
        try:
            _finish(check)
        except Violated as found:
            check.violation = found.violation
    return check.violation


def _finish(check: LogCheck) -> None:
    check.look_through()
    ahead = {operation.output: operation for operation in check.appends_ahead()}
    check.check_late([*ahead.values(), *check.waiting])
    told = _tell(check, ahead)
    if not check.complete:
        _check_partial(check, ahead)
        return
    unseen = _place_seen(check, told, ahead)
    seen_ends = {end_of(operation) for operation in check.waiting if _bounded(operation)}
    gaps: list[tuple[int, int]] = []
    ends: set[int] = set()  # of the batches from here on
    position = check.owned
    lowest = sorted(ahead, reverse=True)  # those that are taken out of `ahead` are still there
    while True:
        while (following := ahead.pop(position, None)) is not None:
            position += len(following.input)
            ends.add(position)
        if not ahead and position >= check.greatest:
            break
        while lowest and lowest[-1] not in ahead:
            lowest.pop()
        end = lowest[-1] if lowest else check.greatest
        if end < position:
            raise Violated(LogViolation("overlap", end, (ahead[end],)))
        gaps.append((position, end))
        # Where nothing was appended further on, the last gap only has to be filled at least so far.
        open_end = not ahead and end not in seen_ends
        if not open_end:
            ends.add(end)
        position = end
    if gaps:
        cuts = _inside(gaps, seen_ends)
        ends.update(cuts)
        _fill(check, gaps, cuts, unseen, open_end)
    for operation in check.waiting:
        if _bounded(operation) and end_of(operation) not in ends and end_of(operation) != check.owned:
            raise Violated(LogViolation("inside", end_of(operation), (operation,)))


def _inside(gaps: list[tuple[int, int]], offsets: Collection[int]) -> list[int]:
    """Those of the offsets, ascending, that lie between the two ends of one of the gaps, which are ascending too."""
    inside = []
    firsts = [first for first, _ in gaps]
    for offset in sorted(offsets):
        place = bisect_left(firsts, offset) - 1
        if place >= 0 and offset < gaps[place][1]:
            inside.append(offset)
    return inside


def _bounded(operation: Operation) -> bool:
    return operation.function != "read" or bool(operation.output[1])


_Ahead: TypeAlias = dict[int, Operation]  # appends by their first offset
_Told: TypeAlias = dict[int, tuple[Any, Operation]]


def _tell(check: LogCheck, ahead: _Ahead) -> _Told:
    """What is told of the offsets without an append that follows without a gap, and by whom."""
    told: _Told = {}
    for first, operation in ahead.items():
        for offset, record in enumerate(operation.input, first):
            if offset in told:
                raise Violated(LogViolation("overlap", offset, (told[offset][1], operation)))
            told[offset] = (record, operation)
    for operation in check.waiting:
        if operation.function != "read":
            continue
        for offset, record in enumerate(operation.output[0], operation.input):
            if offset < check.owned:
                known = check.contents[offset - check.base] if offset >= check.base else record
            elif (teller := told.get(offset)) is not None:
                known = teller[0]
            else:
                told[offset] = (record, operation)
                known = record
            if not (known == record or same(known, record)):
                raise Violated(LogViolation("conflict", offset, (operation,)))
    return told


def _check_partial(check: LogCheck, ahead: _Ahead) -> None:
    """Other clients may have appended between: only the batches of the history itself count."""
    known = sorted(ahead.items())
    for operation in sorted(check.waiting, key=end_of):
        if not _bounded(operation):
            continue
        end = end_of(operation)
        place = bisect_left(known, end, key=itemgetter(0)) - 1
        if place >= 0 and end < known[place][0] + len(known[place][1].input):
            raise Violated(LogViolation("inside", end, (operation, known[place][1])))


def _place_seen(check: LogCheck, told: _Told, ahead: _Ahead) -> list[Operation]:
    """Give each append of unknown outcome that was read its offset; answers those that nobody saw."""
    unknown = [operation for operation in check.unknown if len(operation.input)]
    where: dict[Any, list[tuple[Operation, int]]] = {}
    for operation in unknown:
        for place, record in enumerate(operation.input):
            where.setdefault(freeze(record), []).append((operation, place))
    owners = {offset for first, one in ahead.items() for offset in range(first, end_of(one))}
    placed: dict[int, int] = {}  # first offset by the operation's identity
    for offset in sorted(told):
        if offset in owners:
            continue
        operation, first = _explanation(told, where.get(freeze(told[offset][0]), []), (placed, owners), offset)
        if first < check.owned:
            raise Violated(LogViolation("unexplained", offset, (told[offset][1],)))
        placed[id(operation)] = first
        owners.update(range(first, first + len(operation.input)))
        bound, earlier = check.bound_at(operation.call)
        if bound > first and earlier is not None:
            raise Violated(LogViolation("early", offset, (earlier, operation, told[offset][1])))
        ahead[first] = operation
    return [operation for operation in unknown if id(operation) not in placed]


def _explanation(
    told: _Told, candidates: list[tuple[Operation, int]], taken: tuple[dict[int, int], set[int]], offset: int
) -> tuple[Operation, int]:
    """The append of unknown outcome that the record at the offset came from, and its first offset.

    `taken` has the appends placed already and the offsets that have one.
    """
    placed, owners = taken
    fitting = [
        (operation, offset - place)
        for operation, place in candidates
        if id(operation) not in placed and _fits(told, owners, operation, offset - place)
    ]
    if fitting and all(_are_alike(fitting[0], each) for each in fitting[1:]):
        return fitting[0]
    if fitting:
        raise Undecided
    for operation, place in candidates:
        if id(operation) in placed and placed[id(operation)] != offset - place:
            raise Violated(LogViolation("doubled", offset, (operation, told[offset][1])))
    raise Violated(LogViolation("unexplained", offset, (told[offset][1],)))


def _are_alike(one: tuple[Operation, int], other: tuple[Operation, int]) -> bool:
    """Whether two appends of unknown outcome are one that may have been stored twice: either explains as much."""
    return one[1] == other[1] and one[0].call == other[0].call and one[0].input == other[0].input


def _fits(told: _Told, owners: set[int], operation: Operation, first: int) -> bool:
    """Whether the append could stand there: no other append in the way, and no other record read."""
    return all(
        offset not in owners and (offset not in told or same(told[offset][0], record))
        for offset, record in enumerate(operation.input, first)
    )


def _fill(
    check: LogCheck, gaps: list[tuple[int, int]], cuts: list[int], unseen: list[Operation], open_end: bool
) -> None:
    """Fill the gaps with appends that nobody saw. An end seen inside a gap cuts it in two."""
    pieces: list[tuple[int, int]] = []
    for first, end in gaps:
        inside = cuts[bisect_right(cuts, first) : bisect_left(cuts, end)]
        pieces += zip([first, *inside], [*inside, end], strict=True)
    batches = sorted((check.bound_at(operation.call)[0], len(operation.input)) for operation in unseen)
    if all(size == 1 for _, size in batches):
        failed = _fill_singly(pieces, [bound for bound, _ in batches])
    else:
        failed = _Packing(pieces, batches, open_end).run()
    if failed is not None:
        needing = check.first_beyond(failed)
        raise Violated(LogViolation("gap", failed, () if needing is None else (needing,)))


def _fill_singly(pieces: list[tuple[int, int]], bounds: list[int]) -> int | None:
    """The first offset that nothing is left for, or None. `bounds` is ascending: who fits low fits everywhere."""
    used = 0
    for first, end in pieces:
        for offset in range(first, end):
            if used == len(bounds) or bounds[used] > offset:
                return offset
            used += 1
    return None


class _Packing:
    """Fill pieces with batches of several sizes, in order, each batch usable from its bound on."""

    def __init__(self, pieces: list[tuple[int, int]], batches: list[tuple[int, int]], open_end: bool) -> None:
        self._pieces = pieces
        self._open_end = open_end
        # Of one size, the batch with the lowest bound fits wherever the others fit: they are used in that order.
        self._bounds: dict[int, list[int]] = {}
        for bound, size in batches:
            self._bounds.setdefault(size, []).append(bound)
        self._sizes = sorted(self._bounds, reverse=True)

    def run(self) -> int | None:
        """The furthest offset that could not be filled, or None."""
        start = (0, self._pieces[0][0], tuple(0 for _ in self._sizes))
        seen = {start}
        work = [start]
        furthest = self._pieces[0][0]
        while work:
            piece, offset, used = work.pop()
            furthest = max(furthest, offset)
            if offset >= self._pieces[piece][1]:
                piece += 1
                if piece == len(self._pieces):
                    return None
                offset = self._pieces[piece][0]
            for kind, size in enumerate(self._sizes):
                bounds = self._bounds[size]
                count = used[kind]
                last = self._open_end and piece == len(self._pieces) - 1
                if count == len(bounds) or bounds[count] > offset:
                    continue
                if offset + size > self._pieces[piece][1] and not last:
                    continue
                following = (piece, offset + size, (*used[:kind], count + 1, *used[kind + 1 :]))
                if following not in seen:
                    seen.add(following)
                    work.append(following)
            if len(seen) * (2 + len(self._sizes)) > _PACKING_LIMIT:
                raise Undecided
        return furthest
