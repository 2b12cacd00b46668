"""What Spark knows of the pipeline: `spark.dataSource.register(RaftlogDataSource)`, then `.format("raftlog")`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceReader

from raftlog.pipeline.source.batch import BatchReader, FilteringBatchReader
from raftlog.pipeline.source.options import parse_columns, parse_source
from raftlog.pipeline.source.rows import ddl

ASKS_WITH_FILTERS = "data_source_pushdown_filters"
"""The module of Spark that makes a reader and hands it filters; another one makes readers where filters are off."""


class RaftlogDataSource(DataSource):
    """Reads topics of raftlog, or of any Kafka. The options are told in docs/PIPELINE.md."""

    @classmethod
    def name(cls) -> str:
        return "raftlog"

    def schema(self) -> str:
        return ddl(parse_columns(self.options))

    def reader(self, schema: Any) -> DataSourceReader:
        options = parse_source(self.options, streaming=False)
        asked_by = Path(sys._getframe(1).f_code.co_filename).stem
        return FilteringBatchReader(options) if asked_by == ASKS_WITH_FILTERS else BatchReader(options)
