"""A run as lines of characters over one axis of time: rates, leaders, in-sync replicas, and faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from raftlog.linearizability.checker.history import Outcome
from raftlog.linearizability.report.account import Account
from raftlog.linearizability.report.stories import SECOND

GUTTER = 22
COLUMNS_MAX = 76
LANES_MAX = 12  # faults and partitions each
_BARS = " ▁▂▃▄▅▆▇█"


def lanes_of(account: Account, width: int) -> Iterator[str]:
    """The lines, none longer than `width`. A column of a lane has the last that was known by its end."""
    run = account.run
    start = min(run.start, account.zero)
    span = max(1, run.end - start)
    columns = max(10, min(COLUMNS_MAX, width - GUTTER - 1))

    def column(time: int) -> int:
        return max(0, min(columns - 1, (time - start) * columns // span))

    def line(name: str, cells: str) -> str:
        return f"{name[: GUTTER - 1]:<{GUTTER}}{cells}".rstrip()

    rates = {Outcome.OK: [0] * columns, Outcome.INFO: [0] * columns, Outcome.FAIL: [0] * columns}
    for operation in run.history.operations:
        if operation.returned is not None:
            rates[operation.outcome][column(operation.returned)] += 1
    for outcome, name in ((Outcome.OK, "ok"), (Outcome.INFO, "unknown outcome"), (Outcome.FAIL, "failed")):
        if any(rates[outcome]):
            yield line(name, _bars(rates[outcome]))
    partitions = sorted({key for sample in run.samples for key in sample.partitions})
    bad = {story.key for told in account.errors for story in told.stories}
    for key in sorted(partitions, key=lambda key: (key not in bad, key))[:LANES_MAX]:
        told = [(column(sample.time), sample.partitions.get(key)) for sample in run.samples]
        yield line(f"{key} leader", _held(columns, [(at, None if one is None else one.leader) for at, one in told]))
        sizes = [(at, None if one is None or one.isr is None else len(one.isr)) for at, one in told]
        yield line(f"{key} ISR size", _held(columns, sizes))
    leaders = [(column(sample.time), sample.quorum_leader) for sample in run.samples]
    if any(leader is not None for _, leader in leaders):
        yield line("quorum leader", _held(columns, leaders))
    yield from (line(name, cells) for name, cells in _faults(account, column, columns))
    marks = {column(story.start) for told in account.errors for story in told.stories}
    if marks:
        yield line("errors", "".join("✕" if at in marks else " " for at in range(columns)))
    yield line("seconds", _axis(columns, start - account.zero, span))


def _faults(account: Account, column: Callable[[int], int], columns: int) -> Iterator[tuple[str, str]]:
    """A lane for each fault, or, where they are many, for each kind; what had no effect is pale."""
    run = account.run
    few = len(run.faults) <= LANES_MAX
    lanes: dict[str, list[str]] = {}
    for place, fault in enumerate(run.faults):
        cells = lanes.setdefault(f"{place} {fault.label}" if few else f"0 {fault.kind}", [" "] * columns)
        for at in range(column(fault.start), column(run.end if fault.end is None else fault.end) + 1):
            cells[at] = "░" if fault.effect is False and cells[at] == " " else "█"
    for name, cells in lanes.items():
        yield name.partition(" ")[2], "".join(cells)


def _bars(counts: Sequence[int]) -> str:
    most = max(counts)
    return "".join(_BARS[-(-count * (len(_BARS) - 1) // most)] for count in counts)


def _held(columns: int, values: Sequence[tuple[int, int | None]]) -> str:
    """One character a column: the newest value by then, `?` where nobody answered."""
    cells: list[str] = []
    known = " "
    told = iter([*values, (columns, None)])
    at, value = next(told)
    for place in range(columns):
        while at <= place:
            known = "?" if value is None else str(value)[-1]
            at, value = next(told)
        cells.append(known)
    return "".join(cells)


def _axis(columns: int, start: int, span: int) -> str:
    cells = [" "] * (columns + 8)
    free = 0
    for place in range(0, columns, max(1, columns // 6)):
        label = f"{(start + span * place / columns) / SECOND:.0f}"
        if place >= free:
            cells[place : place + len(label)] = label
            free = place + len(label) + 1
    return "".join(cells)
