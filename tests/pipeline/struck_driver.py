"""A driver that copies a topic exactly once, to be killed: `python -m tests.pipeline.struck_driver FOLDER …`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.pipeline.conftest import finish, start_spark
from tests.pipeline.faulty import BlindStruck, Struck


def main() -> None:
    folder, bootstrap, source, target, sink = sys.argv[1:]
    spark = start_spark()
    (Path(folder) / "jvm").write_text(str(spark.sparkContext._gateway.proc.pid))
    for format in (Struck, BlindStruck):
        spark.dataSource.register(format)
    servers = {"kafka.bootstrap.servers": bootstrap}
    loaded = spark.readStream.format("raftlog").options(**servers, subscribe=source, startingOffsets="earliest")
    writer = loaded.option("maxOffsetsPerTrigger", 400).load().select("key", "value").writeStream
    writer = writer.format(sink).option("checkpointLocation", str(Path(folder) / "checkpoint"))
    finish(writer.options(**servers, topic=target).trigger(availableNow=True).start)


if __name__ == "__main__":
    main()
