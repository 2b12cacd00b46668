"""What jobs have in common: their options, their session, a query that is followed, and the summary at the end."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from raftlog.cli.arguments import Parser, add_connection, add_json, key_values, positive_count
from raftlog.cli.failure import CommandFailed, UsageError
from raftlog.client.core.errors import KafkaError
from raftlog.pipeline import spark_python
from raftlog.pipeline.jobs.java import needs_java

Say = Callable[[str], None]
STARTS_MAX = 6
"""Spark gives the process that plans a stream ten seconds to begin, which a busy machine may not have."""
LOOK_SECONDS = 0.5
LEFT_OUT = "left out"
"""What a query observes under this name, in a column `rows`, is what it could make nothing of."""


class Job(Protocol):
    """A module of a job. Those that need no Spark take None as the session."""

    NAME: str
    SUMMARY: str

    def build_parser(self) -> Parser: ...

    def run(self, spark: Any, options: argparse.Namespace, say: Say) -> Summary: ...


class Watcher(Protocol):
    """Who looks on while a query runs."""

    def ends(self) -> bool:
        """Whether the query is to end with what there is now."""

    def note(self, progress: Any) -> None:
        """A micro-batch is done."""


@dataclass
class Summary:
    """What a job did: `lines` for a person, `facts` for a program. `ok`: the exit code is 0."""

    job: str
    lines: list[tuple[str, str]] = field(default_factory=list)
    facts: dict[str, Any] = field(default_factory=dict)
    ok: bool = True

    def add(self, name: str, text: str | int, **facts: Any) -> None:
        self.lines.append((name, f"{text:,}" if isinstance(text, int) else text))
        self.facts.update(facts)

    def text(self) -> str:
        width = max(len(name) for name, _ in self.lines)
        return "\n".join(f"{name:>{width}}  {text}" for name, text in self.lines)


@dataclass
class QueryTotals:
    """What a query has done, from its start to its end."""

    batches: int = 0
    rows: int = 0
    too_late: int = 0
    """Rows behind the watermark, which the query has left out."""
    left_out: int = 0
    """Rows that it could make nothing of."""
    seconds: float = 0.0
    last: int = -1

    def update(self, query: Any, watcher: Watcher | None, say: Say) -> None:
        """Account for what the query has done since the last look."""
        for progress in query.recentProgress:
            if progress.batchId <= self.last or not progress.numInputRows:
                continue
            left = sum(map(lag_of, progress.sources))
            self.last = progress.batchId
            self.batches += 1
            self.rows += progress.numInputRows
            self.too_late += too_late(progress)
            observed = progress.observedMetrics.get(LEFT_OUT)
            self.left_out += observed.rows if observed is not None else 0
            rate = f"{progress.processedRowsPerSecond or 0:,.0f} rows/s"
            say(f"micro-batch {progress.batchId}: {progress.numInputRows:,} rows, {rate}, {left:,} left to read")
            if watcher is not None:
                watcher.note(progress)


def parser(name: str, summary: str, example: str, *, brokers: bool = True) -> Parser:
    """A parser with the options of all jobs."""
    made = Parser(prog=f"raftlog pipeline run {name}", description=summary, epilog=f"example:\n  {example}")
    add_json(made, "print the summary as one line of JSON")
    if brokers:
        add_connection(made)
    group = made.add_argument_group("Spark")
    group.add_argument(
        "--master", metavar="URL", help="local[2], spark://HOST:7077, sc://HOST (Spark Connect) (default local[*])"
    )
    group.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's; can be repeated"
    )
    return made


def add_stream(made: Parser, *, required: bool = True) -> None:
    """The options of jobs that are a query with a checkpoint."""
    group = made.add_argument_group("stream")
    group.add_argument(
        "--checkpoint", required=required, metavar="DIR", help="how far the job is; the next start goes on from there"
    )
    group.add_argument(
        "--follow", action="store_true", help="go on with what comes, until Ctrl-C; without it, end when all is read"
    )
    group.add_argument("--every", default="5 seconds", metavar="TIME", help="with --follow (default %(default)r)")
    group.add_argument(
        "--accept-data-loss", action="store_true",
        help="go on with what is there where records were deleted before they were read; without it, fail",
    )  # fmt: skip
    made.set_defaults(watcher=None)
    group.add_argument("--max-offsets", type=positive_count, metavar="N", help="at most so many in a micro-batch")


def main(name: str, arguments: Sequence[str] | None = None) -> int:
    """Run a job from the command line, and return its exit code. `spark-submit` comes here, too."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # By its name, also where its file was started as a script: functions that go to workers then go by name.
    job: Any = import_module(f"raftlog.pipeline.jobs.{name}")
    try:
        options = job.build_parser().parse(given)
        summary = in_session(job, options, to_stderr if options.json else to_stdout)
    except CommandFailed as failure:
        failure.report(as_json="--json" in given)
        return 2 if isinstance(failure, UsageError) else 1
    except KafkaError as error:
        CommandFailed(str(error)).report(as_json="--json" in given)
        return 1
    sys.stdout.write((json.dumps(summary.facts) if options.json else summary.text()) + "\n")
    return 0 if summary.ok else 1


def in_session(job: Job, options: argparse.Namespace, say: Say) -> Summary:
    """The job in a session of its own, or in the one that there is."""
    if not getattr(job, "NEEDS_SPARK", True):
        return job.run(None, options, say)
    spark = session(job.NAME, options)
    try:
        return perform(job, spark, options, say)
    finally:
        spark.stop()


def perform(job: Job, spark: Any, options: argparse.Namespace, say: Say) -> Summary:
    """The job in this session. Raises CommandFailed also for what Spark or a file system complains of, and
    KafkaError.
    """
    try:
        return job.run(spark, options, say)
    except OSError as error:
        raise CommandFailed(f"a file of this job cannot be used: {error}") from error
    except Exception as error:
        if not _is_sparks(error):
            raise
        raise _told(error) from error


def session(name: str, options: argparse.Namespace) -> Any:
    """Spark with the source and the sink. Raises CommandFailed where PySpark or Java is missing."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise CommandFailed("this job runs on Spark", "pip install 'raftlog[pipeline]'") from error
    from raftlog.pipeline import RaftlogDataSource, ship

    master: str = options.master or ("" if "PYSPARK_GATEWAY_PORT" in os.environ else "local[*]")
    is_remote = master.startswith("sc://")
    settings = key_values(options.conf, "--conf")
    if not is_remote:
        needs_java()
        # Over TCP each Python that Spark starts a task in may wait 40 ms for an acknowledgement.
        quick = {"spark.python.unix.domain.socket.enabled": "true"}
        settings = {**quick, "spark.ui.showConsoleProgress": "false", "spark.log.level": "ERROR", **settings}
    if master.startswith("local"):
        os.environ.setdefault("PYSPARK_PYTHON", spark_python.command())
        own = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1", "spark.ui.enabled": "false"}
        settings = {**own, "spark.sql.shuffle.partitions": "4", **settings}
    builder = SparkSession.builder.appName(f"raftlog {name}")
    if master:
        builder = builder.remote(master) if is_remote else builder.master(master)
    for key, value in {"spark.sql.session.timeZone": "UTC", **settings}.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except Exception as error:
        if not _is_sparks(error):
            raise
        hint = "look at --master and --conf; what Java says of it stands above"
        raise CommandFailed(f"Spark did not start: {str(error).strip().splitlines()[0]}", hint) from error
    if not master.startswith("local["):
        ship(spark)
    spark.dataSource.register(RaftlogDataSource)
    return spark


def source(spark: Any, options: argparse.Namespace, topic: str, **more: Any) -> Any:
    """A stream over topics from their beginning."""
    given = {"kafka.bootstrap.servers": options.bootstrap_servers, "subscribe": topic, "startingOffsets": "earliest"}
    if options.max_offsets is not None:
        given["maxOffsetsPerTrigger"] = options.max_offsets
    if options.accept_data_loss:
        given["failOnDataLoss"] = False
    return spark.readStream.format("raftlog").options(**given, **more).load()


def batch(spark: Any, options: argparse.Namespace, topic: str, **more: Any) -> Any:
    """All that is in topics now."""
    given = {"kafka.bootstrap.servers": options.bootstrap_servers, "subscribe": topic}
    return spark.read.format("raftlog").options(**given, **more).load()


def triggered(writer: Any, options: argparse.Namespace) -> Any:
    """The writer with checkpoint and trigger as the options say."""
    writer = writer.option("checkpointLocation", options.checkpoint)
    return writer.trigger(processingTime=options.every) if options.follow else writer.trigger(availableNow=True)


def follow(
    options: argparse.Namespace, start: Callable[[], Any], say: Say, *, mended: Callable[[], bool] = lambda: False
) -> QueryTotals:
    """Start a query, tell how it gets on, and return when it has ended, or Ctrl-C has ended it.

    `options.watcher`, if there is one, is asked whether to end a query that follows: then it reads what is there.
    `mended` is called when the query has failed; if it removed the cause, the query is started again.
    """
    totals, began, late = QueryTotals(), time.monotonic(), 0
    while True:
        try:
            _follow(start(), totals, options.watcher, say)
            break
        except Exception as error:
            if not _is_sparks(error):
                raise
            is_late = "failed to connect back" in str(error)
            if not is_late and not mended():
                raise _told(error) from error
            late += is_late
            if is_late:
                say(f"Spark's planner did not begin in time (attempt {late} of {STARTS_MAX})")
            if late == STARTS_MAX:
                raise CommandFailed("Spark's planner did not begin in time", "the machine is too busy") from error
    totals.seconds = time.monotonic() - began
    return totals


def _follow(query: Any, totals: QueryTotals, watcher: Watcher | None, say: Say) -> None:
    try:
        while not query.awaitTermination(LOOK_SECONDS):
            if watcher is not None and watcher.ends():
                query.processAllAvailable()
                query.stop()
            totals.update(query, watcher, say)
    except KeyboardInterrupt:
        query.stop()
    finally:
        totals.update(query, watcher, say)


def too_late(progress: Any) -> int:
    """Rows behind the watermark in a micro-batch."""
    return sum(each.numRowsDroppedByWatermark for each in progress.stateOperators)


def lag_of(source: Any) -> int:
    """Offsets between what a source has read and what it knows to be there."""
    latest, read = (json.loads(text or "null") or {} for text in (source.latestOffset, source.endOffset))
    return sum(
        max(0, int(offset) - int(read.get(topic, {}).get(index, 0)))
        for topic, indexes in latest.items()
        for index, offset in indexes.items()
    )


def expression(text: str) -> Any:
    """A column by SQL. PySpark is imported by whoever runs a job, and not before."""
    from pyspark.sql.functions import expr

    return expr(text)


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.startswith(("pyspark", "py4j"))


def _told(error: Exception) -> CommandFailed:
    """The last line of what Python said in a worker, without the stacks of both sides."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if ": " in line and line.split(": ")[0].rpartition(".")[2].isidentifier()]
    last = next((line for line in reversed(said) if line.startswith("raftlog.")), said[-1] if said else str(error))
    lost = "failOnDataLoss" in last
    return CommandFailed(f"the query failed: {last}", "--accept-data-loss does that" if lost else None)


def to_stdout(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def to_stderr(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()
