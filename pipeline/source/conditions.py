"""What the filters of a query leave to be read: fewer partitions, narrower offsets, and from which time on.

The columns that this is about, partition, offset and timestamp, are NULL in no row. A condition that cannot be told
here narrows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Literal, NamedTuple, TypeAlias

from raftlog.pipeline.source.offsets import Offsets
from raftlog.pipeline.source.ranges import Range

Comparison: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]

NEGATED: dict[Comparison, Comparison] = {
    "=": "!=",
    "!=": "=",
    "<": ">=",
    ">=": "<",
    ">": "<=",
    "<=": ">",
    "in": "not in",
    "not in": "in",
    "is null": "is not null",
    "is not null": "is null",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Condition(NamedTuple):
    """A column compared with one value; with any number of them for "in" and "not in", with none for NULL tests.

    Values are as Spark hands them over: int for partition and offset, datetime for timestamp, None for NULL.
    """

    column: str
    comparison: Comparison
    values: tuple[object, ...] = ()


class Interval(NamedTuple):
    """Numbers from `low` to `high`, both inclusive."""

    low: int
    high: int

    @property
    def is_empty(self) -> bool:
        return self.high < self.low


ALL, NONE = Interval(-(1 << 63), (1 << 63) - 1), Interval(0, -1)


def interval(condition: Condition) -> Interval | None:
    """The smallest one that has every number for which a condition is true: partitions, offsets, or microseconds.

    None for a condition that is not understood.
    """
    numbers = _numbers(condition)
    if numbers is None:
        return None
    known = [number for number in numbers if number is not None]
    match condition.comparison:
        case "is not null":
            return ALL
        case "is null":
            return NONE
        case "in":
            return Interval(min(known), max(known)) if known else NONE
        # What is compared with NULL is never true.
        case _ if len(known) < len(numbers):
            return NONE
        case "=":
            return Interval(known[0], known[0])
        case "<":
            return ALL._replace(high=known[0] - 1)
        case "<=":
            return ALL._replace(high=known[0])
        case ">":
            return ALL._replace(low=known[0] + 1)
        case ">=":
            return ALL._replace(low=known[0])
        case "!=" | "not in":
            return ALL


def is_met(condition: Condition) -> bool:
    """Whether it is true for all that `narrowed` leaves, so that nobody has to look at it again."""
    left = interval(condition)
    if left is None:
        return False
    if left.is_empty or condition.column == "partition" or condition.comparison == "is not null":
        return True
    if condition.column == "timestamp" or condition.comparison in ("!=", "not in"):
        return False
    return condition.comparison != "in" or len(set(condition.values) - {None}) == left.high - left.low + 1


def narrowed(ranges: Iterable[Range], conditions: Sequence[Condition]) -> list[Range]:
    """Ranges without the partitions and offsets that conditions rule out."""
    if any(_of(conditions, column).is_empty for column in ("partition", "offset", "timestamp")):
        return []
    offsets = _of(conditions, "offset")
    partitions = [each for each in conditions if each.column == "partition"]
    left = [
        each._replace(start=max(each.start, offsets.low), end=min(each.end, offsets.high + 1))
        for each in ranges
        if all(_may_hold(condition, each.partition) for condition in partitions)
    ]
    return [each for each in left if each.size > 0]


def earliest_time(conditions: Sequence[Condition]) -> int | None:
    """Of records that are earlier than this, in ms, none is wanted; None if they may be."""
    milliseconds = -(-_of(conditions, "timestamp").low // 1000)
    # A record without a time has -1, and ListOffsets means other things by negative times.
    return milliseconds if milliseconds >= 0 else None


def begun_at(ranges: Iterable[Range], first: Offsets) -> list[Range]:
    """Ranges from the first wanted offset of their partitions on.

    Records may lie out of order in time, so that no time says where a range could end.
    """
    left = [each._replace(start=max(each.start, first[each.topic_partition])) for each in ranges]
    return [each for each in left if each.size > 0]


def _of(conditions: Iterable[Condition], column: str) -> Interval:
    """What all conditions on a column leave of it."""
    low, high = ALL
    for each in conditions:
        if each.column == column and (left := interval(each)) is not None:
            low, high = max(low, left.low), min(high, left.high)
    return Interval(low, high)


def _may_hold(condition: Condition, number: int) -> bool:
    """Whether it is true for a number; yes where it is not understood."""
    left = interval(condition)
    if left is None:
        return True
    if not left.low <= number <= left.high:
        return False
    match condition.comparison:
        case "in":
            return number in condition.values
        case "not in" | "!=":
            return number not in condition.values
        case _:
            return True


def _numbers(condition: Condition) -> list[int | None] | None:
    """The values, None for NULL; None if one, or the column, is not understood."""
    if condition.column not in ("partition", "offset", "timestamp"):
        return None
    found: list[int | None] = []
    for value in condition.values:
        if value is None:
            found.append(None)
        elif condition.column == "timestamp":
            if not isinstance(value, datetime) or value.tzinfo is None:
                return None
            found.append((value - _EPOCH) // _MICROSECOND)
        elif type(value) is int:
            found.append(value)
        else:
            return None
    return found
