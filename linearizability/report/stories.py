"""What happened around an anomaly: its smallest witness, the faults and changes of that time, the log at that place."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

from raftlog.linearizability.checker.history import Operation
from raftlog.linearizability.checker.kafka.report.describe import records_of
from raftlog.linearizability.report.events import Event
from raftlog.linearizability.report.judged import Instance
from raftlog.linearizability.report.neighbourhood import Neighbourhood, neighbourhoods
from raftlog.linearizability.report.run import Fault, LogLine, Run

SECOND = 1_000_000_000
EVENTS_MAX = 14
LINES_MAX = 120
"""Lines of the brokers' logs beside one story."""
LOOK_BACK = 8 * SECOND
LOOK_AHEAD = 3 * SECOND
UNTIL = 10 * SECOND
"""A fault this long after a story began has nothing to do with it, unless samples say so."""
GRAVE = ("WARN", "WARNING", "ERROR", "CRITICAL", "FATAL")
_OFFSETS = ("offset", "after", "committed", "passed", "read", "end")  # of details: which offset it is about
_RANK = {"truncated": 0, "leader": 1, "fault": 2, "isr": 3, "quorum": 4}


@dataclass(frozen=True, slots=True)
class Story:
    """One example of an anomaly, and what happened around it.

    `pivot` is the moment on which it turned: when the partition's log or leader changed, as far as samples show it.
    `under` are the faults in force between `start` and then; `before` is the last one that had ended, where none was.
    """

    text: str
    key: str | None
    operations: Sequence[Operation]  # the witness, in the order of calls
    minimal: bool
    start: int
    end: int
    pivot: int
    under: Sequence[Fault]
    before: Fault | None
    events: Sequence[Event]
    lines: Sequence[LogLine]
    log: Neighbourhood | None


def stories_of(run: Run, events: Sequence[Event], instances: Sequence[Instance]) -> list[Story]:
    """A story of each, with one pass over the history for all."""
    focused = [_focus(instance) for instance in instances]
    around = iter(neighbourhoods(run.history, [each for each in focused if each is not None]))
    times = [line.time for line in run.logs]
    return [
        _story(run, events, times, instance, None if focus is None else next(around))
        for instance, focus in zip(instances, focused, strict=True)
    ]


def _story(
    run: Run, events: Sequence[Event], times: Sequence[int], instance: Instance, log: Neighbourhood | None
) -> Story:
    shown = instance.witness
    start = min((operation.call for operation in shown), default=run.start)
    end = max((one.call if one.returned is None else one.returned for one in shown), default=run.end)
    near = [
        event
        for event in events
        if start - LOOK_BACK <= event.time <= end + LOOK_AHEAD and event.key in (None, instance.key)
    ]
    pivot = _pivot(near, instance.key, start, end)
    under = [fault for fault in run.faults if fault.touches(start, pivot) and fault.effect is not False]
    earlier = [fault for fault in run.faults if fault.end is not None and fault.end < start]
    before = max(earlier, key=lambda fault: fault.end or 0) if earlier and not under else None
    chosen = _chosen(near, start, pivot)
    lines = _lines(run, times, instance, [pivot, *(event.time for event in chosen if event.key is not None)])
    return Story(
        instance.text,
        instance.key,
        shown,
        instance.minimal,
        start,
        end,
        pivot,
        under,
        before,
        chosen,
        lines,
        log,
    )


def _pivot(near: Sequence[Event], key: str | None, start: int, end: int) -> int:
    """When the log became shorter after it began, else when the leader changed, else the end of something short."""
    for kind in ("truncated", "leader"):
        for event in near:
            if event.kind == kind and key is not None and event.key == key and event.time >= start:
                return event.time
    return min(end, start + UNTIL)


def _chosen(near: Sequence[Event], start: int, pivot: int) -> list[Event]:
    """The most telling ones, in the order of time."""

    def away(event: Event) -> int:
        return max(start - event.time, event.time - pivot, 0)

    kept = sorted(near, key=lambda event: (away(event) > LOOK_AHEAD, _RANK[event.kind], away(event)))[:EVENTS_MAX]
    return sorted(kept, key=lambda event: event.time)


def _focus(instance: Instance) -> tuple[str, int, Sequence[Operation]] | None:
    """The key and the offset that it is about, and the operations to show there."""
    if instance.key is None:
        return None
    shown = [*instance.witness, *instance.operations]
    for name in _OFFSETS:
        offset = instance.details.get(name)
        if isinstance(offset, int) and not isinstance(offset, bool) and offset >= 0:
            return instance.key, offset, shown
    for operation in shown:
        for _, key, records in records_of(operation):
            if key == instance.key and records and isinstance(records[0][0], int):
                return instance.key, records[0][0], shown
    return None


def _lines(run: Run, times: Sequence[int], instance: Instance, moments: Sequence[int]) -> list[LogLine]:
    """What the brokers logged then; of too much what names the partition, and what is grave, first."""
    chosen: dict[int, int] = {}
    for moment in [*moments, *(operation.call for operation in instance.witness)]:
        for place in range(bisect_left(times, moment - SECOND), bisect_right(times, moment + SECOND)):
            away = abs(times[place] - moment)
            chosen[place] = min(away, chosen.get(place, away))

    def rank(place: int) -> tuple[bool, bool, int]:
        line = run.logs[place]
        return (instance.key is None or instance.key not in line.text, line.level not in GRAVE, chosen[place])

    return [run.logs[place] for place in sorted(sorted(chosen, key=rank)[:LINES_MAX])]
