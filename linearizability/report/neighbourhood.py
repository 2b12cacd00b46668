"""The log around an offset: what each operation wrote and read there, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raftlog.linearizability.checker.history import History, Operation
from raftlog.linearizability.checker.kafka.report.describe import records_of

BEFORE, AFTER = 4, 6  # offsets shown on either side
ROWS_MAX = 14


@dataclass(frozen=True, slots=True)
class Row:
    """One operation. `cells` has for each offset the value it wrote or read; `span` is how far its poll went."""

    operation: Operation
    wrote: bool
    cells: Mapping[int, Any]
    span: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Offsets `first` to `last` of a key, around the offset `focus`. `values` are all that stand at an offset."""

    key: str
    focus: int
    first: int
    last: int
    values: Mapping[int, Sequence[Any]]
    rows: Sequence[Row]


def neighbourhoods(
    history: History, wanted: Sequence[tuple[str, int, Sequence[Operation]]]
) -> list[Neighbourhood | None]:
    """For each (key, offset, operations to be among the rows) what lies around it, in one pass over the history."""
    windows: dict[str, set[int]] = {}
    for key, focus, _ in wanted:
        windows.setdefault(key, set()).update(range(max(0, focus - BEFORE), focus + AFTER + 1))
    found: dict[str, list[Row]] = {key: [] for key in windows}
    for operation in history.operations if windows else ():
        for row_key, row in _rows(operation, windows):
            found[row_key].append(row)
    return [_around(key, focus, shown, found[key]) for key, focus, shown in wanted]


def _rows(operation: Operation, windows: Mapping[str, set[int]]) -> Iterator[tuple[str, Row]]:
    for wrote, key, records in records_of(operation):
        offsets = windows.get(key)
        if offsets is None:
            continue
        known = [(offset, value) for offset, value in records if isinstance(offset, int)]
        cells = {offset: value for offset, value in known if offset in offsets}
        if cells:
            told = [offset for offset, _ in known]
            yield key, Row(operation, wrote, cells, (min(told), max(told)))


def _around(key: str, focus: int, shown: Sequence[Operation], rows: Sequence[Row]) -> Neighbourhood | None:
    first, last = max(0, focus - BEFORE), focus + AFTER
    inside = [row for row in rows if any(first <= offset <= last for offset in row.cells)]
    if not inside:
        return None
    values: dict[int, list[Any]] = {}
    for row in inside:
        for offset, value in row.cells.items():
            told = values.setdefault(offset, [])
            if first <= offset <= last and value not in told:
                told.append(value)
    told_first = {id(operation) for operation in shown}

    def rank(row: Row) -> tuple[bool, bool, int]:
        """The operations of the example first, then whose poll went over the focus, then who is closest to it."""
        away = min(abs(offset - focus) for offset in row.cells)
        return (id(row.operation) not in told_first, not row.span[0] <= focus <= row.span[1], away)

    kept = sorted(inside, key=rank)[:ROWS_MAX]
    return Neighbourhood(key, focus, first, last, values, sorted(kept, key=lambda row: row.operation.call))
