"""audit: what producers say they have written, against what has arrived, by topic and window of time.

Producers tell the audit trail (see `trail.py`); what has arrived is counted in the topics themselves, or in a lake.
"""

from __future__ import annotations

import argparse
from typing import Any

from raftlog.cli.arguments import Parser, positive_count
from raftlog.cli.failure import CommandFailed
from raftlog.cli.output import table, utc
from raftlog.pipeline.jobs import running
from raftlog.pipeline.jobs.lake import Lake
from raftlog.pipeline.jobs.running import Say, Summary
from raftlog.pipeline.jobs.trail import SCHEMA, TRAIL

NAME = "audit"
SUMMARY = "what producers say they have written against what has arrived, by topic and window of time"
ROWS_MAX = 20
"""Windows that are shown."""


def build_parser() -> Parser:
    made = running.parser(NAME, SUMMARY, "raftlog pipeline run audit --topics flights\n"
                          "  raftlog pipeline run audit --topics flights --lake lake")  # fmt: skip
    made.add_argument("--topics", metavar="A,B", help="only these; all of which the trail tells by default")
    made.add_argument("--trail", default=TRAIL, metavar="TOPIC", help="(default %(default)s)")
    made.add_argument("--lake", metavar="DIR", help="count what `load` has written there, not the topics")
    made.add_argument(
        "--arrived", metavar="TOPIC", help="count this topic for the one of --topics: one that was written from it"
    )
    made.add_argument(
        "--show", type=positive_count, default=ROWS_MAX, metavar="N", help="windows (default %(default)d)"
    )
    return made


def run(spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    told, unreadable = produced(spark, options)
    if unreadable:
        say(f"{unreadable:,} records of {options.trail} are none of a trail, and left out")
    windows = {row.window_ms for row in told.select("window_ms").distinct().collect()}
    topics = [row.topic for row in told.select("topic").distinct().orderBy("topic").collect()]
    silent = sorted({*options.topics.split(",")} - {*topics}) if options.topics else []
    if silent or not windows:
        raise CommandFailed(f"the trail {options.trail} tells nothing of {', '.join(silent) or 'any topic'}")
    window_ms = max(windows)
    if any(window_ms % each for each in windows):
        raise CommandFailed(f"the trail has windows of {sorted(windows)} ms, which do not fit into each other")
    say(f"audit of {', '.join(topics)} in windows of {window_ms // 1000:,} s")
    both = compared(told, arrived(spark, options, topics), window_ms).cache()
    summary = Summary(NAME)
    sums = ("sum(produced) AS produced", "sum(arrived) AS arrived", "count_if(produced <> arrived) AS wrong",
            "count(*) AS windows", "sum(greatest(produced - arrived, 0)) AS missing",
            "sum(greatest(arrived - produced, 0)) AS too_many")  # fmt: skip
    for row in both.groupBy("topic").agg(*map(running.expression, sums)).orderBy("topic").collect():
        text = f"{row.produced:,} produced, {row.arrived:,} arrived in {row.windows:,} windows"
        summary.add(row.topic, f"{text}: {row.missing:,} missing, {row.too_many:,} too many")
        summary.facts.setdefault("topics", {})[row.topic] = row.asDict()
        summary.ok &= not row.wrong
    wrong = both.where("produced <> arrived").orderBy("topic", "window").limit(options.show + 1).collect()
    if wrong:
        lines = [(row.topic, utc(row.window), row.produced, row.arrived, row.arrived - row.produced) for row in wrong]
        say(table(("topic", "window", "produced", "arrived", "difference"), lines[: options.show]))
        if len(wrong) > options.show:
            say(f"… and more; --show N shows more than {options.show}")
    summary.add("verdict", "they agree" if summary.ok else "THEY DISAGREE", agree=summary.ok)
    return summary


def produced(spark: Any, options: argparse.Namespace) -> tuple[Any, int]:
    """Columns topic, window (ms), window_ms, count; and how many records of the trail are something else."""
    raw = running.batch(spark, options, options.trail, columns="value")
    told = raw.selectExpr(f"from_json(CAST(value AS STRING), '{SCHEMA}') AS one").select("one.*").cache()
    is_told = "topic IS NOT NULL AND window IS NOT NULL AND window_ms > 0 AND count IS NOT NULL"
    unreadable = told.where(f"({is_told}) IS NOT TRUE").count()
    told = told.where(is_told)
    return told if not options.topics else told.where(told.topic.isin(options.topics.split(","))), unreadable


def arrived(spark: Any, options: argparse.Namespace, topics: list[str]) -> Any:
    """Columns topic and timestamp, a row for each record that is there."""
    if options.arrived:
        if len(topics) != 1:
            raise CommandFailed("--arrived is for one topic", "say which one with --topics")
        rows = running.batch(spark, options, options.arrived, columns="timestamp")
        return rows.selectExpr(f"'{topics[0]}' AS topic", "timestamp")
    if not options.lake:
        return running.batch(spark, options, ",".join(topics), columns="topic,timestamp")
    lake = Lake(options.lake)
    found = None
    for topic in topics:
        files = lake.files(topic)
        if files:
            rows = spark.read.schema(lake.schema).parquet(*lake.paths(files))
            rows = rows.selectExpr(f"'{topic}' AS topic", "timestamp")
            found = rows if found is None else found.union(rows)
    if found is None:
        raise CommandFailed(f"the lake {options.lake} has nothing of {', '.join(topics)}")
    return found


def compared(told: Any, rows: Any, window_ms: int) -> Any:
    """Columns topic, window, produced, arrived: of every window that either side knows of."""
    one = told.selectExpr("topic", f"window - pmod(window, {window_ms}) AS window", "count").groupBy("topic", "window")
    begins = f"unix_millis(timestamp) - pmod(unix_millis(timestamp), {window_ms}) AS window"
    other = rows.selectExpr("topic", begins).groupBy("topic", "window")
    told_of = one.agg(running.expression("sum(count) AS told"))
    found = other.agg(running.expression("count(*) AS found"))
    joined = told_of.join(found, ["topic", "window"], "full")
    return joined.selectExpr("topic", "window", "coalesce(told, 0) AS produced", "coalesce(found, 0) AS arrived")


def main(arguments: list[str] | None = None) -> int:
    return running.main(NAME, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
