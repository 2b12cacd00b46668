"""What a user feels of one broker: latency of single records, start-up, memory, many partitions, idle consumers."""

from __future__ import annotations

import statistics
import threading
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from benchmarks.brokers import Broker, Kafka, Raftlog, create_topic
from benchmarks.java_clients import LARGE_BATCHES, consume, produce
from benchmarks.measure import Row, Sample, alternate, beside, progress


def percentile(values: list[float], share: float) -> float:
    """The value below which `share` of the values lie."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def one_at_a_time(broker: Broker, topic: str, seconds: float, per_second: int = 1000) -> list[float]:
    """Milliseconds from produce() to acknowledgement, one record every 1/per_second s, acks=all, no lingering.

    The first record is not among them: all that are produced while the client connects and asks for metadata wait
    for that, and in a few seconds they would be the slowest hundredth.
    """
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all", "linger.ms": 0})
    latencies: list[float] = []
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            producer.poll(0.1)

    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    count = int(seconds * per_second)
    producer.produce(topic, b"x" * 100)
    producer.flush(30)
    begin = time.perf_counter()
    for number in range(count):
        due = begin + number / per_second
        while (now := time.perf_counter()) < due:
            time.sleep(due - now)

        def delivered(error: object, _: object, sent: float = time.perf_counter()) -> None:
            latencies.append((time.perf_counter() - sent) * 1000 if error is None else float("inf"))

        producer.produce(topic, b"x" * 100, on_delivery=delivered)
    producer.flush(30)
    stop.set()
    poller.join()
    return latencies


def latency(brokers: list[Broker], rounds: int, *, replicas: int = 1) -> list[Row]:
    """p50 and p99 of 1,000 single records a second."""
    for broker in brokers:
        create_topic(broker.bootstrap, "latency", replicas=replicas)
    p50 = Row("one record at a time, 1,000/s: p50", "ms", higher_is_better=False)

    def work(broker: Broker, _: int) -> Sample:
        values = one_at_a_time(broker, "latency", 5)
        return Sample(statistics.median(values), beside=percentile(values, 0.99))

    alternate(p50, brokers, work, rounds=rounds)
    return [p50, beside(p50, "one record at a time, 1,000/s: p99", "ms")]


def round_trip(bootstrap: str, topic: str = "first") -> None:
    """Create a topic, produce one record and consume it back, by the first client that comes."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    producer.produce(topic, b"hello")
    if producer.flush(30):
        raise RuntimeError("the first record was not acknowledged")
    # Without a commit: closed before it has reached its coordinator, librdkafka waits a second for it.
    settings = {"group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([TopicPartition(topic, 0, 0)])
    message = consumer.poll(30)
    consumer.close()
    if message is None or message.error():
        raise RuntimeError("the first record did not come back")


def start(rounds: int, others: list[type[Broker]]) -> Row:
    """Seconds from exec until the first record has been produced and consumed back."""
    row = Row("exec to first record produced and consumed", "s", higher_is_better=False)
    kinds: list[type[Broker]] = [Raftlog, *others]
    round_trip_warm = False
    for number in range(rounds):
        for kind in kinds if number % 2 == 0 else reversed(kinds):
            if not round_trip_warm:
                round_trip_warm = True
            broker = kind()
            if isinstance(broker, Kafka):
                # Formatting its storage is done once in a broker's life; it is not counted.
                broker.start()
                broker.stop()
            begin = time.perf_counter()
            with broker:
                round_trip(broker.bootstrap)
                seconds = time.perf_counter() - begin
            row.samples.setdefault(broker.name, []).append(Sample(seconds))
            progress(f"start: {broker.name} {seconds:.3f} s")
    return row


def memory(brokers: list[Broker], gigabytes: float) -> list[Row]:
    """Resident memory after start, and after gigabytes were produced and consumed."""
    fresh = Row("resident memory after start", "MB", higher_is_better=False)
    used = Row(f"resident memory after {gigabytes:g} GB through it", "MB", higher_is_better=False)
    for broker in brokers:
        fresh.samples[broker.name] = [Sample(broker.resident_mb())]
        create_topic(broker.bootstrap, "memory")
        records = int(gigabytes * 1e6 / 2)
        produce(broker, "memory", records, 1000, LARGE_BATCHES)
        consume(broker, "memory", records, 1000, "memory")
        used.samples[broker.name] = [Sample(broker.resident_mb())]
        progress(f"memory: {broker.name} {used.median(broker.name):.0f} MB")
    return [fresh, used]


def fill(bootstrap: str, topics: list[str], partitions: int) -> None:
    """One record into every partition."""
    producer = Producer({"bootstrap.servers": bootstrap, "queue.buffering.max.messages": 1_000_000})
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, b"x", partition=partition)
    if producer.flush(120):
        raise RuntimeError("records were not acknowledged")


def many_partitions(count: int = 10_000) -> list[Row]:
    """Start after a clean stop, memory, and one Metadata reply for all, with ten topics of count/10 partitions."""
    started = Row(f"{count:,} partitions: start after a clean stop", "s", higher_is_better=False)
    resident = Row(f"{count:,} partitions: resident memory after the start", "MB", higher_is_better=False)
    reply = Row(f"{count:,} partitions: one Metadata reply for all", "ms", higher_is_better=False)
    written = Row(f"{count:,} partitions: resident memory, all written to", "MB", higher_is_better=False)
    with Raftlog() as broker:
        for number in range(10):
            create_topic(broker.bootstrap, f"many-{number}", count // 10)
        fill(broker.bootstrap, [f"many-{number}" for number in range(10)], count // 10)
        filled = broker.resident_mb()
        broker.stop()
        begin = time.perf_counter()
        broker.start()
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.list_topics("many-0", timeout=30)
        started.samples["raftlog"] = [Sample(time.perf_counter() - begin)]
        times = []
        for _ in range(5):
            sent = time.perf_counter()
            metadata = admin.list_topics(timeout=30)
            times.append((time.perf_counter() - sent) * 1000)
            if sum(len(topic.partitions) for topic in metadata.topics.values()) < count:
                raise RuntimeError("partitions are missing")
        reply.samples["raftlog"] = [Sample(value) for value in times]
        resident.samples["raftlog"] = [Sample(broker.resident_mb())]
        written.samples["raftlog"] = [Sample(filled)]
    return [started, written, resident, reply]
