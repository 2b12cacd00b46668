"""Transactions per second: of 1, 100 and 1,000 records over three partitions, and those that copy a topic.

The workloads of `benchmarks/transactions.py` that are the same for one broker and for three. A librdkafka client speaks
the protocol of transactions before transaction.version 2, Kafka's own Java client speaks that.
"""

from __future__ import annotations

import itertools
import json
import subprocess
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from confluent_kafka import Producer

from benchmarks.brokers import PEERS, Broker, create_topic, kafka_tool
from benchmarks.measure import Row, Sample, alternate, beside

PARTITIONS = 3
RECORDS = (1, 100, 1000)
COPIED_TOGETHER = 200
_VALUE = bytes(100)
_SECONDS_MAX = 60
_PROGRAM = Path(__file__).with_name("TransactionRate.java")
_JARS = PEERS / "kafka" / "libs" / "*"
_names = itertools.count()


def librdkafka(broker: Broker, topic: str, records: int, seconds: float) -> tuple[float, float]:
    """Transactions per second of one producer, and CPU milliseconds of the brokers for each."""
    settings = {"bootstrap.servers": broker.bootstrap, "log_level": 0, "acks": "all"}
    producer = Producer({**settings, "transactional.id": f"rate-{next(_names)}"})
    producer.init_transactions(_SECONDS_MAX)

    def commit(number: int) -> None:
        producer.begin_transaction()
        for record in range(records):
            producer.produce(topic, _VALUE, partition=(number + record) % PARTITIONS)
        producer.commit_transaction(_SECONDS_MAX)

    for number in range(20):
        commit(number)
    cpu, begin, count = broker.cpu_seconds(), time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < seconds:
        commit(count)
        count += 1
    return count / passed, (broker.cpu_seconds() - cpu) / count * 1000


def java(broker: Broker, topic: str, records: int, seconds: float) -> tuple[float, float]:
    """The same with Kafka's own client, whose compiler has had twice the time before."""
    sizes = [str(PARTITIONS), str(records), str(2 * seconds), str(seconds)]
    command = ["java", "-cp", str(_JARS), str(_PROGRAM), broker.bootstrap, topic, *sizes]
    said, pipe = broker.directory / "transaction-rate.err", subprocess.PIPE
    with (
        said.open("w") as errors,
        subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=errors, text=True) as client,
    ):
        assert client.stdin is not None and client.stdout is not None
        is_warm = client.stdout.readline() == "warm\n"
        cpu = broker.cpu_seconds()
        if is_warm:
            client.stdin.write("\n")
            client.stdin.flush()
        numbers = client.stdout.readline().split()
        cpu = broker.cpu_seconds() - cpu
    if len(numbers) != 2:
        raise RuntimeError(f"{_PROGRAM.name} failed: {said.read_text()[-2000:]}")
    count, passed = map(float, numbers)
    return count / passed, cpu / count * 1000


def rates(
    brokers: list[Broker],
    rounds: int,
    seconds: float,
    client: Callable[[Broker, str, int, float], tuple[float, float]],
    *,
    replicas: int,
) -> list[Row]:
    """A row for each size of transactions, and below it one of the brokers' CPU."""
    rows = []
    topic = f"rates-{client.__name__}"
    for broker in brokers:
        create_topic(broker.bootstrap, topic, PARTITIONS, replicas=replicas)
    for records in RECORDS:
        work = f"{client.__name__}, transactions of {records:,} over {PARTITIONS} partitions, RF {replicas}"
        row = Row(work, "/s", higher_is_better=True)

        def measure(broker: Broker, _: int, records: int = records) -> Sample:
            rate, milliseconds = client(broker, topic, records, seconds)
            return Sample(rate, beside=milliseconds)

        alternate(row, brokers, measure, rounds=rounds)
        rows += [row, beside(row, f"{work}: brokers' CPU for one", "ms")]
    return rows


# --- consume, transform, produce


def copying(brokers: list[Broker], rounds: int, scale: float, *, replicas: int) -> list[Row]:
    """Records per second of Kafka's transactional-message-copier, which commits offsets in its transactions."""
    records = int(60_000 * scale)
    for broker in brokers:
        create_topic(broker.bootstrap, "copied", replicas=replicas)
        create_topic(broker.bootstrap, "copies", PARTITIONS, replicas=replicas)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5, "log_level": 0})
        for number in range(records):
            producer.produce("copied", _VALUE, b"%d" % number)
            if number % 1000 == 0:
                producer.poll(0)
        producer.flush(_SECONDS_MAX)
    work = f"transactional-message-copier, {COPIED_TOGETHER} records a transaction, RF {replicas}"
    row = Row(work, "records/s", higher_is_better=True)
    return [alternate(row, brokers, lambda broker, _: copy(broker), rounds=rounds)]


def copy(broker: Broker) -> Sample:
    """Copy the whole topic. The rate is that of the second half, as with producer-perf."""
    name = f"copier-{next(_names)}"
    output = kafka_tool(
        "transactional-message-copier",
        *("--broker-list", broker.bootstrap, "--transactional-id", name, "--consumer-group", name),
        *("--input-topic", "copied", "--input-partition", "0", "--output-topic", "copies"),
        *("--transaction-size", str(COPIED_TOGETHER), "--use-group-metadata"),
    )
    said = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    steps = [(_seconds(each["time"]), each["totalProcessed"]) for each in said if each["stage"] == "ProcessLoop"]
    (begin, before), (end, copied) = steps[len(steps) // 2], steps[-1]
    return Sample((copied - before) / (end - begin), gigabytes=copied * len(_VALUE) / 1e9)


def _seconds(text: str) -> float:
    return datetime.strptime(text, "%Y/%m/%d %H:%M:%S:%f").timestamp()
