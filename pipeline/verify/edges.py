"""What a piece of a history tells of itself, so that it can be put together with those before and behind it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from raftlog.linearizability.checker.history import Annotation, Operation, TimeUnit

NEVER = -(2**63)
"""Before all times."""


@dataclass
class Edges:
    """What is told of a piece. Lines are counted from its beginning."""

    chunk: int
    lines: int = 0
    is_blank: bool = True
    operations: int = 0
    time_unit: TimeUnit | None = None
    first_time: int = NEVER
    first_line: int = 1
    """The line of that time."""
    last_time: int = NEVER
    called: dict[Any, int] = field(default_factory=dict)
    """Clients that have called something without an id, and with ("id", ID) the ids of other calls; the first line of
    each.
    """
    ended: list[tuple[dict[str, Any], int]] = field(default_factory=list)
    """Completions of calls that were made before, and their lines."""
    still_open: dict[Any, Operation] = field(default_factory=dict)
    annotations: list[Annotation] = field(default_factory=list)
    error: tuple[str, int] | None = None
    """What is wrong, and in which line."""
