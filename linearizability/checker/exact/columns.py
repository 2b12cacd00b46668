"""Histories as NumPy columns: logs and registers with unique writes, tens of millions of operations at a time.

The rules of `log.stream` and `zones`, over whole arrays. NumPy is imported only when a function here is called.
Rows are completed operations in the order of their returns; if they are not, they are sorted first.

    check_columns(LogColumns(kind, call, returned, first, count, saw_end, records))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Integers: TypeAlias = NDArray[np.integer[Any]]
    Booleans: TypeAlias = NDArray[np.bool_]

APPEND, READ, END = 0, 1, 2
_CHUNK_ROWS = 1 << 14  # rows looked at together: few enough that the processor has them at hand for the next step


@dataclass(frozen=True, slots=True)
class LogColumns:
    """Operations on one log.

    `kind` is APPEND, READ or END; `first` the offset appended at, read from, or told as the end; `count` how many
    records; `saw_end` whether a read reached the end; `records` the records of all rows one after the other, as
    integers that are equal exactly when the records are.
    """

    kind: Integers
    call: Integers
    returned: Integers
    first: Integers
    count: Integers
    saw_end: Booleans
    records: Integers


@dataclass(frozen=True, slots=True)
class RegisterColumns:
    """Reads and writes of one register; every value is written at most once. `initial` is a value nobody writes."""

    is_write: Booleans
    call: Integers
    returned: Integers
    value: Integers
    initial: int = -1


@dataclass(frozen=True, slots=True)
class ColumnViolation:
    """What is wrong, and the rows (of the columns as they were given) that show it."""

    kind: Literal[
        "late", "conflict", "overlap", "inside", "unexplained", "gap", "unwritten", "early", "overlap", "not unique"
    ]
    rows: tuple[int, ...]
    offset: int | None = None


def check_columns(columns: LogColumns | RegisterColumns) -> ColumnViolation | None:
    """The first violation found, or None. Operations of unknown outcome have no place in columns."""
    return check_log_columns(columns) if isinstance(columns, LogColumns) else check_register_columns(columns)


def check_log_columns(log: LogColumns) -> ColumnViolation | None:
    """The first violation found, or None. Time linear when the rows are in order."""
    import numpy as np

    if not len(log.kind):
        return None
    order = None
    if np.any(log.returned[1:] < log.returned[:-1]):
        order = np.argsort(log.returned, kind="stable")
    need = log.first + log.count
    appends = np.flatnonzero((log.kind == APPEND) & (log.count > 0))
    greatest = int(need.max())
    batches = _batches(log, appends, greatest)
    if isinstance(batches, ColumnViolation):
        return batches
    bounded = log.saw_end & (log.kind == READ) | (log.kind == END) | (log.kind == APPEND)
    wrong = _first(bounded & ~batches[need])
    if wrong is not None:
        return ColumnViolation("inside", (wrong,), int(need[wrong]))
    conflict = _conflict(log, greatest)
    if conflict is not None:
        return conflict
    return _late(log, need, bounded, order)


def _first(wrong: Booleans) -> int | None:
    place = int(wrong.argmax())
    return place if wrong[place] else None


def _batches(log: LogColumns, appends: Integers, greatest: int) -> Booleans | ColumnViolation:
    """Which offsets are the end of a batch, provided that the batches lie one after the other without gap."""
    import numpy as np

    first, count = log.first[appends], log.count[appends]
    begins, ends = np.zeros(greatest + 1, dtype=np.bool_), np.zeros(greatest + 1, dtype=np.bool_)
    begins[first] = begins[greatest] = True
    ends[first + count] = ends[0] = True
    # Where no two begin at one place, and each begins where another ends, they lie one after the other.
    if np.count_nonzero(begins) == len(appends) + 1 and np.array_equal(begins, ends):
        return ends
    owners = appends[np.argsort(first, kind="stable")]
    reached = 0
    for row in owners.tolist():
        if log.first[row] < reached:
            return ColumnViolation("overlap", (row,), int(log.first[row]))
        if log.first[row] > reached:
            break
        reached += int(log.count[row])
    shows = _first(log.first + log.count > reached)
    return ColumnViolation("gap", () if shows is None else (shows,), reached)


def _conflict(log: LogColumns, greatest: int) -> ColumnViolation | None:
    """Whether two rows tell different records of one offset: write all to one log, and read all back."""
    import numpy as np

    contents = np.empty(greatest, dtype=log.records.dtype)
    begins = np.concatenate(([0], np.cumsum(np.where(log.kind == END, 0, log.count), dtype=np.intp)))
    shifts = log.first - begins[:-1]
    chunks: list[tuple[Integers, Integers]] = []  # offsets, which take longest to find, and what is told of them
    for low in range(0, len(shifts), _CHUNK_ROWS):
        bounds = begins[low : low + _CHUNK_ROWS + 1]
        offsets = np.repeat(shifts[low : low + _CHUNK_ROWS], np.diff(bounds))
        offsets += np.arange(bounds[0], bounds[-1])
        records = log.records[bounds[0] : bounds[-1]]
        contents[offsets] = records
        chunks.append((offsets, records))
    place = 0
    for offsets, records in chunks:
        wrong = contents[offsets] != records
        if wrong.any():
            place += int(wrong.argmax())
            row = int(np.searchsorted(begins, place, side="right")) - 1
            return ColumnViolation("conflict", (row,), int(log.first[row] + place - begins[row]))
        place += len(records)
    return None


def _late(log: LogColumns, need: Integers, bounded: Booleans, order: Integers | None) -> ColumnViolation | None:
    """Whether an operation was called after the log had outgrown what it saw."""
    import numpy as np

    reach = np.maximum.accumulate(need if order is None else need[order])
    grew = np.flatnonzero(np.diff(reach, prepend=0))
    grown = reach[grew]
    # outgrown[length]: when the first operation returned that needs more than this length; for the last, never.
    returned = log.returned[grew if order is None else order[grew]]
    outgrown = np.append(np.repeat(returned, np.diff(grown, prepend=0)), np.iinfo(returned.dtype).max)
    for low in range(0, len(need), _CHUNK_ROWS):
        rows = slice(low, low + _CHUNK_ROWS)
        # What an append itself adds is no room for it. (A choice by random kinds would take twice as long.)
        room = need[rows] - log.count[rows] * (log.kind[rows] == APPEND)
        place = _first((outgrown[room] < log.call[rows]) & bounded[rows])
        if place is not None:
            length = int(room[place])
            earlier = int(grew[np.searchsorted(grown, length, side="right")])
            return ColumnViolation("late", (earlier if order is None else int(order[earlier]), low + place), length)
    return None


def check_register_columns(register: RegisterColumns) -> ColumnViolation | None:
    """The first violation found, or None: the zones of `zones.check_zones`."""
    import numpy as np

    if not len(register.call):
        return None
    values, cluster = _clusters(register)
    size = len(values) if values is not None else int(register.value.max()) + 2
    limit = np.iinfo(np.int64)
    first = np.full(size, limit.max, dtype=np.int64)
    last = np.full(size, limit.min, dtype=np.int64)
    np.minimum.at(first, cluster, register.returned)
    np.maximum.at(last, cluster, register.call)
    writes = np.flatnonzero(register.is_write)
    writer = np.full(size, -1, dtype=np.int64)
    writer[cluster[writes]] = writes
    repeated = _first(writer[cluster[writes]] != writes) if len(writes) else None
    if repeated is not None:
        row = int(writes[repeated])
        return ColumnViolation("not unique", (row, int(writer[cluster[row]])))
    present = last != limit.min
    initial = _initial_cluster(register, values)
    unwritten = present & (writer < 0)
    if initial is not None:
        unwritten[initial] = False
        first[initial] = limit.min
    bad = _first(unwritten)
    if bad is not None:
        return ColumnViolation("unwritten", (int(np.flatnonzero(cluster == bad)[0]),))
    early = _first((writer >= 0) & (first < np.where(writer >= 0, register.call[writer], 0)))
    if early is not None:
        rows = np.flatnonzero((cluster == early) & ~register.is_write)
        return ColumnViolation("early", (int(writer[early]), int(rows[register.returned[rows].argmin()])))
    return _zone_conflict(register, cluster, np.where(present, first, limit.min), last)


def _clusters(register: RegisterColumns) -> tuple[Integers | None, Integers]:
    """A small number for each value: the value itself plus one where values are small enough."""
    import numpy as np

    low, high = int(register.value.min()), int(register.value.max())
    if low >= -1 and high < 4 * len(register.value) + 16:
        return None, register.value + 1
    values, cluster = np.unique(register.value, return_inverse=True)
    return values, cluster


def _initial_cluster(register: RegisterColumns, values: Integers | None) -> int | None:
    import numpy as np

    if values is None:
        return register.initial + 1 if -1 <= register.initial <= int(register.value.max()) else None
    place = int(np.searchsorted(values, register.initial))
    return place if place < len(values) and values[place] == register.initial else None


def _zone_conflict(
    register: RegisterColumns, cluster: Integers, first: Integers, last: Integers
) -> ColumnViolation | None:
    """Two forward zones that overlap, or a backward one inside a forward one."""
    import numpy as np

    forward = np.flatnonzero(first < last)
    forward = forward[np.argsort(first[forward], kind="stable")]
    begins, ends = first[forward], last[forward]
    overlap = _first(begins[1:] < ends[:-1]) if len(forward) > 1 else None
    if overlap is not None:
        return _ends(register, cluster, "overlap", (int(forward[overlap]), int(forward[overlap + 1])))
    backward = np.flatnonzero((first >= last) & (last != np.iinfo(np.int64).min))
    if not len(forward) or not len(backward):
        return None
    place = np.searchsorted(begins, last[backward], side="left") - 1
    inside = _first((place >= 0) & (first[backward] < ends[place]))
    if inside is None:
        return None
    return _ends(register, cluster, "inside", (int(forward[place[inside]]), int(backward[inside])))


def _ends(
    register: RegisterColumns, cluster: Integers, kind: Literal["overlap", "inside"], clusters: tuple[int, int]
) -> ColumnViolation:
    """The rows of both clusters that are the write, return first, or are called last."""
    import numpy as np

    rows: list[int] = []
    for one in clusters:
        members = np.flatnonzero(cluster == one)
        rows += members[register.is_write[members]].tolist()
        rows.append(int(members[register.returned[members].argmin()]))
        rows.append(int(members[register.call[members].argmax()]))
    return ColumnViolation(kind, tuple(dict.fromkeys(rows)))
