"""Kafka's own producer-perf and consumer-perf against both brokers, with the same settings."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from benchmarks.brokers import Broker, create_topic, delete_topic, kafka_tool
from benchmarks.measure import Row, Sample, alternate

_RATE = re.compile(r"([\d.]+) records/sec")
LARGE_BATCHES = ("batch.size=262144", "linger.ms=20")


def produce(
    broker: Broker, topic: str, records: int, size: int, settings: tuple[str, ...], *, options: tuple[str, ...] = ()
) -> Sample:
    """Records per second of one producer-perf run, of its second half (the last line).

    In the first half the client's compiler takes as much of two cores as its work, which says nothing of the broker.
    """
    output = kafka_tool(
        "producer-perf",
        *("--topic", topic, "--num-records", str(records), "--record-size", str(size), "--throughput", "-1"),
        *("--warmup-records", str(records // 2)),
        *options,
        *("--producer-props", f"bootstrap.servers={broker.bootstrap}", "acks=all", *settings),
    )
    rate = float(_RATE.findall(output)[-1])
    return Sample(rate, gigabytes=records * size / 1e9)


def producing(brokers: list[Broker], rounds: int, scale: float, *, replicas: int = 1) -> list[Row]:
    """100 B and 1 KB records, default and large batches, acks=all, each run into a topic of its own."""
    rows = []
    for size, records in ((100, 12_000_000), (1000, 2_400_000)):
        for label, settings in (("default batching", ()), ("large batches", LARGE_BATCHES)):
            row = Row(f"producer-perf {size} B, {label}", "records/s", higher_is_better=True)
            made = partial(_produce_anew, size=size, records=int(records * scale), settings=settings, replicas=replicas)
            rows.append(alternate(row, brokers, made, rounds=rounds))
    return rows


def _produce_anew(
    broker: Broker, number: int, *, size: int, records: int, settings: tuple[str, ...], replicas: int
) -> Sample:
    # The disk would not hold all runs.
    topic = f"java-{size}-{len(settings)}-{number + 1}"
    create_topic(broker.bootstrap, topic, replicas=replicas)
    sample = produce(broker, topic, records, size, settings)
    delete_topic(broker.bootstrap, topic)
    return sample


def consuming(brokers: list[Broker], rounds: int, scale: float) -> list[Row]:
    """consumer-perf over records that are in the page cache."""
    rows = []
    for size, records in ((100, 5_000_000), (1000, 1_000_000)):
        topic = f"consume-{size}"
        count = int(records * scale)
        for broker in brokers:
            create_topic(broker.bootstrap, topic)
            produce(broker, topic, count, size, LARGE_BATCHES)
        row = Row(f"consumer-perf {size} B", "records/s", higher_is_better=True)

        def work(broker: Broker, number: int, topic: str = topic, count: int = count, size: int = size) -> Sample:
            return consume(broker, topic, count, size, f"perf-{topic}-{number}")

        rows.append(alternate(row, brokers, work, rounds=rounds))
    return rows


def consume(broker: Broker, topic: str, records: int, size: int, group: str) -> Sample:
    """Records per second, time for joining the group excluded."""
    config = Path(broker.directory) / "consumer.properties"
    config.write_text("auto.offset.reset=earliest\n")
    output = kafka_tool(
        "consumer-perf",
        *("--bootstrap-server", broker.bootstrap, "--topic", topic, "--num-records", str(records)),
        *("--group", group, "--timeout", "60000"),
    )
    line = output.strip().splitlines()[-1]
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    fields = [field.strip() for field in line.split(",")]
    if int(fields[4]) < records:
        raise RuntimeError(f"consumer-perf read {fields[4]} of {records} records")
    return Sample(float(fields[9]), gigabytes=records * size / 1e9)
