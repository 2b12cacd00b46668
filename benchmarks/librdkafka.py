"""confluent-kafka (librdkafka) producing and consuming, each codec, the same client and settings for both."""

from __future__ import annotations

import os
import random
import time
from functools import partial

from confluent_kafka import Consumer, Producer, TopicPartition

from benchmarks.brokers import Broker, create_topic
from benchmarks.measure import Row, Sample, alternate

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_CONSUME_SECONDS = 5


def payloads(size: int) -> list[bytes]:
    """Half random, half text, so that a codec has something to do and cannot do everything."""
    chooser = random.Random(7)
    return [os.urandom(size // 4) + bytes(chooser.choices(b"abcdefgh ", k=size - size // 4)) for _ in range(500)]


def produce(broker: Broker, topic: str, values: list[bytes], records: int, codec: str) -> Sample:
    """Records per second until all are acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": broker.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "compression.type": codec,
            "queue.buffering.max.messages": 200_000,
            "linger.ms": 5,
            "batch.num.messages": 10_000,
        }
    )
    failed = 0

    def delivered(error: object, _: object) -> None:
        nonlocal failed
        failed += error is not None

    start = time.perf_counter()
    for number in range(records):
        while True:
            try:
                producer.produce(topic, values[number % len(values)], on_delivery=delivered)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1000 == 0:
            producer.poll(0)
    producer.flush(60)
    seconds = time.perf_counter() - start
    if failed:
        raise RuntimeError(f"{failed} records were not acknowledged")
    return Sample(records / seconds, gigabytes=records * len(values[0]) / 1e9)


def consume(
    broker: Broker, topic: str, records: range, size: int, *, isolation: str = "read_uncommitted"
) -> Sample:
    """Records per second from the first record, for five seconds, but never less nor more than `records` says."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "queued.max.messages.kbytes": 262144,
            "fetch.message.max.bytes": 1048576,
            # A client whose queue is full (100,000 records) stops fetching for a second by default; a run takes about
            # as long, so that this pause and not the broker would be measured.
            "fetch.queue.backoff.ms": 1,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen = 0
    start = 0.0
    deadline = time.monotonic() + 120
    while seen < records.stop and time.monotonic() < deadline:
        if seen >= records.start and time.perf_counter() - start >= _CONSUME_SECONDS:
            break
        batch = consumer.consume(10_000, timeout=1.0)
        if batch and not start:
            start = time.perf_counter()
        seen += sum(1 for message in batch if message.error() is None)
    seconds = time.perf_counter() - start
    consumer.close()
    if seen < records.start:
        raise RuntimeError(f"{seen} of {records.start} records were consumed")
    return Sample(seen / seconds, gigabytes=seen * size / 1e9)


def rows(brokers: list[Broker], rounds: int, scale: float) -> list[Row]:
    """Producing, then consuming what was produced, for 100 B and 1 KB and each codec."""
    out = []
    for size, records in ((100, 1_500_000), (1000, 400_000)):
        values = payloads(size)
        count = int(records * scale)
        for codec in CODECS:
            topic = f"librdkafka-{size}-{codec}"
            for broker in brokers:
                create_topic(broker.bootstrap, topic)
            produced = Row(f"librdkafka produce {size} B {codec}", "records/s", higher_is_better=True)
            consumed = Row(f"librdkafka consume {size} B {codec}", "records/s", higher_is_better=True)

            do_produce = partial(produce, topic=topic, values=values, records=count, codec=codec)
            # All that the warm-up and the rounds have left in the topic: one of them is read within a second.
            there = range(count, count * (rounds + 1))
            do_consume = partial(consume, topic=topic, records=there, size=size)

            out.append(alternate(produced, brokers, lambda broker, _, work=do_produce: work(broker), rounds=rounds))
            out.append(alternate(consumed, brokers, lambda broker, _, work=do_consume: work(broker), rounds=rounds))
    return out
