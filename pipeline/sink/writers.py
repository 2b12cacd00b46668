"""The sink as Spark calls it: `write` in a task, `commit` and `abort` in the driver."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from raftlog.pipeline.sink.options import SinkOptions
from raftlog.pipeline.sink.tasks import TaskId, write_rows

BATCH_ID, QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""Properties that Spark sets for the tasks of a micro-batch."""


@dataclass
class Wrote(WriterCommitMessage):
    """What a task did. What it wrote is committed by then: there is nothing for the driver to decide."""

    rows: int
    was_written: bool


def _write(options: SinkOptions, query: str, batch: int, batches: Iterator[pa.RecordBatch]) -> Wrote:
    context = TaskContext.get()
    assert context is not None
    task = TaskId(options.sink_id or query, query, batch, context.partitionId())
    return Wrote(*write_rows(options, task, batches))


class StreamWriter(DataSourceStreamArrowWriter):
    """Each task commits by itself; a micro-batch that comes again finds what is committed."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        context = TaskContext.get()
        assert context is not None
        batch, query = context.getLocalProperty(BATCH_ID), context.getLocalProperty(QUERY_ID)
        if batch is None or query is None:
            raise RuntimeError(f"this Spark does not tell its tasks {BATCH_ID} and {QUERY_ID}: use PySpark 4.3")
        return _write(self._options, query, int(batch), iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was not committed is aborted by its task, or by the next one with its transactional id."""


class BatchWriter(DataSourceArrowWriter):
    """A job of its own: a task that is tried again finds what its first attempt committed."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options
        self._query = options.sink_id or f"job-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Wrote:
        return _write(self._options, self._query, self._options.batch or 0, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Nothing is left to do."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What other tasks have committed stays; see docs/PIPELINE.md."""
