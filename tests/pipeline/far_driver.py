"""A driver whose workers have no raftlog of their own; see `test_spark_clusters.py`."""

from __future__ import annotations

import sys

from raftlog.pipeline import RaftlogDataSource, ship
from raftlog.pipeline.sink.options import TASK, TWO_PHASE
from tests.pipeline.conftest import SETTINGS, finish


def has_no_raftlog(batches):  # type: ignore[no-untyped-def]
    """In a worker: whether raftlog was sent to it, and where it lies."""
    import pyarrow as pa

    import raftlog

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [raftlog.__file__]})


def main() -> None:
    master, bootstrap, source, target, state = sys.argv[1:]
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    builder = builder.remote("local[2]") if master == "connect" else builder.master(master)
    for name, value in {**SETTINGS, "spark.cores.max": "2", "spark.executor.memory": "512m"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    ship(spark)
    spark.dataSource.register(RaftlogDataSource)
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(has_no_raftlog, "place string").collect()
    print("raftlog is in", row.place)
    servers = {"kafka.bootstrap.servers": bootstrap}
    given = {**servers, "subscribe": source, "minPartitions": "2"}
    read = spark.read.format("raftlog").options(**given).load()
    print("rows in", read.count())
    stream = spark.readStream.format("raftlog").options(**given, startingOffsets="earliest").load()
    for protocol in (TASK, TWO_PHASE):
        options = {**servers, "topic": target, "commitProtocol": protocol}
        writer = stream.select("key", "value").writeStream.format("raftlog").options(**options)
        finish(writer.option("checkpointLocation", f"{state}-{protocol}").trigger(availableNow=True).start)
        read.select("value").write.format("raftlog").options(**options).mode("append").save()
    spark.stop()


if __name__ == "__main__":
    main()
