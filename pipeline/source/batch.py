"""Batch reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from raftlog.pipeline.session import session
from raftlog.pipeline.source.conditions import Condition, begun_at, earliest_time, narrowed
from raftlog.pipeline.source.options import SourceOptions
from raftlog.pipeline.source.planning import Planner
from raftlog.pipeline.source.ranges import DataLoss, Range, between, split, too_small
from raftlog.pipeline.workers import freeze_modules

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass
class Task(InputPartition):
    """What one task reads: of each partition one range, in their order."""

    wanted: Sequence[Range]


def read_task(options: SourceOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of a task: of one partition after the other, in the order of their offsets."""
    from raftlog.pipeline.source.fetch import read_ranges
    from raftlog.pipeline.source.rows import arrow_schema, record_batches

    assert isinstance(partition, Task)
    if partition.wanted:
        schema = arrow_schema(options.columns)
        for slices in read_ranges(options, partition.wanted):
            yield from record_batches(slices, schema)
    freeze_modules()


class BatchReader(DataSourceReader):
    """Plans in the driver, reads in the workers."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._conditions: list[Condition] = []
        """What rows have to fulfil, if filters were pushed (`filters.py`)."""

    def partitions(self) -> list[InputPartition]:
        tasks = session(self._options.connection).run(self._plan())
        # Spark makes one task of None out of an empty list.
        return [Task(each) for each in tasks] or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)

    async def _plan(self) -> list[list[Range]]:
        options = self._options
        planner = Planner(session(options.connection).router, options)
        partitions = await planner.partitions()
        start, end = await planner.start(partitions), await planner.end(partitions)
        first = await planner.first(partitions)
        lost = too_small(start, first)
        if lost and options.fail_on_data_loss:
            raise DataLoss(lost)
        start = {each: max(offset, first[each]) for each, offset in start.items()}
        ranges = narrowed(between(start, end), self._conditions)
        time = earliest_time(self._conditions)
        if ranges and time is not None:
            wanted = [each.topic_partition for each in ranges]
            ranges = begun_at(ranges, await planner.first_at(wanted, time))
        return split(ranges, least=options.min_partitions, records_max=options.max_records_per_partition)
