"""delays: how late flights left, by airport and hour, kept up to date in a compacted topic.

Windows of event time with a watermark: a flight that comes late changes its hour as long as the watermark allows it,
and is counted as too late behind that. Each micro-batch writes the hours that it changed, under their keys, once.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any

from raftlog.cli.arguments import Parser
from raftlog.client.sync import SyncClient
from raftlog.pipeline.jobs import running
from raftlog.pipeline.jobs.enrich import FLIGHT
from raftlog.pipeline.jobs.files import identity
from raftlog.pipeline.jobs.running import LEFT_OUT, Say, Summary
from raftlog.pipeline.jobs.topics import COMPACTED, ensure

NAME = "delays"
SUMMARY = "departure delays by airport and hour of event time, upserted into a compacted topic"


def build_parser() -> Parser:
    made = running.parser(NAME, SUMMARY, "raftlog pipeline run delays --to delays --checkpoint state/delays")
    made.add_argument("--flights", default="flights", metavar="TOPIC", help="(default %(default)s)")
    made.add_argument("--to", default="delays", metavar="TOPIC", help="(default %(default)s)")
    made.add_argument("--window", default="1 hour", metavar="TIME", help="(default %(default)s)")
    made.add_argument(
        "--watermark", default="2 days", metavar="TIME", help="how late a flight may come (default %(default)s)"
    )
    running.add_stream(made)
    return made


def run(spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    with SyncClient(options.bootstrap_servers, timeout=options.timeout) as client:
        ensure(client, options.to, configs=COMPACTED)
    flights = running.source(spark, options, options.flights, columns="value,timestamp")
    servers = {"kafka.bootstrap.servers": options.bootstrap_servers}
    upsert = partial(_upsert, {**servers, "topic": options.to, "sinkId": identity(options.checkpoint, NAME)})
    stream = by_window(flights, options.window, options.watermark).writeStream.outputMode("update")
    totals = running.follow(options, running.triggered(stream.foreachBatch(upsert), options).start, say)
    summary = Summary(NAME)
    summary.add("rows in", totals.rows, rows_in=totals.rows, seconds=round(totals.seconds, 3))
    summary.add("too late", totals.too_late, too_late=totals.too_late)
    summary.add("no flights", totals.left_out, left_out=totals.left_out)
    summary.add("to", f"topic {options.to}, one key for each airport and hour", to=options.to)
    return summary


def _upsert(given: Mapping[str, str], batch: Any, number: int) -> None:
    """A sink in Python takes no updates of a stream, so each micro-batch is written by itself, under its number."""
    batch.write.format("raftlog").options(**given, batchId=number).mode("append").save()


def by_window(flights: Any, window: str, watermark: str) -> Any:
    """Columns key and value: the airport and the window, and in JSON what is known of it so far."""
    found = flights.selectExpr("timestamp", f"from_json(CAST(value AS STRING), '{FLIGHT}') AS flight")
    found = found.selectExpr("timestamp", "flight.origin", "flight.dep_delay")
    # Without an airport it is no flight, and would be a record without a key, which a compacted topic does not take.
    found = found.observe(LEFT_OUT, running.expression("count_if(origin IS NULL) AS rows")).where("origin IS NOT NULL")
    found = found.withWatermark("timestamp", watermark)
    counted = found.selectExpr(f"window(timestamp, '{window}') AS window", "origin", "dep_delay", "timestamp")
    grouped = counted.groupBy("window", "origin")
    totals = grouped.agg(*_totals())
    start = "date_format(window.start, \"yyyy-MM-dd'T'HH:mm:ss'Z'\")"
    return totals.selectExpr(
        f"concat(origin, '|', {start}) AS key",
        f"to_json(struct(origin, {start} AS window, flights, departed, cancelled, delay_sum, "
        "delay_sum / departed AS delay, delay_max)) AS value",
    )


def _totals() -> list[Any]:
    return [
        running.expression("count(*) AS flights"),
        running.expression("count(dep_delay) AS departed"),
        running.expression("count_if(dep_delay IS NULL) AS cancelled"),
        running.expression("sum(dep_delay) AS delay_sum"),
        running.expression("max(dep_delay) AS delay_max"),
    ]


def main(arguments: list[str] | None = None) -> int:
    return running.main(NAME, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
