"""A driver that copies a topic exactly once, to be killed: `python -m tests.pipeline.struck_driver FOLDER …`.

Where the driver decides, rows come to other tasks each time.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import functions

from raftlog.pipeline.sink.options import TWO_PHASE
from tests.pipeline.conftest import finish, start_spark
from tests.pipeline.faulty import BlindStruck, Struck

SETTINGS = {
    "spark.cores.max": "2",
    "spark.executor.memory": "512m",
    # Each of its attempts may be the one that is struck.
    "spark.task.maxFailures": "20",
    # A task gets its rows in several pieces.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
}


def main() -> None:
    folder, bootstrap, source, target, sink, protocol, master = sys.argv[1:]
    spark = start_spark(master, **SETTINGS)
    (Path(folder) / "jvm").write_text(str(spark.sparkContext._gateway.proc.pid))
    for format in (Struck, BlindStruck):
        spark.dataSource.register(format)
    servers = {"kafka.bootstrap.servers": bootstrap}
    loaded = spark.readStream.format("raftlog").options(**servers, subscribe=source, startingOffsets="earliest")
    rows = loaded.option("maxOffsetsPerTrigger", 400).load().select("key", "value")
    if protocol == TWO_PHASE:
        rows = rows.repartition(3, functions.rand())
    writer = rows.writeStream.format(sink).option("checkpointLocation", str(Path(folder) / "checkpoint"))
    writer = writer.options(**servers, topic=target, commitProtocol=protocol)
    finish(writer.trigger(availableNow=True).start)


if __name__ == "__main__":
    main()
