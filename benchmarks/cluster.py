"""What a cluster of three costs and gives, raftlog and Apache Kafka side by side, as one table.

    python -m benchmarks.cluster [--only failover,latency] [--rounds 3] [--scale 1.0] [--of raftlog] [--output FILE]
                                [--against TREE]

Replication factor 3, min.insync.replicas 2, acks=all, all on one machine: the clients and all brokers share its cores.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from benchmarks import cluster_failover, cluster_fencing, java_clients, single_node
from benchmarks.brokers import Broker, create_topic, kafka_is_here
from benchmarks.cluster_brokers import BrokerSet, KafkaSet, OtherRaftlogSet, RaftlogSet, admin
from benchmarks.measure import Row, Sample, alternate, beside, progress
from benchmarks.single_node import percentile, round_trip
from benchmarks.table import run_chosen

REPLICAS = 3


def in_turn(work: Callable[[list[Any]], list[Row]], options: argparse.Namespace, nodes: int = 3) -> list[Row]:
    """Run with one cluster up at a time: three idle JVMs beside it would weigh on a machine of a few cores."""
    merged: list[Row] = []
    for brokers in make_sets(options, nodes):
        with brokers:
            rows = work([brokers])
        for at, row in enumerate(rows):
            if at < len(merged):
                merged[at].samples |= row.samples
            else:
                merged.append(row)
    return merged


def make_sets(options: argparse.Namespace, nodes: int) -> list[BrokerSet]:
    sets: list[BrokerSet] = []
    if "raftlog" in options.of:
        sets.append(RaftlogSet(nodes))
    if options.against:
        sets.append(OtherRaftlogSet(nodes, Path(options.against)))
    elif "kafka" in options.of and kafka_is_here():
        sets.append(KafkaSet(nodes))
    return sets


# -- end to end ------------------------------------------------------------------------------------------------------


def _consume_latencies(bootstrap: str, topic: str, count: int, ready: Any, results: Any) -> None:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "e2e", "enable.auto.commit": False, "fetch.wait.max.ms": 500}
    )
    end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[1]
    consumer.assign([TopicPartition(topic, 0, end)])
    consumer.poll(0.5)
    ready.set()
    found: list[float] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(1000, 0.1):
            if message.error() is None:
                found.append((time.time_ns() - int(message.value()[:20])) / 1e6)
    consumer.close()
    results.put(found)


def end_to_end_once(brokers: Broker, topic: str, seconds: float, per_second: int) -> list[float]:
    """Milliseconds from produce() in one process to the record's arrival in another."""
    context = multiprocessing.get_context("spawn")
    ready, results = context.Event(), context.Queue()
    count = int(seconds * per_second)
    reader = context.Process(target=_consume_latencies, args=(brokers.bootstrap, topic, count, ready, results))
    reader.start()
    ready.wait(30)
    # The client's own linger: without any, three JVMs on two cores fall behind, and their queue is all one measures.
    producer = Producer({"bootstrap.servers": brokers.bootstrap, "acks": "all"})
    begin = time.perf_counter()
    for number in range(count):
        due = begin + number / per_second
        while (now := time.perf_counter()) < due:
            producer.poll(due - now)
        producer.produce(topic, b"%020d" % time.time_ns() + b"x" * 80)
    producer.flush(30)
    found: list[float] = results.get(timeout=90)
    reader.join(30)
    if len(found) < count:
        raise RuntimeError(f"{len(found)} of {count} records arrived")
    return found


def end_to_end(sets: list[BrokerSet], rounds: int) -> list[Row]:
    """p50 and p99 at 10,000 records a second."""
    for brokers in sets:
        create_topic(brokers.bootstrap, "e2e", replicas=REPLICAS)
    p50 = Row("consume while producing, 10,000 records/s, end to end: p50", "ms", higher_is_better=False)

    def work(brokers: Broker, number: int) -> Sample:
        values = end_to_end_once(brokers, "e2e", 3 if number < 0 else 6, 10_000)
        return Sample(statistics.median(values), beside=percentile(values, 0.99))

    alternate(p50, sets, work, rounds=rounds)
    return [p50, beside(p50, "consume while producing, 10,000 records/s, end to end: p99", "ms")]


# -- what operators wait for -----------------------------------------------------------------------------------------


def topics(sets: list[BrokerSet], count: int = 1000, partitions: int = 3) -> list[Row]:
    """Create topics in one request, until a client sees a leader for every partition."""
    row = Row(f"create {count:,} topics with {partitions} partitions, RF 3", "s", higher_is_better=False)
    for brokers in sets:
        client = admin(brokers.bootstrap)
        names = [f"created-{number}" for number in range(count)]
        begin = time.perf_counter()
        made = client.create_topics([NewTopic(each, partitions, REPLICAS) for each in names], request_timeout=300)
        for future in made.values():
            future.result(300)
        while True:
            known = client.list_topics(timeout=60).topics
            if all(each in known and leads(known[each], partitions) for each in names):
                break
            if time.perf_counter() - begin > 300:
                raise TimeoutError("topics have no leaders after five minutes")
        row.samples[brokers.name] = [Sample(time.perf_counter() - begin)]
        progress(f"{row.work}: {brokers.name} {row.median(brokers.name):.2f} s")
    return [row]


def leads(topic: Any, partitions: int) -> bool:
    return len(topic.partitions) == partitions and all(each.leader >= 0 for each in topic.partitions.values())


def starts(options: argparse.Namespace) -> list[Row]:
    """Seconds from exec of three brokers until the first record was produced and consumed."""
    row = Row("three brokers from exec to first record produced and consumed, RF 3", "s", higher_is_better=False)
    for number in range(options.rounds):
        for brokers in make_sets(options, 3)[:: 1 if number % 2 == 0 else -1]:
            if isinstance(brokers, KafkaSet):
                # Formatting its storage is done once in a broker's life; it is not counted.
                brokers.start()
                brokers.stop()
            begin = time.perf_counter()
            with brokers:
                round_trip(brokers.bootstrap)
                seconds = time.perf_counter() - begin
            row.samples.setdefault(brokers.name, []).append(Sample(seconds))
            progress(f"start: {brokers.name} {seconds:.3f} s")
    return [row]


def memory(sets: list[BrokerSet], gigabytes: float) -> list[Row]:
    """Resident memory of the largest broker after start, and after gigabytes were produced and consumed."""
    fresh = Row("resident memory per broker after start", "MB", higher_is_better=False)
    used = Row(f"resident memory per broker after {gigabytes:g} GB", "MB", higher_is_better=False)
    for brokers in sets:
        fresh.samples[brokers.name] = [Sample(brokers.resident_mb())]
        create_topic(brokers.bootstrap, "memory", REPLICAS, replicas=REPLICAS)
        records = int(gigabytes * 1e6)
        java_clients.produce(brokers, "memory", records, 1000, java_clients.LARGE_BATCHES)
        used.samples[brokers.name] = [Sample(brokers.resident_mb())]
        progress(f"memory: {brokers.name} {fresh.median(brokers.name):.0f} MB, then {used.median(brokers.name):.0f} MB")
    return [fresh, used]


# -- how it grows ----------------------------------------------------------------------------------------------------


def by_partitions(sets: list[BrokerSet], counts: tuple[int, ...] = (10, 100, 1000, 10_000)) -> list[Row]:
    """CPU of all brokers while nothing happens, and memory of the largest, with so many partitions written to."""
    rows = []
    for brokers in sets:
        for count in counts:
            # Kafka refuses to create 10,000 partitions in one request.
            topics = {f"grown-{count}-{first}": min(5000, count - first) for first in range(0, count, 5000)}
            for name, partitions in topics.items():
                create_topic(brokers.bootstrap, name, partitions, replicas=REPLICAS)
                single_node.fill(brokers.bootstrap, [name], partitions)
                brokers.wait_until_in_sync(name, 300)
            before, seconds = brokers.cpu_seconds(), 10.0
            time.sleep(seconds)
            idle = Row(f"{count:,} partitions more, RF 3: CPU of three idle brokers", "%", higher_is_better=False)
            idle.samples[brokers.name] = [Sample((brokers.cpu_seconds() - before) / seconds * 100)]
            weight = Row(f"{count:,} partitions more, RF 3: resident memory per broker", "MB", higher_is_better=False)
            weight.samples[brokers.name] = [Sample(brokers.resident_mb())]
            progress(f"{idle.work} {idle.median(brokers.name):.1f} %, {weight.median(brokers.name):.0f} MB")
            rows += [idle, weight]
    return rows


def by_brokers(options: argparse.Namespace, counts: tuple[int, ...] = (1, 3, 5, 7, 9)) -> list[Row]:
    """producer-perf of 1 KB records over nine partitions, with more and more raftlog brokers on this machine."""
    rows = []
    for count in counts:
        with RaftlogSet(count) as brokers:
            create_topic(brokers.bootstrap, "grown", 9, replicas=min(count, REPLICAS))
            records = int(300_000 * options.scale)
            sample = java_clients.produce(brokers, "grown", records, 1000, java_clients.LARGE_BATCHES)
            row = Row(f"{count} brokers: producer-perf 1000 B, large batches", "records/s", higher_is_better=True)
            row.samples["raftlog"] = [sample]
            progress(f"{row.work}: {sample.value:,.0f}")
            rows.append(row)
    return rows


def main() -> int:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds of each cluster")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records that a full run sends")
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--of", default="raftlog,kafka", help="which clusters (default both)")
    parser.add_argument("--output", help="write the table to this file too")
    parser.add_argument("--gigabytes", type=float, default=5.0, help="for resident memory after load")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long the load of `fencing` lasts")
    parser.add_argument("--against", metavar="TREE", help="another checkout of raftlog, in place of Kafka")
    options = parser.parse_args()
    rounds, scale = options.rounds, options.scale

    def producing(sets: list[Any]) -> list[Row]:
        # Three replicas each on the same cores: a third of the records takes as long.
        return java_clients.producing(sets, rounds, scale / 3, replicas=REPLICAS)

    workloads: dict[str, Callable[[], list[Row]]] = {
        "start": lambda: starts(options),
        "producer-perf": lambda: in_turn(producing, options),
        "latency": lambda: in_turn(lambda s: single_node.latency(s, rounds, replicas=REPLICAS), options),
        "end-to-end": lambda: in_turn(lambda s: end_to_end(s, rounds), options),
        "failover": lambda: in_turn(lambda s: cluster_failover.gaps(s, rounds), options),
        "returns": lambda: in_turn(lambda s: cluster_failover.returns(s, rounds), options),
        "leaders": lambda: in_turn(lambda s: [cluster_failover.leaders(s)], options),
        "topics": lambda: in_turn(topics, options),
        "memory": lambda: in_turn(lambda s: memory(s, options.gigabytes), options),
        "partitions": lambda: in_turn(by_partitions, options),
        "brokers": lambda: by_brokers(options),
        "fencing": lambda: cluster_fencing.fencing(options.minutes),
    }
    return run_chosen(parser, options, workloads)


if __name__ == "__main__":
    sys.exit(main())
