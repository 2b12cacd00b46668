"""How throughput changes from 1 to 1,000 partitions and from 1 to 100 connections."""

from __future__ import annotations

import multiprocessing
import time

from confluent_kafka import Producer

from benchmarks.brokers import Broker, create_topic
from benchmarks.java_clients import LARGE_BATCHES, produce
from benchmarks.measure import Row, Sample, alternate


def partitions(brokers: list[Broker], rounds: int, scale: float) -> list[Row]:
    """producer-perf of 1 KB records over 1 to 1,000 partitions."""
    rows = []
    for count in (1, 10, 100, 1000):
        topic = f"scale-{count}"
        for broker in brokers:
            create_topic(broker.bootstrap, topic, count)
        row = Row(f"produce 1 KB over {count:,} partitions", "records/s", higher_is_better=True)

        def work(broker: Broker, _: int, topic: str = topic) -> Sample:
            return produce(broker, topic, int(300_000 * scale), 1000, LARGE_BATCHES)

        rows.append(alternate(row, brokers, work, rounds=rounds))
    return rows


def _produce_many(bootstrap: str, topic: str, connections: int, records: int) -> None:
    producers = [
        Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5}) for _ in range(connections)
    ]
    value = b"x" * 1000
    for number in range(records):
        producer = producers[number % connections]
        while True:
            try:
                producer.produce(topic, value)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            for each in producers:
                each.poll(0)
    for producer in producers:
        if producer.flush(60):
            raise RuntimeError("records were not acknowledged")


def connections(brokers: list[Broker], rounds: int, scale: float) -> list[Row]:
    """1 to 100 producers, each with a connection of its own, 10 partitions, 1 KB."""
    rows = []
    for broker in brokers:
        create_topic(broker.bootstrap, "connections", 10)
    for count in (1, 10, 100):
        row = Row(f"produce 1 KB from {count} connections", "records/s", higher_is_better=True)
        records = int(100_000 * scale)

        def work(broker: Broker, _: int, count: int = count, records: int = records) -> Sample:
            context = multiprocessing.get_context("spawn")
            process = context.Process(target=_produce_many, args=(broker.bootstrap, "connections", count, records))
            begin = time.perf_counter()
            process.start()
            process.join(180)
            if process.exitcode != 0:
                raise RuntimeError("a producer failed")
            return Sample(records / (time.perf_counter() - begin), gigabytes=records * 1000 / 1e9)

        rows.append(alternate(row, brokers, work, rounds=rounds))
    return rows
