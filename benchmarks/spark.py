"""The data source for Spark beside Spark's own Kafka connector: rows a second, and CPU seconds of each part.

    python -m benchmarks.spark [--rows 5000000] [--size 100] [--rounds 3] [--partitions 2] [--kafka]

Both read and write topics of one raftlog; with --kafka the connector works on an Apache Kafka and the data source on
raftlog and on that Kafka. In turns, the order swapped each round, after a round that does not count; medians and the
lowest and highest ratio to the connector are shown. Needs `raftlog[spark]`, Java 17 and the peers (`brokers.PEERS`).
"""

from __future__ import annotations

import argparse
import os
import statistics
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks.brokers import PEERS, Broker, Kafka, Raftlog, create_topic, kafka_tool
from raftlog.cli.arguments import key_values
from raftlog.pipeline.demo.kills import descendants

SOURCE, TINY, BATCHES = "source", "tiny", "batches"
TINY_ROWS = 10
BATCH_ROWS, BATCHES_NUMBER = 100, 20
LATENCY_ROWS_PER_SECOND, LATENCY_SECONDS, LATENCY_WARM_SECONDS = 1_000, 20, 8
_SENT_AT = struct.Struct(">d")
Result = TypeVar("Result")


class Contender(NamedTuple):
    """A format of Spark's, and the brokers that it works on."""

    name: str
    format: str
    bootstrap: str
    options: dict[str, str]


class Cpu(NamedTuple):
    """Seconds of processors: of Spark's JVM, of all Pythons that it started, and of the brokers."""

    jvm: float
    python: float
    brokers: float

    def since(self, before: Cpu) -> Cpu:
        return Cpu(*(now - then for now, then in zip(self, before, strict=True)))


class Cost(NamedTuple):
    seconds: float
    cpu: Cpu

    @property
    def cpu_seconds(self) -> float:
        """Without the brokers."""
        return self.cpu.jvm + self.cpu.python


class Run:
    """One session, and what is done in it."""

    def __init__(self, spark: Any, rows: int, partitions: int, directory: Path) -> None:
        """`partitions`: of the topics that are read."""
        self.spark = spark
        self.rows = rows
        self.partitions = partitions
        self._directory = directory
        self._number = 0

    def read(self, who: Contender) -> None:
        """Count, and sum of the sizes of all values."""
        frame = self.spark.read.format(who.format).options(**self._source(who)).load()
        self._check(frame.selectExpr("count(*)", "sum(length(value))").first()[0])

    def noop(self, who: Contender) -> None:
        """All there is, to a sink that does nothing."""
        frame = self.spark.read.format(who.format).options(**self._source(who)).load()
        frame.write.format("noop").mode("overwrite").save()

    def stream(self, who: Contender) -> None:
        """All there is, to a sink that does nothing."""
        frame = self.spark.readStream.format(who.format).options(**self._source(who)).load()
        self._finish(frame.writeStream.format("noop"))

    def start(self, who: Contender) -> None:
        """Some rows, to a sink that does nothing: what it costs to start a query and to end it."""
        frame = self.spark.readStream.format(who.format).options(**self._source(who, TINY)).load()
        self._finish(frame.writeStream.format("noop"), TINY_ROWS)

    def write(self, who: Contender) -> None:
        """Key and value from Spark's memory to a new topic."""
        topic = self._new_topic(who)
        sink = self.spark.table("rows").write.format(who.format).options(**who.options, topic=topic)
        sink.option("kafka.bootstrap.servers", who.bootstrap).mode("append").save()

    def batches(self, who: Contender) -> None:
        """Small micro-batches one after the other, from a topic to a new one."""
        copying = self._copying(who, BATCHES, self._new_topic(who), maxOffsetsPerTrigger=BATCH_ROWS)
        self._finish(copying, BATCH_ROWS * BATCHES_NUMBER)

    def latency(self, who: Contender) -> list[float]:
        """Seconds from the sending of each row to its coming out of a stream from topic to topic, for a reader of
        committed records; the first ones, in which the query starts, are left out.
        """
        source, target = self._new_topic(who, self.partitions), self._new_topic(who)
        arrivals = Arrivals(who.bootstrap, target)
        query = self._with_checkpoint(self._copying(who, source, target)).start()
        try:
            found = arrivals.of_steady_rows(source, self.partitions)
            print(f"{who.name}: ms of a micro-batch {stages(query)}")
            return found
        finally:
            query.stop()
            arrivals.close()

    def prepare_rows(self, size: int) -> None:
        frame = self.spark.range(0, self.rows, 1, self.partitions).selectExpr(
            "CAST(NULL AS BINARY) AS key", f"CAST(lpad(CAST(id AS STRING), {size}, 'x') AS BINARY) AS value"
        )
        frame.createOrReplaceTempView("rows")
        self.spark.catalog.cacheTable("rows")
        self._check(self.spark.table("rows").count())

    def _source(self, who: Contender, topic: str = SOURCE) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": who.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            **who.options,
        }

    def _copying(self, who: Contender, source: str, target: str, **options: object) -> Any:
        """A stream from one topic to another."""
        where = {"kafka.bootstrap.servers": who.bootstrap}
        read = self.spark.readStream.format(who.format).options(**where, subscribe=source, startingOffsets="earliest")
        sink = read.options(**options).load().select("key", "value").writeStream.format(who.format)
        return sink.options(**where, **who.options, topic=target)

    def _with_checkpoint(self, writer: Any) -> Any:
        self._number += 1
        return writer.option("checkpointLocation", str(self._directory / f"checkpoint-{self._number}"))

    def _new_topic(self, who: Contender, partitions: int = 2) -> str:
        self._number += 1
        topic = f"{who.name.replace(' ', '-')}-{self._number}"
        create_topic(who.bootstrap, topic, partitions=partitions)
        return topic

    def _finish(self, writer: Any, rows: int | None = None) -> None:
        query = self._with_checkpoint(writer).trigger(availableNow=True).start()
        query.awaitTermination()
        self._check(sum(progress.numInputRows for progress in query.recentProgress), rows)

    def _check(self, found: int, rows: int | None = None) -> None:
        wanted = self.rows if rows is None else rows
        assert found == wanted, f"{found} rows where there are {wanted}"


class Arrivals:
    """Rows that are sent to one topic at a steady rate and come out of another, with the time each was sent."""

    def __init__(self, bootstrap: str, target: str) -> None:
        from confluent_kafka import Consumer, Producer, TopicPartition

        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": target, "fetch.wait.max.ms": 100})
        self._consumer.assign([TopicPartition(target, number, 0) for number in range(2)])

    def of_steady_rows(self, topic: str, partitions: int) -> list[float]:
        """How many seconds each took, from LATENCY_WARM_SECONDS on."""
        rows = LATENCY_ROWS_PER_SECOND * LATENCY_SECONDS
        sender = threading.Thread(target=self._send, args=(topic, partitions, rows))
        sender.start()
        took: list[float] = []
        begin = time.monotonic()
        while len(took) < rows:
            assert time.monotonic() - begin < 6 * LATENCY_SECONDS, f"only {len(took)} of {rows} rows have come"
            for message in self._consumer.consume(1_000, 0.01):
                assert message.error() is None, message.error()
                took.append(time.monotonic() - _SENT_AT.unpack(message.value() or b"")[0])
        sender.join()
        return took[LATENCY_ROWS_PER_SECOND * LATENCY_WARM_SECONDS :]

    def _send(self, topic: str, partitions: int, rows: int) -> None:
        begin = time.monotonic()
        for number in range(rows):
            time.sleep(max(0.0, begin + number / LATENCY_ROWS_PER_SECOND - time.monotonic()))
            self._producer.produce(topic, _SENT_AT.pack(time.monotonic()), partition=number % partitions)
            self._producer.poll(0)
        self._producer.flush()

    def close(self) -> None:
        self._consumer.close()


def stages(query: Any) -> dict[str, float]:
    """Milliseconds of the steps of its latest micro-batches, medians."""
    durations = [progress.durationMs for progress in query.recentProgress[-50:] if progress.numInputRows]
    return {step: statistics.median(each.get(step, 0) for each in durations) for step in durations[-1]}


def cpu(brokers: list[int]) -> Cpu:
    """Of all descendants, those included that have ended and were waited for."""
    jvm = python = theirs = 0
    for pid in descendants(os.getpid()):
        try:
            name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        except OSError:
            continue
        own, ended = (sum(map(int, rest.split()[at : at + 2])) for at in (11, 13))
        if pid in brokers:
            theirs += own + ended
        elif name.endswith("(java"):
            jvm, python = jvm + own, python + ended
        else:
            python += own + ended
    return Cpu(*(ticks / os.sysconf("SC_CLK_TCK") for ticks in (jvm, python, theirs)))


def measure(work: Callable[[Contender], None], who: Contender, brokers: list[int]) -> Cost:
    wall, before = time.perf_counter(), cpu(brokers)
    work(who)
    return Cost(time.perf_counter() - wall, cpu(brokers).since(before))


def show(title: str, costs: dict[str, list[Cost]], rows: int) -> None:
    """The first one is what the others are compared with."""
    base = next(iter(costs.values()))
    parts = "CPU s: JVM, Python, broker"
    print(f"\n{title}\n{'':34} rows/s   CPU us/row   x connector (spread)   CPU, x connector   {parts}")
    for name, found in costs.items():
        seconds = statistics.median(cost.seconds for cost in found)
        used = statistics.median(cost.cpu_seconds for cost in found)
        ratios = [one.seconds / other.seconds for one, other in zip(base, found, strict=True)]
        less = statistics.median(one.cpu_seconds / other.cpu_seconds for one, other in zip(base, found, strict=True))
        where = ", ".join(f"{statistics.median(each):.2f}" for each in zip(*(cost.cpu for cost in found), strict=True))
        rate, ratio = f"{rows / seconds:10,.0f} {used / rows * 1e6:12.2f}", spread(ratios)
        print(f"{name:30} {rate} {ratio:>22} {less:18.2f}   {where:>26}")


def show_latency(found: dict[str, list[list[float]]]) -> None:
    """Median and 99th percentile; the first one is what the others are compared with."""
    cuts = {name: [statistics.quantiles(seconds, n=100) for seconds in rounds] for name, rounds in found.items()}
    base = next(iter(cuts.values()))
    print(f"\n{LATENCY_ROWS_PER_SECOND:,} rows a second from topic to topic: until a row comes out")
    for name, each in cuts.items():
        words = []
        for percent in (50, 99):
            ratios = [one[percent - 1] / other[percent - 1] for one, other in zip(each, base, strict=True)]
            seconds = statistics.median(one[percent - 1] for one in each)
            words.append(f"p{percent} {seconds:.2f} s, {spread(ratios)} x connector")
        print(f"{name:30} {'; '.join(words)}")


def spread(ratios: list[float]) -> str:
    """The median, and the lowest and the highest."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def session(settings: Mapping[str, str]) -> Any:
    from pyspark.sql import SparkSession

    from raftlog.pipeline import RaftlogDataSource

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = ",".join(sorted(str(path) for path in (PEERS / "spark-kafka").glob("*.jar")))
    builder = SparkSession.builder.master("local[2]").config("spark.jars", jars).config("spark.driver.memory", "3g")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        **settings,
    }.items():
        builder = builder.config(name, value)
    made = builder.getOrCreate()
    made.dataSource.register(RaftlogDataSource)
    return made


def fill(broker: Broker, rows: int, size: int, partitions: int) -> None:
    create_topic(broker.bootstrap, SOURCE, partitions=partitions)
    sizes = f"--topic {SOURCE} --num-records {rows} --record-size {size} --throughput -1"
    settings = f"--producer-props bootstrap.servers={broker.bootstrap} batch.size=131072 linger.ms=20"
    kafka_tool("producer-perf", *sizes.split(), *settings.split())


def fill_evenly(broker: Broker, rows: int, size: int, partitions: int, topic: str) -> None:
    from confluent_kafka import Producer

    create_topic(broker.bootstrap, topic, partitions=partitions)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(rows):
        producer.produce(topic, bytes(size), partition=number % partitions)
    producer.flush()


def contenders(ours: str, theirs: str) -> tuple[list[Contender], list[Contender]]:
    """Who reads and who writes; the connector comes first."""
    connector = Contender("connector", "kafka", theirs, {})
    readers = [connector, Contender("raftlog", "raftlog", ours, {})]
    readers.append(Contender("raftlog, columns=value", "raftlog", ours, {"columns": "value"}))
    once = {"deliveryGuarantee": "at-least-once"}
    writers = [connector, Contender("raftlog at least once", "raftlog", ours, once)]
    writers.append(Contender("raftlog exactly once", "raftlog", ours, {}))
    writers.append(Contender("raftlog two-phase", "raftlog", ours, {"commitProtocol": "two-phase"}))
    if ours != theirs:
        readers.append(Contender("raftlog on Kafka", "raftlog", theirs, {}))
        writers.append(Contender("raftlog exactly once on Kafka", "raftlog", theirs, {}))
    return readers, writers


def in_turns(work: Callable[[Contender], Result], those: list[Contender], rounds: int) -> dict[str, list[Result]]:
    """What comes of each; a round before the first one does not count."""
    found: dict[str, list[Result]] = {each.name: [] for each in those}
    for number in range(-1, rounds):
        for who in those if number % 2 else those[::-1]:
            result = work(who)
            if number >= 0:
                found[who.name].append(result)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--only", choices=["read", "noop", "stream", "start", "write", "batches", "latency"])
    parser.add_argument("--conf", action="append", default=[], metavar="NAME=VALUE", help="of Spark")
    options = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers: list[Broker] = [stack.enter_context(Raftlog())]
        if options.kafka:
            brokers.append(stack.enter_context(Kafka()))
        for broker in brokers:
            fill(broker, options.rows, options.size, options.partitions)
            fill_evenly(broker, TINY_ROWS, options.size, options.partitions, TINY)
            fill_evenly(broker, BATCH_ROWS * BATCHES_NUMBER, options.size, options.partitions, BATCHES)
        readers, writers = contenders(brokers[0].bootstrap, brokers[-1].bootstrap)
        spark = session(key_values(options.conf, "--conf"))
        stack.callback(spark.stop)
        run = Run(spark, options.rows, options.partitions, directory)
        pids = [broker.pid for broker in brokers]

        def cost_of(work: Callable[[Contender], None]) -> Callable[[Contender], Cost]:
            return lambda who: measure(work, who, pids)

        print(f"{options.rows:,} rows of {options.size} B, median of {options.rounds}")
        if options.only in (None, "read"):
            show("batch read", in_turns(cost_of(run.read), readers, options.rounds), options.rows)
        if options.only in (None, "noop"):
            show("batch read to no-op", in_turns(cost_of(run.noop), readers, options.rounds), options.rows)
        if options.only in (None, "stream"):
            show("stream, AvailableNow to no-op", in_turns(cost_of(run.stream), readers, options.rounds), options.rows)
        if options.only in (None, "start"):
            title = f"stream of {TINY_ROWS} rows: its start and its end"
            show(title, in_turns(cost_of(run.start), readers, options.rounds), TINY_ROWS)
        if options.only in (None, "batches"):
            title = f"{BATCHES_NUMBER} micro-batches of {BATCH_ROWS} rows: batches a second, with the start"
            show(title, in_turns(cost_of(run.batches), writers, options.rounds), BATCHES_NUMBER)
        if options.only in (None, "latency"):
            show_latency(in_turns(run.latency, writers, options.rounds))
        if options.only in (None, "write"):
            run.prepare_rows(options.size)
            show("write", in_turns(cost_of(run.write), writers, options.rounds), options.rows)


if __name__ == "__main__":
    main()
