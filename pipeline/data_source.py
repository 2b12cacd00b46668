"""What Spark knows of the pipeline: `spark.dataSource.register(RaftlogDataSource)`, then `.format("raftlog")`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from raftlog.pipeline.source.options import check_schema, ddl, parse_columns, parse_source
from raftlog.pipeline.workers import freeze_modules

if TYPE_CHECKING:
    from raftlog.pipeline.sink.options import SinkOptions


class RaftlogDataSource(DataSource):
    """Reads and writes topics of raftlog, or of any Kafka. The options are told in docs/PIPELINE.md.

    Spark starts a Python for each query to plan it, so nothing is imported before it is used.
    """

    @classmethod
    def name(cls) -> str:
        return "raftlog"

    def schema(self) -> str:
        return ddl(parse_columns(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        from raftlog.pipeline.source.batch import BatchReader
        from raftlog.pipeline.source.filters import PushFiltersReader

        options = parse_source(self.options, streaming=False)
        check_schema(schema.names, options.columns)
        return PushFiltersReader(options) if options.push_filters else BatchReader(options)

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        from raftlog.pipeline.source.stream import StreamReader

        options = parse_source(self.options, streaming=True)
        check_schema(schema.names, options.columns)
        return StreamReader(options)

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        from raftlog.pipeline.sink.writers import BatchWriter

        return BatchWriter(self._sink(schema, overwrite, streaming=False))

    def streamWriter(self, schema: Any, overwrite: bool) -> DataSourceStreamArrowWriter:
        from raftlog.pipeline.sink.writers import StreamWriter

        return StreamWriter(self._sink(schema, overwrite, streaming=True))

    def _sink(self, schema: Any, overwrite: bool, *, streaming: bool) -> SinkOptions:
        from raftlog.pipeline.sink.options import parse_sink

        freeze_modules()  # each micro-batch is planned by the same worker
        columns = [(field.name, field.dataType.simpleString()) for field in schema.fields]
        return parse_sink(self.options, columns, streaming=streaming, overwrite=overwrite)
