"""Filters of a query: what need not be read because of them, on random filters, records and times out of order."""

from __future__ import annotations

import operator
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.pipeline.source.conditions import (
    NEGATED,
    Comparison,
    Condition,
    begun_at,
    earliest_time,
    is_met,
    narrowed,
)
from raftlog.pipeline.source.ranges import Range, between

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip


class Record(NamedTuple):
    partition: int
    offset: int
    time: int
    """In ms, -1 for none."""

    def column(self, name: str) -> Any:
        return EPOCH + timedelta(milliseconds=self.time) if name == "timestamp" else getattr(self, name, b"key")


def sql(comparison: Comparison, value: Any, given: tuple[Any, ...]) -> bool | None:
    """SQL's three-valued logic, None for unknown. `value` itself is not NULL."""
    match comparison:
        case "is null":
            return False
        case "in":
            found = value in [each for each in given if each is not None]
            return found or (None if None in given else False)
        case "=" | "<" | "<=" | ">" | ">=" | "!=":
            return None if given[0] is None else OPERATORS[comparison](value, given[0])
        case _:
            negated = sql(NEGATED[comparison], value, given)
            return None if negated is None else not negated


def holds(condition: Condition, record: Record) -> bool:
    return sql(condition.comparison, record.column(condition.column), condition.values) is True


numbers = st.none() | st.integers(-2, 12) | st.sampled_from([-(1 << 63), (1 << 63) - 1, 1 << 70])
times = st.none() | st.integers(-3000, 12_000).map(lambda us: EPOCH + timedelta(microseconds=us))
of_column = {"partition": numbers, "offset": numbers, "timestamp": times, "key": st.none() | st.binary(max_size=3)}


@st.composite
def conditions(draw: st.DrawFn) -> Condition:
    column = draw(st.sampled_from(sorted(of_column)))
    comparison: Comparison = draw(st.sampled_from(sorted(NEGATED)))
    least, most = (0, 0) if comparison.startswith("is") else (0, 5) if "in" in comparison else (1, 1)
    return Condition(column, comparison, tuple(draw(st.lists(of_column[column], min_size=least, max_size=most))))


logs = st.dictionaries(
    st.tuples(st.just("t"), st.integers(0, 4)), st.lists(st.integers(-1, 12), max_size=12), max_size=5
)
"""By partition, the times of its records in ms: offset 0 and later, in no order."""


def first_at(log: list[int], time: int) -> int:
    """What a broker says: the offset of the first record that is as late, or the end."""
    return next((offset for offset, each in enumerate(log) if each >= time), len(log))


def read(logs: dict[tuple[str, int], list[int]], wanted: list[Condition]) -> tuple[list[Range], list[Record]]:
    """What is read with these filters, and what there is."""
    ranges = narrowed(between(dict.fromkeys(logs, 0), {each: len(log) for each, log in logs.items()}), wanted)
    time = earliest_time(wanted)
    if time is not None:
        ranges = begun_at(ranges, {each: first_at(log, time) for each, log in logs.items()})
    return ranges, [Record(at, offset, time) for (_, at), log in logs.items() for offset, time in enumerate(log)]


@given(logs, st.lists(conditions(), max_size=4))
def test_what_is_read_has_every_record_that_all_filters_let_through(
    logs: dict[tuple[str, int], list[int]], wanted: list[Condition]
) -> None:
    ranges, records = read(logs, wanted)
    covered = {(each.partition, offset) for each in ranges for offset in range(each.start, each.end)}
    through = [each for each in records if all(holds(condition, each) for condition in wanted)]
    assert covered >= {(each.partition, each.offset) for each in through}
    assert covered <= {(each.partition, each.offset) for each in records}


@given(logs, st.lists(conditions(), max_size=4))
def test_a_filter_that_spark_need_not_look_at_again_lets_all_through_that_is_read(
    logs: dict[tuple[str, int], list[int]], wanted: list[Condition]
) -> None:
    ranges, records = read(logs, wanted)
    seen = [
        each
        for each in records
        if any(each.partition == one.partition and one.start <= each.offset < one.end for one in ranges)
    ]
    for condition in wanted:
        assert not is_met(condition) or all(holds(condition, each) for each in seen), condition


WHOLE = [Range("t", 0, 0, 100), Range("t", 1, 50, 200)]


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        ([Condition("partition", "=", (1,))], [WHOLE[1]]),
        ([Condition("partition", "not in", (1, 7))], [WHOLE[0]]),
        ([Condition("partition", "not in", (7, None))], []),
        ([Condition("offset", ">=", (60,)), Condition("offset", "<", (70,))],
         [Range("t", 0, 60, 70), Range("t", 1, 60, 70)]),
        ([Condition("offset", "in", (3, None, 9))], [Range("t", 0, 3, 10)]),
        ([Condition("offset", "=", (None,))], []),
        ([Condition("timestamp", "is null")], []),
        ([Condition("offset", ">", (1.5,))], WHOLE),
    ],
)  # fmt: skip
def test_partitions_and_both_ends_of_offsets_are_narrowed(wanted: list[Condition], left: list[Range]) -> None:
    assert narrowed(WHOLE, wanted) == left


def test_a_list_of_offsets_is_exactly_met_only_without_gaps() -> None:
    assert is_met(Condition("offset", "in", (4, None, 3, 4)))
    assert not is_met(Condition("offset", "in", (3, 5)))
    assert is_met(Condition("partition", "in", (3, 5)))


def test_a_time_narrows_the_start_only_since_records_lie_out_of_order_in_time() -> None:
    log = [5, 9, 3, 9, 1, 6]
    for comparison, time, start in ((">=", 9, 1), (">", 5, 1), ("=", 3, 0), ("<", 3, 0), (">", 9, 6)):
        wanted = [Condition("timestamp", comparison, (EPOCH + timedelta(milliseconds=time),))]  # type: ignore[arg-type]
        ranges, _ = read({("t", 0): log}, wanted)
        assert ranges == ([Range("t", 0, start, 6)] if start < 6 else [])
        assert not is_met(wanted[0])


def test_a_time_within_a_millisecond_begins_at_the_next_one() -> None:
    def least(comparison: Comparison, us: int) -> int | None:
        return earliest_time([Condition("timestamp", comparison, (EPOCH + timedelta(microseconds=us),))])

    assert [least(">=", us) for us in (4999, 5000, 5001)] == [5, 5, 6]
    assert [least(">", us) for us in (4999, 5000, 5001)] == [5, 6, 6]
    # A record without a time has -1, which is later than what is asked for here.
    assert least(">=", -5000) is None and least(">=", -1000) is None and least(">", -1000) == 0


@pytest.mark.parametrize(
    "strange",
    [
        Condition("offset", "<", (1.5,)),
        Condition("offset", "=", (True,)),
        Condition("partition", "in", (1, "2")),
        Condition("timestamp", ">=", (datetime(2020, 1, 1),)),
        Condition("timestamp", ">=", (1_577_836_800,)),
        Condition("key", "is not null"),
        Condition("topic", "=", ("t",)),
    ],
)
def test_what_is_not_understood_narrows_nothing_and_is_left_to_spark(strange: Condition) -> None:
    assert narrowed(WHOLE, [strange]) == WHOLE and earliest_time([strange]) is None
    assert not is_met(strange)


def test_filters_of_spark_say_the_same_as_conditions() -> None:
    spark = pytest.importorskip("pyspark.sql.datasource")
    from raftlog.pipeline.source.filters import condition

    name = ("offset",)
    assert [condition(each) for each in (
        spark.EqualTo(name, 1), spark.EqualNullSafe(name, 1), spark.EqualNullSafe(name, None), spark.LessThan(name, 2),
        spark.GreaterThanOrEqual(name, 2), spark.In(name, [1, None]), spark.IsNull(name), spark.IsNotNull(name),
        spark.Not(spark.In(name, [1])), spark.Not(spark.LessThanOrEqual(name, 3)),
        spark.Not(spark.Not(spark.GreaterThan(name, 3))), spark.Not(spark.EqualNullSafe(name, None)),
    )] == [
        Condition("offset", "=", (1,)), Condition("offset", "=", (1,)), Condition("offset", "is null"),
        Condition("offset", "<", (2,)), Condition("offset", ">=", (2,)), Condition("offset", "in", (1, None)),
        Condition("offset", "is null"), Condition("offset", "is not null"), Condition("offset", "not in", (1,)),
        Condition("offset", ">", (3,)), Condition("offset", ">", (3,)), Condition("offset", "is not null"),
    ]  # fmt: skip
    assert condition(spark.StringStartsWith(("topic",), "a")) is None
    assert condition(spark.EqualTo(("headers", "key"), "a")) is None
    assert condition(spark.Not(spark.StringContains(("topic",), "a"))) is None
