"""Streams: micro-batches with admission control, AvailableNow, and the query seen as a group."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from raftlog.client.core.errors import KafkaError
from raftlog.client.core.progress import Position
from raftlog.client.offsets import GroupMember, commit_offsets
from raftlog.pipeline.session import session
from raftlog.pipeline.source.batch import Task, read_task
from raftlog.pipeline.source.offsets import NEW, Offsets, Partition, Written, read, read_begun, write
from raftlog.pipeline.source.options import SourceOptions
from raftlog.pipeline.source.planning import Planner
from raftlog.pipeline.source.ranges import DataLoss, between, gone_back, split
from raftlog.pipeline.source.triggers import Limits, Trigger

if TYPE_CHECKING:
    import pyarrow as pa

PARTITIONS_SECONDS = 1.0
"""How often to look for new partitions and topics."""

PROGRESS_SECONDS, PROGRESS_PAUSE_SECONDS = 15.0, 60.0
"""How long a group's coordinator may take to store where the query stands, and when one that did not is asked again."""

_logger = logging.getLogger(__name__)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in one process as long as its query, but for `read`, which works on copies.

    Offsets in Spark's checkpoint are {"topic": {"partition": next offset}} (see `offsets.py`). A group, if there is
    one, only shows them.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._trigger = Trigger()
        self._begun: Mapping[Partition, int] | None = None
        self._target: dict[Partition, int] | None = None
        """With AvailableNow, where the query ends."""
        self._last: dict[Partition, int] = {}
        self._partitions: list[Partition] = []
        self._looked_at = 0.0
        self._committed: Mapping[Partition, int] = {}
        self._commits_from = 0.0

    def initialOffset(self) -> Written:
        """Not the offsets themselves: Spark does not keep them, and asks again when the first micro-batch comes again,
        which then might begin elsewhere. They are kept with its end.
        """
        return NEW

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets is not None:
            return ReadMaxRows(options.max_offsets)
        return ReadMinRows(options.min_offsets) if options.min_offsets is not None else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._looked_at = 0.0
        self._target = session(self._options.connection).run(self._ends())

    def latestOffset(self, start: Written, limit: ReadLimit) -> Written:
        begin = read(start) if start != NEW else self._begin()
        # What lies before `start` is in the checkpoint by now; `commit` comes one batch later, or never.
        self._show_progress(begin)
        last = session(self._options.connection).run(self._ends()) if self._target is None else self._target
        # An end that has gone back is taken as it is: what comes behind it is new, in a topic that was made anew, too.
        self._last = last
        self._lost(gone_back(begin, last))
        end = self._trigger.end(begin, self._last, self._limits(limit), time.monotonic())
        if start == NEW:
            return write(end, begin)
        return start if end == begin else write(end)  # Spark compares the text

    def reportLatestOffset(self) -> Written | None:
        return write(self._last) if self._last else None

    def partitions(self, start: Written, end: Written) -> Sequence[InputPartition]:
        options = self._options
        ranges = between(read(start) if start != NEW else read_begun(end), read(end))
        return [
            Task(each)
            for each in split(ranges, least=options.min_partitions, records_max=options.max_records_per_partition)
        ]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_task(self._options, partition)

    def commit(self, end: Written) -> None:
        self._show_progress(read(end))

    def stop(self) -> None:
        """Connections belong to the process."""

    def _limits(self, limit: ReadLimit) -> Limits:
        if isinstance(limit, ReadAllAvailable):
            return Limits()
        options = self._options
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else options.max_offsets
        # To wait for more would end a query that reads what is available now.
        least = options.min_offsets if self._target is None else None
        return Limits(most, least, options.max_trigger_delay_ms / 1000)

    def _begin(self) -> Mapping[Partition, int]:
        """Where a new query begins."""
        if self._begun is None:
            self._begun = session(self._options.connection).run(self._start())
            if self._target is not None:
                self.prepareForTriggerAvailableNow()  # the end that was found before may lie before the beginning
        return self._begun

    async def _start(self) -> dict[Partition, int]:
        planner = self._planner()
        return await planner.start(await planner.partitions())

    async def _ends(self) -> dict[Partition, int]:
        planner = self._planner()
        now = time.monotonic()
        if not self._partitions or now - self._looked_at >= PARTITIONS_SECONDS:
            self._partitions, self._looked_at = await planner.partitions(), now
        return await planner.last(self._partitions)

    def _planner(self) -> Planner:
        return Planner(session(self._options.connection).router, self._options)

    def _lost(self, what: Sequence[str]) -> None:
        if not what:
            return
        if self._options.fail_on_data_loss:
            raise DataLoss(what)
        _logger.warning("some data may have been lost: %s", "; ".join(what))

    def _show_progress(self, offsets: Offsets) -> None:
        """Commit for the group. Nothing depends on it: a group that cannot be reached stops no query."""
        options = self._options
        if not options.commit_offsets or options.group is None or offsets == self._committed or not offsets:
            return
        if time.monotonic() < self._commits_from:
            return  # it would hold each micro-batch up
        try:
            session(options.connection).run(self._commit(options.group, offsets))
        except KafkaError as error:
            _logger.warning("offsets of group %s were not committed: %s", options.group, error)
        except TimeoutError:
            self._commits_from = time.monotonic() + PROGRESS_PAUSE_SECONDS
            _logger.warning("offsets of group %s were not committed within %g s", options.group, PROGRESS_SECONDS)
        else:
            self._committed = offsets

    async def _commit(self, group: str, offsets: Offsets) -> None:
        positions = {partition: Position(offset) for partition, offset in offsets.items()}
        async with asyncio.timeout(PROGRESS_SECONDS):
            await commit_offsets(session(self._options.connection).router, GroupMember(group), positions)
