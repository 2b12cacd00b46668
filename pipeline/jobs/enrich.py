"""enrich: flights joined with their airline, plane and weather, exactly once into a topic.

The tables are read when the job is started for the first time, and kept in the checkpoint: a micro-batch that comes
again after a crash has to give the same rows, or nothing could tell which of them are written already. Their topics
cannot be asked again, as compaction takes what was newest at that time.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

from raftlog.cli.arguments import Parser
from raftlog.cli.failure import CommandFailed
from raftlog.client.sync import SyncClient
from raftlog.pipeline.jobs import running
from raftlog.pipeline.jobs.files import Folder
from raftlog.pipeline.jobs.running import LEFT_OUT, Say, Summary
from raftlog.pipeline.jobs.topics import KEPT, ensure

NAME = "enrich"
SUMMARY = "flights joined with their airline, plane and weather, exactly once into a topic"
FLIGHT = (
    "row long, year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int, "
    "sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string, "
    "air_time int, distance int, hour int, minute int, time_hour string"
)
"""A flight as it lies in the topic, in JSON. The other tables, and what is taken of them:"""
TABLES: Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "airlines": ("carrier string, name string", ("carrier",), ("name AS airline",)),
    "planes": (
        "tailnum string, year int, manufacturer string, model string, seats int",
        ("tailnum",),
        ("year AS built", "manufacturer", "model", "seats"),
    ),
    "weather": (
        "origin string, time_hour string, temp double, wind_speed double, precip double, visib double",
        ("origin", "time_hour"),
        ("temp", "wind_speed", "precip", "visib"),
    ),
}
"""By topic: columns, those that it is joined by, and those that a flight gets."""
KEPT_TABLES = "raftlog-tables"
"""In the checkpoint: a folder of Parquet for each table."""


def build_parser() -> Parser:
    made = running.parser(NAME, SUMMARY, "raftlog pipeline run enrich --to enriched --checkpoint state/enrich")
    made.add_argument("--flights", default="flights", metavar="TOPIC", help="(default %(default)s)")
    made.add_argument("--prefix", default="", metavar="TEXT", help="what the names of the tables' topics begin with")
    made.add_argument("--to", default="flights-enriched", metavar="TOPIC", help="(default %(default)s)")
    running.add_stream(made)
    return made


def run(spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    with SyncClient(options.bootstrap_servers, timeout=options.timeout) as client:
        partitions = len(client.admin.topic(options.flights).partitions)
        if ensure(client, options.to, partitions=partitions, configs=KEPT):
            say(f"topic {options.to}: made with {partitions} partitions")
    keep_tables(spark, options)
    flights = running.source(spark, options, options.flights, columns="key,value,timestamp")
    joined = enriched(spark, options, flights)
    writer = joined.writeStream.format("raftlog").option("kafka.bootstrap.servers", options.bootstrap_servers)
    writer = writer.option("topic", options.to).option("includeTimestamp", True)
    totals = running.follow(options, running.triggered(writer, options).start, say)
    summary = Summary(NAME)
    summary.add("rows in", totals.rows, rows_in=totals.rows, seconds=round(totals.seconds, 3))
    summary.add("no flights", totals.left_out, left_out=totals.left_out)
    summary.add("to", f"topic {options.to}, each row once", to=options.to)
    return summary


def enriched(spark: Any, options: argparse.Namespace, flights: Any) -> Any:
    """Flights (key, value, timestamp) with what the tables know of them, in the same columns."""
    found = flights.selectExpr("key", "timestamp", f"from_json(CAST(value AS STRING), '{FLIGHT}') AS flight")
    # A tombstone, or what is no JSON of a flight, has no column, and would become an empty object.
    nothing = "coalesce(to_json(flight), '{}') = '{}'"
    found = found.observe(LEFT_OUT, running.expression(f"count_if({nothing}) AS rows")).where(f"NOT ({nothing})")
    found = found.select("key", "timestamp", "flight.*")
    for name in TABLES:
        # Broadcast: no shuffle, so a flight stays in the task of its partition.
        schema, key, taken = TABLES[name]
        kept = spark.read.schema(schema).parquet(Folder(options.checkpoint).spelt(f"{KEPT_TABLES}/{name}"))
        table = kept.selectExpr(*key, *taken).cache().hint("broadcast")
        found = found.join(table, list(key), "left")
    columns = [name for name in found.columns if name not in ("key", "timestamp")]
    return found.selectExpr("key", f"to_json(struct({', '.join(columns)})) AS value", "timestamp")


def keep_tables(spark: Any, options: argparse.Namespace) -> None:
    """For a new checkpoint, what the tables are now. Raises CommandFailed for one that is empty."""
    checkpoint = Folder(options.checkpoint)
    for name in TABLES:
        folder = f"{KEPT_TABLES}/{name}"
        if checkpoint.read(f"{folder}/_SUCCESS") is not None:
            continue
        rows = latest(spark, options, name)
        if rows.isEmpty():
            raise CommandFailed(f"nothing is in {options.prefix}{name}", "`raftlog pipeline run feed` fills it")
        rows.write.mode("overwrite").parquet(checkpoint.spelt(folder))


def latest(spark: Any, options: argparse.Namespace, name: str) -> Any:
    """A table: the newest record of each key."""
    raw = running.batch(spark, options, options.prefix + name, columns="key,value,offset")
    newest = raw.selectExpr("key", "struct(offset, value) AS newest").groupBy("key").agg({"newest": "max"})
    parsed = f"from_json(CAST(newest.value AS STRING), '{TABLES[name][0]}') AS one"
    return newest.toDF("key", "newest").selectExpr(parsed).select("one.*").cache()


def main(arguments: list[str] | None = None) -> int:
    return running.main(NAME, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
