"""Filters of a query that a batch read carries out by reading less.

A filter that is kept is not applied again by Spark, so only those are kept that ranges of offsets fulfil exactly: on
topic, partition and offset. One on the timestamp says where to begin, and is applied by Spark all the same, because
timestamps need not rise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from raftlog.pipeline.source.ranges import Range

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass
class Restriction:
    """What is left to read. `offset_end` is exclusive; `not_before_ms`: no record that is older need be read."""

    topics: set[str] | None = None
    partitions: list[Callable[[int], bool]] = field(default_factory=list)
    offset_start: int = 0
    offset_end: int | None = None
    offsets: set[int] | None = None
    not_before_ms: int | None = None

    def apply(self, ranges: Iterable[Range]) -> list[Range]:
        """The parts of ranges that are left."""
        found: list[Range] = []
        for each in ranges:
            if self.topics is not None and each.topic not in self.topics:
                continue
            if not all(passes(each.partition) for passes in self.partitions):
                continue
            end = each.end if self.offset_end is None else min(each.end, self.offset_end)
            kept = each._replace(start=max(each.start, self.offset_start), end=end)
            if self.offsets is None:
                found.append(kept)
                continue
            wanted = sorted(offset for offset in self.offsets if kept.start <= offset < kept.end)
            found += [kept._replace(start=offset, end=offset + 1) for offset in wanted]
        return [each for each in found if each.size > 0]

    def keep(self, condition: Any) -> bool:
        """Take a filter of pyspark.sql.datasource into account; whether Spark need not apply it any more."""
        kind = type(condition).__name__
        attribute: tuple[str, ...] = getattr(condition, "attribute", ())
        if len(attribute) != 1:
            return False
        column = str(attribute[0]).lower()
        if kind == "IsNotNull":
            return column in ("topic", "partition", "offset", "timestamp", "timestamptype")
        value = getattr(condition, "value", None)
        values: list[Any] = list(value) if kind == "In" and isinstance(value, list | tuple) else [value]
        if column == "topic" and kind in ("EqualTo", "EqualNullSafe", "In"):
            return self._keep_topics(values)
        if column == "timestamp":
            self._begin_at(kind, value)
            return False
        if column not in ("partition", "offset") or not all(type(each) is int for each in values):
            return False
        if kind not in COMPARISONS:
            return False
        if column == "partition":
            compare = COMPARISONS[kind]
            self.partitions.append(lambda index: compare(index, values))
        else:
            self._keep_offsets(kind, values)
        return True

    def _keep_topics(self, values: list[Any]) -> bool:
        if not all(isinstance(each, str) for each in values):
            return False
        self.topics = set(values) if self.topics is None else self.topics & set(values)
        return True

    def _keep_offsets(self, kind: str, values: list[int]) -> None:
        if kind == "In":
            self.offsets = set(values) if self.offsets is None else self.offsets & set(values)
            return
        (value,) = values
        if kind in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            self.offset_start = max(self.offset_start, value + (kind == "GreaterThan"))
        if kind in ("EqualTo", "EqualNullSafe", "LessThan", "LessThanOrEqual"):
            end = value + (kind != "LessThan")
            self.offset_end = end if self.offset_end is None else min(self.offset_end, end)

    def _begin_at(self, kind: str, value: Any) -> None:
        if kind not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
            return
        if not isinstance(value, datetime) or value.tzinfo is None:
            return
        since = value - EPOCH
        milliseconds = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
        self.not_before_ms = max(milliseconds, 0 if self.not_before_ms is None else self.not_before_ms)


COMPARISONS: dict[str, Callable[[int, list[int]], bool]] = {
    "EqualTo": lambda index, values: index == values[0],
    "EqualNullSafe": lambda index, values: index == values[0],
    "GreaterThan": lambda index, values: index > values[0],
    "GreaterThanOrEqual": lambda index, values: index >= values[0],
    "LessThan": lambda index, values: index < values[0],
    "LessThanOrEqual": lambda index, values: index <= values[0],
    "In": lambda index, values: index in values,
}
