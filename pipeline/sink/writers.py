"""The sink as Spark calls it: `write` in a task, `commit` and `abort` in the driver."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from raftlog.pipeline.sink import two_phase
from raftlog.pipeline.sink.decision import RUN_LENGTH, SLOTS
from raftlog.pipeline.sink.options import SinkOptions
from raftlog.pipeline.sink.tasks import Result, TaskId, write_rows
from raftlog.pipeline.workers import freeze_modules

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""Properties that Spark sets for the tasks of a micro-batch."""
RUN_ID = "spark.jobGroup.id"
"""The same, one for each start of a query. In other jobs it may be anything."""
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class Wrote(WriterCommitMessage):
    """What a task did, for the driver. Unless it has prepared a transaction, there is nothing left to decide."""

    task: TaskId
    result: Result


def _context() -> TaskContext:
    context = TaskContext.get()
    assert context is not None
    return context


def _write(options: SinkOptions, query: str, batch: int, run: str, batches: Iterator[pa.RecordBatch]) -> Wrote:
    context = _context()
    slot = context.taskAttemptId() % SLOTS
    task = TaskId(options.sink_id or query, query, batch, context.partitionId(), run[:RUN_LENGTH], slot)
    wrote = Wrote(task, write_rows(options, task, batches))
    freeze_modules()
    return wrote


def _written(messages: Sequence[WriterCommitMessage | None]) -> two_phase.Written | None:
    """What those tasks say that did not fail; None if there are none."""
    known = [each for each in messages if isinstance(each, Wrote)]
    if not known:
        return None
    task = known[0].task
    return two_phase.Written(task.sink_id, task.query, task.batch, task.run, [each.result for each in known])


class _Writer:
    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """With the protocol `task`, each has committed by itself."""
        freeze_modules()
        if self._options.two_phase and (written := _written(messages)) is not None:
            two_phase.commit(self._options, written)

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """With the protocol `task`, what a task did not commit is aborted by it, or by the next with its id."""
        if self._options.two_phase and (written := _written(messages)) is not None:
            two_phase.abort(self._options, written)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """A micro-batch that comes again finds what is committed, or decided."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        context = _context()
        names = BATCH_ID, QUERY_ID, RUN_ID
        batch, query, run = (context.getLocalProperty(name) for name in names)
        if batch is None or query is None or run is None:
            raise RuntimeError(f"this Spark does not tell its tasks {', '.join(names)}: use PySpark 4.3")
        return _write(self._options, query, int(batch), run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """A job of its own: a task that is tried again finds what its first attempt committed."""

    def __init__(self, options: SinkOptions) -> None:
        super().__init__(options)
        self._run = uuid.uuid4().hex
        self._query = options.sink_id or f"job-{self._run}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        # In foreachBatch the run is the query's, or each batch would have transactional ids of its own.
        given = _context().getLocalProperty(RUN_ID) or ""
        run = given if UUID.fullmatch(given) else self._run
        return _write(self._options, self._query, self._options.batch or 0, run, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)
