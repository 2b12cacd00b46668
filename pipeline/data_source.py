"""What Spark knows of the pipeline: `spark.dataSource.register(RaftlogDataSource)`, then `.format("raftlog")`."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from raftlog.pipeline.sink.options import SinkOptions, parse_sink
from raftlog.pipeline.sink.writers import BatchWriter, StreamWriter
from raftlog.pipeline.source.batch import BatchReader
from raftlog.pipeline.source.options import parse_columns, parse_source
from raftlog.pipeline.source.rows import ddl
from raftlog.pipeline.source.stream import StreamReader


class RaftlogDataSource(DataSource):
    """Reads and writes topics of raftlog, or of any Kafka. The options are told in docs/PIPELINE.md."""

    @classmethod
    def name(cls) -> str:
        return "raftlog"

    def schema(self) -> str:
        return ddl(parse_columns(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        return BatchReader(parse_source(self.options, streaming=False))

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return StreamReader(parse_source(self.options, streaming=True))

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        return BatchWriter(self._sink(schema, overwrite, streaming=False))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        return StreamWriter(self._sink(schema, overwrite, streaming=True))

    def _sink(self, schema: Any, overwrite: bool, *, streaming: bool) -> SinkOptions:
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return parse_sink(self.options, columns, streaming=streaming, overwrite=overwrite)
