"""What was found: how many of each anomaly, and the most telling ones.

An example's words are made at the end, for those kept.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from raftlog.linearizability.checker.kafka.catalogue import CATALOGUE, SEVERITY_ORDER, Definition
from raftlog.linearizability.checker.kafka.options import KafkaOptions


class Judgement(Enum):
    """What an anomaly means for the verdict."""

    ERROR = "error"  # the history is invalid
    ALLOWED = "allowed"  # reported, and legal under this isolation level, subscription mode or option
    UNDECIDED = "undecided"  # something could not be judged: without an error the verdict is unknown


_JUDGEMENT_ORDER = {Judgement.ERROR: 0, Judgement.UNDECIDED: 1, Judgement.ALLOWED: 2}


@dataclass(frozen=True, slots=True)
class Example:
    """One instance of an anomaly in words, with the numbers of the operations that show it, the most telling first."""

    text: str
    operations: tuple[int, ...] = ()
    key: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


Maker: TypeAlias = Callable[..., Example]


@dataclass(frozen=True, slots=True)
class Found:
    """All instances of one anomaly under one judgement."""

    definition: Definition
    judgement: Judgement
    count: int
    examples: tuple[Example, ...]


class _Kept:
    __slots__ = ("count", "heap", "limit")

    def __init__(self, limit: int) -> None:
        self.count = 0
        self.limit = limit
        self.heap: list[tuple[float, int, Maker, tuple[Any, ...]]] = []


class Findings:
    """Collects instances. The heavier of two is the more telling; of equals the one found first."""

    def __init__(self, options: KafkaOptions) -> None:
        self._allow = options.allow
        self._forbid = options.forbid
        self._kept: dict[tuple[str, Judgement], _Kept] = {}

    def add(self, name: str, judgement: Judgement, weight: float, maker: Maker, *arguments: Any) -> None:
        """Count an instance; `maker(*arguments)` makes its example, if it is among the weightiest at the end."""
        judgement = self._judge(name, judgement)
        kept = self._kept.get((name, judgement))
        if kept is None:
            kept = self._kept[name, judgement] = _Kept(CATALOGUE[name].shown)
        kept.count += 1
        entry = (weight, -kept.count, maker, arguments)
        if len(kept.heap) < kept.limit:
            heapq.heappush(kept.heap, entry)
        elif weight > kept.heap[0][0]:
            heapq.heapreplace(kept.heap, entry)

    def more(self, name: str, judgement: Judgement, count: int) -> None:
        """Count instances of which an example was already added."""
        self._kept[name, self._judge(name, judgement)].count += count

    def holds(self, name: str, judgement: Judgement) -> bool:
        """Whether an instance was added under this name and judgement."""
        return (name, self._judge(name, judgement)) in self._kept

    def _judge(self, name: str, judgement: Judgement) -> Judgement:
        """What the caller allows or forbids goes before the rules."""
        if judgement is Judgement.ERROR and name in self._allow:
            return Judgement.ALLOWED
        return Judgement.ERROR if name in self._forbid else judgement

    def has(self, judgement: Judgement) -> bool:
        """Whether anything was found under this judgement."""
        return any(other is judgement for _, other in self._kept)

    def sorted(self) -> tuple[Found, ...]:
        """What was found: errors first, then by severity, then in the order of the catalogue."""
        places = {name: place for place, name in enumerate(CATALOGUE)}
        found = []
        for (name, judgement), kept in self._kept.items():
            heaviest = sorted(kept.heap, key=lambda entry: entry[:2], reverse=True)
            examples = tuple(maker(*arguments) for _, _, maker, arguments in heaviest)
            found.append(Found(CATALOGUE[name], judgement, kept.count, examples))
        return tuple(
            sorted(
                found,
                key=lambda one: (
                    _JUDGEMENT_ORDER[one.judgement],
                    SEVERITY_ORDER[one.definition.severity],
                    places[one.definition.name],
                ),
            )
        )
