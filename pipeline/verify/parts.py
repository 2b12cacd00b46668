"""The keys of one parcel, checked by the library in one process; what is told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import History, HistoryError, Key, Operation, TimeUnit
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.verdict import Invalid, Limit, Status, Unknown
from raftlog.linearizability.resources import Allowance
from raftlog.pipeline.verify.parcels import pack

BAD_MAX = 100
"""Bad parts whose operations a task hands back, so that they can be explained."""
Place = tuple[float, int]
"""When the first operation of a part returned, and its line: the order of parts."""


class Part(NamedTuple):
    """The verdict on one key, without its operations."""

    key: Key
    status: Status
    operations: int
    algorithm: str
    configurations: int
    limit: Limit | None
    place: Place
    content: bytes | None
    """The operations of one that is bad, packed, unless there are too many such parts."""


@dataclass
class Found:
    """What a task found. `worst`: the bad part whose shortest bad prefix ends first, and when it ends."""

    parts: list[Part] = field(default_factory=list)
    worst: Part | None = None
    prefix_end: int = 0
    limit: Limit | None = None
    reason: str = ""
    error: tuple[int, str] | None = None
    """An operation that is not one of the model's: its line, and what is wrong."""


def check_parcel(
    operations: Sequence[Operation], model: Model[Any], time_unit: TimeUnit, seconds: float | None, megabytes: float
) -> Found:
    """Check all parts of these operations, which nothing else has a share in."""
    try:
        history = History.of(operations, time_unit=time_unit)
        verdict = check(history, model, budget=Allowance(seconds, megabytes).left())
    except HistoryError as error:
        return Found(error=(error.line or 0, error.reason))
    found = Found()
    worst = verdict.witness.key if isinstance(verdict, Invalid) else None
    told = 0
    for part in verdict.parts:
        first, content = part.operations[0], None
        if part.status is Status.INVALID and (part.key == worst or told < BAD_MAX):
            told, content = told + 1, pack(part.operations)
        place = (float("inf") if first.returned is None else float(first.returned), first.line or 0)
        counted = (len(part.operations), part.algorithm, part.configurations, part.limit)
        found.parts.append(Part(part.key, part.status, *counted, place, content))
        if isinstance(verdict, Invalid) and part.key == worst:
            found.worst, found.prefix_end = found.parts[-1], verdict.witness.prefix_end
    if isinstance(verdict, Unknown):
        found.limit, found.reason = verdict.limit, verdict.reason
    return found
