"""Batch reads that take filters from Spark (`pushFilters=true`)."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from raftlog.pipeline.source.batch import BatchReader
from raftlog.pipeline.source.conditions import NEGATED, Condition, is_met


class PushFiltersReader(BatchReader):
    """Reads less where a filter on partition, offset or timestamp allows it.

    A class of its own, and named like the option: Spark refuses a reader that has `pushFilters` while
    spark.sql.python.filterPushdown.enabled is false, and names its class. Spark 4.3 keeps a reader, with the filters
    it has, for the next query on the same DataFrame if that one pushes no filter; the reader does not hear of it.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """The filters that Spark has to evaluate again."""
        left = []
        for each in filters:
            found = condition(each)
            if found is not None:
                self._conditions.append(found)
            if found is None or not is_met(found):
                left.append(each)
        return left


def condition(pushed: Filter) -> Condition | None:
    """What a filter says of a column without NULLs, None for those that there are no comparisons for."""
    match pushed:
        case Not(child):
            found = condition(child)
            return None if found is None else found._replace(comparison=NEGATED[found.comparison])
        case EqualNullSafe((name,), None) | IsNull((name,)):
            return Condition(name, "is null")
        case EqualTo((name,), value) | EqualNullSafe((name,), value):
            return Condition(name, "=", (value,))
        case LessThan((name,), value):
            return Condition(name, "<", (value,))
        case LessThanOrEqual((name,), value):
            return Condition(name, "<=", (value,))
        case GreaterThan((name,), value):
            return Condition(name, ">", (value,))
        case GreaterThanOrEqual((name,), value):
            return Condition(name, ">=", (value,))
        case In((name,), values):
            return Condition(name, "in", tuple(values))
        case IsNotNull((name,)):
            return Condition(name, "is not null")
        case _:
            return None
