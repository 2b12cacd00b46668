"""load: topics to a lake of Parquet by date and hour, exactly once, and back from the lake to a topic.

A micro-batch is written aside, moved to its place under names that say which one it is, and then told in a manifest.
One that comes again after a crash replaces what the first attempt has left. Who reads only the files that manifests
name sees each row once, and no row of a micro-batch whose manifest is not there yet.
"""

from __future__ import annotations

import argparse
import re
from functools import partial
from typing import Any

from raftlog.cli.arguments import Parser
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.client.sync import SyncClient
from raftlog.pipeline.jobs import running
from raftlog.pipeline.jobs.files import identity
from raftlog.pipeline.jobs.lake import Lake, in_hours
from raftlog.pipeline.jobs.running import Say, Summary
from raftlog.pipeline.jobs.topics import KEPT, ensure

NAME = "load"
SUMMARY = "topics to a lake of Parquet by date and hour, exactly once; with --replay back into a topic"
EXAMPLE = """raftlog pipeline run load --topics flights --lake lake --checkpoint state/load
  raftlog pipeline run load --lake lake --replay flights-again --since 2013-01-31"""
PARTITIONS = 8
"""Tasks of a replay: rows are divided by their partition, so that a replay that comes again divides them alike."""


def build_parser() -> Parser:
    made = running.parser(NAME, SUMMARY, EXAMPLE)
    made.add_argument("--lake", required=True, metavar="DIR", help="a folder, or a URI such as s3://bucket/lake")
    made.add_argument("--topics", metavar="A,B", help="what to load")
    running.add_stream(made, required=False)
    group = made.add_argument_group("back")
    group.add_argument("--replay", metavar="TOPIC", help="write what is in the lake to this topic")
    group.add_argument("--of", metavar="TOPIC", help="only rows of this topic; needed if the lake has several")
    since = "only rows of this hour (UTC) and later: 2013-01-31 or 2013-01-31T18"
    group.add_argument("--since", metavar="DATE", type=hour, help=since)
    group.add_argument("--until", metavar="DATE", type=hour, help="only rows before this hour")
    return made


def hour(text: str) -> str:
    """Hours are compared as text, so that another form of one would let the wrong rows through."""
    if re.fullmatch(r"\d{4}-\d\d-\d\d(T\d\d)?", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r}: write 2013-01-31 or 2013-01-31T18")
    return text


def run(spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    if options.replay:
        return replay(spark, options, say)
    if not options.topics or not options.checkpoint:
        raise UsageError("--topics and --checkpoint say what to load, and where to keep how far it is")
    lake = Lake(options.lake)
    if not lake.belongs_to(identity(options.checkpoint, NAME)):
        raise CommandFailed(
            f"the lake {options.lake} is filled with another checkpoint, and micro-batches have their numbers from it",
            "go on with that checkpoint, or begin another lake",
        )
    stream = running.source(spark, options, options.topics, includeHeaders=True)
    write = partial(_write, lake)
    totals = running.follow(options, running.triggered(stream.writeStream.foreachBatch(write), options).start, say)
    found = lake.manifests()
    summary = Summary(NAME)
    summary.add("rows in", totals.rows, rows_in=totals.rows, seconds=round(totals.seconds, 3))
    rows, files = sum(each.rows for each in found), sum(len(each.files) for each in found)
    summary.add("in the lake", f"{rows:,} rows in {files:,} files, {len(found)} manifests", rows=rows, files=files)
    summary.add("offsets", _told(lake.offsets()), offsets=lake.offsets())
    return summary


def _write(lake: Lake, batch: Any, number: int) -> None:
    """In the driver, for each micro-batch."""
    if lake.manifest(number) is None:
        staging = lake.stage(number)
        in_hours(batch).write.mode("overwrite").partitionBy("topic", "date", "hour").parquet(staging)
        lake.publish(number)


def _told(offsets: dict[str, dict[str, int]]) -> str:
    counted = [f"{topic} to {sum(parts.values()):,}" for topic, parts in sorted(offsets.items())]
    return ", ".join(counted) or "none"


def replay(spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    """Rows of the lake into a topic, in the order that they had, once: what was replayed before is left out."""
    lake = Lake(options.lake)
    topics = sorted(lake.offsets())
    topic = options.of or (topics[0] if len(topics) == 1 else None)
    if topic not in topics:
        there = ", ".join(topics) or "nothing"
        raise CommandFailed(f"the lake has {there}: say which one with --of", f"`--lake {options.lake}`")
    files = lake.files(topic, options.since, options.until)
    if not files:
        raise CommandFailed(f"the lake has no rows of {topic} in that time")
    partitions = max(map(int, lake.offsets()[topic])) + 1
    with SyncClient(options.bootstrap_servers, timeout=options.timeout) as client:
        if ensure(client, options.replay, partitions=partitions, configs=KEPT):
            say(f"topic {options.replay}: made with {partitions} partitions")
        fits = len(client.admin.topic(options.replay).partitions) >= partitions
    rows = spark.read.schema(lake.schema).parquet(*lake.paths(files))
    columns = ["key", "value", "headers", "timestamp", *(["partition"] if fits else [])]
    # The number of tasks is fixed, and what divides the rows is theirs: the next attempt divides them alike.
    divided = rows.repartition(PARTITIONS, "partition").sortWithinPartitions("partition", "offset")
    sink = lake.replay_id(options.replay, files)
    say(f"{len(files):,} files of {topic} to {options.replay} as {sink}")
    writer = divided.select(*columns).write.format("raftlog").mode("append")
    writer.option("kafka.bootstrap.servers", options.bootstrap_servers).option("topic", options.replay).option(
        "includeTimestamp", True
    ).option("sinkId", sink).option("batchId", 0).save()
    count = sum(each.rows for each in files)
    summary = Summary(NAME)
    summary.add("replayed", f"{count:,} rows of {topic} to {options.replay}", rows=count, files=len(files))
    return summary


def main(arguments: list[str] | None = None) -> int:
    return running.main(NAME, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
