"""enrich: flights joined with their airline, plane and weather, exactly once into a topic.

The tables are read as they are when the job is started for the first time, and their offsets kept beside the
checkpoint: a micro-batch that comes again after a crash has to give the same rows, or nothing could tell which of
them are written already.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import Any

from raftlog.cli.arguments import Parser
from raftlog.cli.failure import CommandFailed
from raftlog.client.sync import SyncClient
from raftlog.pipeline.jobs import running
from raftlog.pipeline.jobs.files import Folder
from raftlog.pipeline.jobs.running import Say, Summary
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
PINNED = "raftlog-tables.json"
"""In the checkpoint: up to which offsets the tables are read."""


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
        pinned = pin(client, options)
    flights = running.source(spark, options, options.flights, columns="key,value,timestamp")
    joined = enriched(spark, options, flights, pinned)
    writer = joined.writeStream.format("raftlog").option("kafka.bootstrap.servers", options.bootstrap_servers)
    writer = writer.option("topic", options.to).option("includeTimestamp", True)
    totals = running.follow(options, running.triggered(writer, options).start, say)
    summary = Summary(NAME)
    summary.add("rows in", totals.rows, rows_in=totals.rows, seconds=round(totals.seconds, 3))
    summary.add("to", f"topic {options.to}, each row once", to=options.to)
    return summary


def enriched(spark: Any, options: argparse.Namespace, flights: Any, pinned: Mapping[str, Any]) -> Any:
    """Flights (key, value, timestamp) with what the tables know of them, in the same columns."""
    found = flights.selectExpr("key", "timestamp", f"from_json(CAST(value AS STRING), '{FLIGHT}') AS flight")
    found = found.select("key", "timestamp", "flight.*")
    for name in TABLES:
        # Broadcast: no shuffle, so a flight stays in the task of its partition.
        table = latest(spark, options, name, pinned).hint("broadcast")
        found = found.join(table, list(TABLES[name][1]), "left")
    columns = [name for name in found.columns if name not in ("key", "timestamp")]
    return found.selectExpr("key", f"to_json(struct({', '.join(columns)})) AS value", "timestamp")


def latest(spark: Any, options: argparse.Namespace, name: str, pinned: Mapping[str, Any]) -> Any:
    """A table: the newest record of each key, in the session's memory."""
    schema, key, taken = TABLES[name]
    ends = {options.prefix + name: pinned[options.prefix + name]}
    columns = "key,value,offset"
    raw = running.batch(spark, options, options.prefix + name, columns=columns, endingOffsets=json.dumps(ends))
    newest = raw.selectExpr("key", "struct(offset, value) AS newest").groupBy("key").agg({"newest": "max"})
    parsed = f"from_json(CAST(newest.value AS STRING), '{schema}') AS one"
    rows = newest.toDF("key", "newest").selectExpr(parsed).select("one.*")
    return rows.selectExpr(*key, *taken).cache()


def pin(client: SyncClient, options: argparse.Namespace) -> dict[str, Any]:
    """Up to where the tables are read: as the checkpoint says, or for a new one up to where they are now."""
    checkpoint = Folder(options.checkpoint)
    known = checkpoint.read(PINNED)
    if known is not None:
        found: dict[str, Any] = json.loads(known)
        return found
    topics = [options.prefix + name for name in TABLES]
    partitions = [(topic, each.partition_index) for topic in topics for each in client.admin.topic(topic).partitions]
    ends: dict[str, Any] = {}
    for (topic, index), offset in client.admin.offsets_at(partitions, -1).items():
        ends.setdefault(topic, {})[str(index)] = offset
    empty = [topic for topic, parts in ends.items() if not any(parts.values())]
    if empty:
        raise CommandFailed(f"nothing is in {', '.join(empty)}", "`raftlog pipeline run feed` fills them")
    checkpoint.write(PINNED, json.dumps(ends))
    return ends


def main(arguments: list[str] | None = None) -> int:
    return running.main(NAME, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
