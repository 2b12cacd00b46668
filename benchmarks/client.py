"""The client beside confluent-kafka and aiokafka on one broker: records a second, and CPU seconds of the client alone.

    python -m benchmarks.client [--records 200000] [--size 100] [--rounds 3]

Each client produces to a topic of its own and reads it back, in turns; medians are shown, and the lowest and highest
ratio of the rounds. Then what decoding into Arrow costs without a broker, and the import of the client.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, NamedTuple

from benchmarks.brokers import Raftlog, create_topic

TIMEOUT_SECONDS = 120.0
BATCH_BYTES = 128 * 1024
LINGER_SECONDS = 0.005
TABLE_ROWS = 10_000
DECODED = 1_000_000


class Job(NamedTuple):
    bootstrap: str
    topic: str
    records: int
    size: int

    @property
    def value(self) -> bytes:
        return b"x" * self.size


class Cost(NamedTuple):
    seconds: float
    cpu_seconds: float


async def raftlog_produce(job: Job) -> None:
    from raftlog.client import Client

    async with Client(job.bootstrap, timeout=TIMEOUT_SECONDS) as client:
        async with client.producer(linger=LINGER_SECONDS, batch_size=BATCH_BYTES) as producer:
            value = job.value
            for _ in range(job.records):
                await producer.enqueue(job.topic, value)
            await producer.flush()


async def raftlog_send_tables(job: Job) -> None:
    import pyarrow as pa

    from raftlog.client import Client

    table = pa.table({"value": pa.repeat(pa.scalar(job.value), TABLE_ROWS)})
    async with Client(job.bootstrap, timeout=TIMEOUT_SECONDS) as client:
        async with client.producer(linger=LINGER_SECONDS, batch_size=BATCH_BYTES) as producer:
            for first in range(0, job.records, TABLE_ROWS):
                await producer.enqueue_arrow(job.topic, table[: job.records - first])
            await producer.flush()


async def raftlog_consume(job: Job) -> None:
    from raftlog.client import Client

    async with Client(job.bootstrap, timeout=TIMEOUT_SECONDS) as client:
        async with client.consumer(job.topic, auto_offset_reset="earliest") as consumer:
            count = 0
            while count < job.records:
                count += sum(record.value is not None for record in await consumer.poll(5000))


async def raftlog_tables(job: Job) -> None:
    from raftlog.client import Client

    async with Client(job.bootstrap, timeout=TIMEOUT_SECONDS) as client:
        async with client.consumer(job.topic, auto_offset_reset="earliest") as consumer:
            count = 0
            while count < job.records:
                count += (await consumer.poll(job.records)).arrow().num_rows


async def aiokafka_produce(job: Job) -> None:
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(
        bootstrap_servers=job.bootstrap,
        linger_ms=int(LINGER_SECONDS * 1000),
        max_batch_size=BATCH_BYTES,
        enable_idempotence=True,
    )
    await producer.start()
    value = job.value
    for _ in range(job.records):
        await producer.send(job.topic, value)
    await producer.flush()
    await producer.stop()


async def aiokafka_consume(job: Job) -> None:
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(job.topic, bootstrap_servers=job.bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    count = 0
    while count < job.records:
        for records in (await consumer.getmany(timeout_ms=1000, max_records=5000)).values():
            for record in records:
                count += record.value is not None
    await consumer.stop()


async def confluent_produce(job: Job) -> None:
    from confluent_kafka import Producer

    producer = Producer(
        {
            "bootstrap.servers": job.bootstrap,
            "enable.idempotence": True,
            "linger.ms": LINGER_SECONDS * 1000,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = job.value
    for number in range(job.records):
        producer.produce(job.topic, value)
        if not number % 1000:
            producer.poll(0)
    producer.flush(TIMEOUT_SECONDS)


async def confluent_consume(job: Job) -> None:
    from confluent_kafka import Consumer

    consumer = Consumer(
        {"bootstrap.servers": job.bootstrap, "group.id": f"bench-{job.topic}", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([job.topic])
    count = 0
    while count < job.records:
        message = consumer.poll(1.0)
        count += message is not None and message.error() is None
    consumer.close()


Run = Callable[[Job], Coroutine[Any, Any, None]]
PRODUCE: dict[str, Run] = {
    "raftlog.client": raftlog_produce,
    "raftlog.client, tables": raftlog_send_tables,
    "aiokafka": aiokafka_produce,
    "confluent-kafka": confluent_produce,
}
CONSUME: dict[str, tuple[str, Run]] = {
    "raftlog.client": ("raftlog.client", raftlog_consume),
    "raftlog.client, tables": ("raftlog.client", raftlog_tables),
    "aiokafka": ("aiokafka", aiokafka_consume),
    "confluent-kafka": ("confluent-kafka", confluent_consume),
}


def measure(run: Run, job: Job) -> Cost:
    wall, cpu = time.perf_counter(), time.process_time()
    asyncio.run(run(job))
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def show(title: str, costs: dict[str, list[Cost]], records: int) -> None:
    print(f"{title:26} records/s   CPU us/record   x confluent-kafka: rate, CPU     x aiokafka: rate, CPU")
    for name, found in costs.items():
        seconds, cpu = (statistics.median(each) for each in zip(*found, strict=True))
        told = [beside(costs[other], found) for other in ("confluent-kafka", "aiokafka")]
        print(f"{name:26} {records / seconds:9,.0f} {cpu / records * 1e6:15.2f} {told[0]:>30} {told[1]:>26}")


def beside(others: list[Cost], ours: list[Cost]) -> str:
    """How many times the others' rate, with its lowest and highest round, and their CPU seconds divided by ours."""
    rates = [other.seconds / our.seconds for other, our in zip(others, ours, strict=True)]
    less = statistics.median(other.cpu_seconds / our.cpu_seconds for other, our in zip(others, ours, strict=True))
    return f"{statistics.median(rates):.2f} ({min(rates):.2f} to {max(rates):.2f}), {less:.2f}"


def show_decoding(smallest: int, largest: int) -> None:
    """Record batches as a producer makes them, in memory, into Arrow's columns: CPU seconds of one core.

    Values have `smallest` to `largest` bytes, in no order.
    """
    from raftlog.client.columns.decode import read_batches
    from raftlog.wire.batch import Record, encode_batch

    count, sizes = BATCH_BYTES // ((smallest + largest) // 2 + 10), Random(1)
    records = [
        Record(at, 1_700_000_000_000 + at, None, b"x" * sizes.randint(smallest, largest)) for at in range(64 * count)
    ]
    firsts = range(0, len(records), count)
    together = b"".join(encode_batch(records[first : first + count], base_offset=first) for first in firsts)
    read_batches("topic", 0, together)  # imports what Arrow needs for it
    began, decoded = time.process_time(), 0
    while decoded < DECODED:
        decoded += read_batches("topic", 0, together).num_rows
    rate = decoded / (time.process_time() - began)
    print(f"decoded into Arrow: {rate:,.0f} records of {smallest} to {largest} B in a CPU second")


def show_a_few(size: int, partitions: int = 50, count: int = 10) -> None:
    """A poll of a topic with many partitions and little in each, into Arrow's columns; and as many rows that are sent
    to so many partitions, by their keys.
    """
    import numpy as np
    import pyarrow as pa

    from raftlog.client.columns import encode
    from raftlog.client.columns.decode import to_table
    from raftlog.client.core.fetched import Piece, Slice
    from raftlog.wire.batch import Record, encode_batch, parse_header

    batch = encode_batch([Record(at, 1_700_000_000_000, None, b"x" * size) for at in range(count)])
    pieces = [Piece(parse_header(batch), batch, 0, count)]
    slices = [Slice("topic", index, pieces, count, 0) for index in range(partitions)]
    keys = pa.array([b"%06d" % at for at in range(count * partitions)])
    (rows,) = encode.rows_of(pa.table({"key": keys, "value": [b"x" * size] * len(keys)}), 0)

    def to_arrow() -> int:
        return to_table(slices).num_rows

    def to_batches() -> int:
        chosen = encode.partitions_of(rows, partitions, BATCH_BYTES, lambda _: 0)
        return sum(len(packed.rows) for packed in encode.pack(rows, chosen, BATCH_BYTES, np.iinfo(np.int32).max))

    for name, work in ("decoded into", to_arrow), ("encoded from", to_batches):
        work()
        began, done = time.process_time(), 0
        while done < DECODED // 10:
            done += work()
        rate = done / (time.process_time() - began)
        print(f"{name} Arrow: {rate:,.0f} records in a CPU second, {count} for each of {partitions} partitions at once")


def show_import() -> None:
    code = "import time; began = time.perf_counter(); import raftlog.client; print(time.perf_counter() - began)"
    every = "from raftlog.client import Client, SyncClient, Producer, Consumer"
    for what in (code, code.replace("import raftlog.client", every)):
        found = [float(subprocess.check_output([sys.executable, "-c", what])) * 1000 for _ in range(5)]
        print(f"import: {statistics.median(found):.0f} ms ({'all of it' if every in what else 'raftlog.client'})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    produced: dict[str, list[Cost]] = {name: [] for name in PRODUCE}
    consumed: dict[str, list[Cost]] = {name: [] for name in CONSUME}
    with Raftlog() as broker:
        for turn in range(options.rounds):
            jobs = {}
            for name, run in PRODUCE.items():
                topic = f"{name.replace(', ', '-')}-{turn}"
                create_topic(broker.bootstrap, topic)
                jobs[name] = Job(broker.bootstrap, topic, options.records, options.size)
                produced[name].append(measure(run, jobs[name]))
            for name, (source, run) in CONSUME.items():
                consumed[name].append(measure(run, jobs[source]))
    print(f"{options.records:,} records of {options.size} B, median of {options.rounds}")
    show("produce", produced, options.records)
    show("consume", consumed, options.records)
    show_decoding(options.size, options.size)
    show_decoding(options.size // 2, options.size + options.size // 2)
    show_a_few(options.size)
    show_import()


if __name__ == "__main__":
    main()
