"""Operations as bars in lines of text: who was busy when, told with characters.

Columns keep the order of events and nothing else: a bar is as long as its label needs, and two bars share a column
exactly when the operations overlapped. Equal stamps are concurrent.

    process 0  ├ 1 write(3) ┤
    process 1    ├ 2 read() -> 3 ────┤
    process 2                 ├ write(4) ╌╌╌
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from raftlog.linearizability.checker.history import Operation, Outcome, Process


@dataclass(frozen=True, slots=True)
class Strokes:
    """The characters that bars are made of."""

    begin: str
    line: str
    end: str
    unknown: str  # an operation that may take effect at any later time
    failed: str


UNICODE = Strokes("├", "─", "┤", "╌", "·")
ASCII = Strokes("|", "-", "|", "~", ".")

_ROOM = 4  # what a bar needs besides its label: its two ends and a space on either side


@dataclass(slots=True)
class _Lane:
    """One line of bars: operations of one client that did not overlap."""

    process: Process
    bars: list[Operation] = field(default_factory=list)
    busy_until: int = -1  # the place, in the order of events, of the last return


@dataclass(slots=True)
class _Columns:
    """Where each operation begins and ends; `width` is the first column after everything."""

    begin: dict[int, int]
    end: dict[int, int]
    width: int


def timeline(
    operations: Sequence[Operation],
    label: Callable[[Operation], str],
    name: Callable[[Process], str],
    *,
    width: int = 100,
    strokes: Strokes = UNICODE,
) -> list[str]:
    """The lines, none longer than `width`: what does not fit is continued further below. No operations, no lines."""
    if not operations:
        return []
    events = _events(operations)
    places = {event: place for place, event in enumerate(events)}
    labels = {id(operation): label(operation) for operation in operations}
    lanes = _lanes(operations, places)
    columns = _columns(events, labels)
    names = [name(lane.process) for lane in lanes]
    gutter = max(map(len, names))
    drawn = [_draw(lane, labels, columns, strokes) for lane in lanes]
    lines: list[str] = []
    start = 0
    for stop in _breaks(columns, labels, max(20, width - gutter - 2)):
        if start:
            lines.append("")
        above = None
        for lane, heading, bars in zip(lanes, names, drawn, strict=True):
            # A client that does nothing in this stretch has no line, and one with several its name in the first.
            if bars[start:stop].strip():
                shown = "" if lane.process == above else heading
                lines.append(f"{shown:<{gutter}}  {bars[start:stop]}".rstrip())
                above = lane.process
        start = stop
    return lines


def _breaks(columns: _Columns, labels: dict[int, str], room: int) -> list[int]:
    """Where one line ends and the next goes on: if it can be, not inside a label."""
    inside = bytearray(columns.width + 1)
    for own, begin in columns.begin.items():
        end = min(begin + len(labels[own]) + 2, columns.width)
        inside[begin + 1 : end] = b"\1" * max(0, end - begin - 1)
    stops: list[int] = []
    start = 0
    while columns.width - start > room:
        wanted = range(start + room, start + room // 2, -1)
        start = next((stop for stop in wanted if not inside[stop]), start + room)
        stops.append(start)
    return [*stops, columns.width]


def _events(operations: Sequence[Operation]) -> list[tuple[int, bool]]:
    """(id, whether it is the return) in time order, calls before returns with the same stamp."""
    stamped = [(operation.call, 0, number, id(operation)) for number, operation in enumerate(operations)]
    stamped += [
        (operation.returned, 1, number, id(operation))
        for number, operation in enumerate(operations)
        if operation.returned is not None
    ]
    return [(own, kind == 1) for _, kind, _, own in sorted(stamped)]


def _lanes(operations: Sequence[Operation], places: dict[tuple[int, bool], int]) -> list[_Lane]:
    by_process: dict[Process, list[_Lane]] = {}
    for operation in sorted(operations, key=lambda operation: places[id(operation), False]):
        begin = places[id(operation), False]
        lanes = by_process.setdefault(operation.process, [])
        lane = next((lane for lane in lanes if lane.busy_until < begin), None)
        if lane is None:
            lane = _Lane(operation.process)
            lanes.append(lane)
        lane.bars.append(operation)
        lane.busy_until = places.get((id(operation), True), begin)
    ordered = sorted(by_process, key=lambda process: (isinstance(process, str), process))
    return [lane for process in ordered for lane in by_process[process]]


def _columns(events: Sequence[tuple[int, bool]], labels: dict[int, str]) -> _Columns:
    begin: dict[int, int] = {}
    end: dict[int, int] = {}
    column = -2
    for own, is_return in events:
        column += 2
        if is_return:
            column = max(column, begin[own] + len(labels[own]) + _ROOM - 1)
            end[own] = column
        else:
            begin[own] = column
    longest = max((begin[own] + len(labels[own]) + _ROOM for own in begin if own not in end), default=0)
    return _Columns(begin, end, max(column + 1, longest))


def _draw(lane: _Lane, labels: dict[int, str], columns: _Columns, strokes: Strokes) -> str:
    line = [" "] * columns.width
    for place, operation in enumerate(lane.bars):
        own = id(operation)
        begin = columns.begin[own]
        free = columns.begin[id(lane.bars[place + 1])] if place + 1 < len(lane.bars) else columns.width
        last = columns.end.get(own, free - 1)
        stroke = strokes.failed if operation.outcome is Outcome.FAIL else strokes.line
        text = f" {labels[own]} "[: max(0, last - begin - 1)]
        bar = strokes.begin + text + stroke * (last - begin - 1 - len(text)) + strokes.end
        line[begin : last + 1] = bar[: last + 1 - begin]
        if operation.outcome is Outcome.INFO:
            after = begin + 1 + len(text)
            line[after:free] = strokes.unknown * (free - after)
    return "".join(line)
