"""What exactly once costs: idempotent and transactional producing beside plain, and reading committed records.

    python -m benchmarks.transactions [--only produce,read-committed] [--rounds 3] [--scale 1.0] [--against TREE]

The same client for each broker, 100 B records. A row "as part of plain" is the records per second of that way of
producing divided by those of plain producing in the same round, right before it; one broker, one partition. The
workloads `rates`, `rates-java` and `copier` have three brokers and three replicas, and one of each with `-alone` behind
the name.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Producer

from benchmarks import java_clients
from benchmarks.brokers import Broker, beside_raftlog, create_topic
from benchmarks.cluster import make_sets
from benchmarks.librdkafka import consume, payloads
from benchmarks.measure import Row, Sample, alternate
from benchmarks.table import run_chosen, together
from benchmarks.transaction_rates import copying, java, librdkafka, rates

SIZE = 100
PRODUCED, CONSUMED = 600_000, 1_500_000
IN_A_TRANSACTION = 1000
ABORTED_PERCENT = (0, 1, 50)
PRODUCED_BY_JAVA = 6_000_000
TRANSACTION_MS = (100, 1000)
SECONDS = 5.0
_SECONDS_MAX = 60
_numbers = itertools.count()


def produce(broker: Broker, topic: str, records: int, *, in_transactions: int = 0, **settings: Any) -> float:
    """Records per second until all are acknowledged, or with `in_transactions` of so many, all are committed."""
    values = payloads(SIZE)
    if in_transactions:
        settings["transactional.id"] = f"bench-{next(_numbers)}"
    common = {"acks": "all", "linger.ms": 5, "queue.buffering.max.messages": 200_000, "batch.num.messages": 10_000}
    producer = Producer({"bootstrap.servers": broker.bootstrap, **common, **settings})
    if in_transactions:
        producer.init_transactions(_SECONDS_MAX)
    else:
        # Connections and the producer id come with the first record, and take as long as thousands of others.
        producer.produce(topic, values[0])
        producer.flush(_SECONDS_MAX)
    begin = time.perf_counter()
    for number in range(records):
        if in_transactions and number % in_transactions == 0:
            if number:
                producer.commit_transaction(_SECONDS_MAX)
            producer.begin_transaction()
        while True:
            try:
                producer.produce(topic, values[number % len(values)])
                break
            except BufferError:
                producer.poll(0.01)
    if in_transactions:
        producer.commit_transaction(_SECONDS_MAX)
    if producer.flush(_SECONDS_MAX):
        raise RuntimeError("records were not acknowledged")
    return records / (time.perf_counter() - begin)


def producing(brokers: list[Broker], rounds: int, scale: float) -> list[Row]:
    """Plain, idempotent, transactional."""
    records = int(PRODUCED * scale)
    for broker in brokers:
        create_topic(broker.bootstrap, "produced")
    plain = partial(produce, topic="produced", records=records, **{"enable.idempotence": False})
    ways: dict[str, Callable[[Broker], float]] = {
        "idempotent produce": partial(produce, topic="produced", records=records, **{"enable.idempotence": True}),
        f"transactional produce, {IN_A_TRANSACTION:,} records each": partial(
            produce, topic="produced", records=records, in_transactions=IN_A_TRANSACTION
        ),
    }

    def part_of_plain(broker: Broker, _: int, way: Callable[[Broker], float]) -> Sample:
        before = plain(broker)
        return Sample(way(broker) / before)

    rows = [
        alternate(
            Row("plain produce", "records/s", higher_is_better=True),
            brokers,
            lambda broker, _: Sample(plain(broker), gigabytes=records * SIZE / 1e9),
            rounds=rounds,
        )
    ]
    for name, way in ways.items():
        row = Row(f"{name}, as part of plain", "", higher_is_better=True)
        rows.append(alternate(row, brokers, partial(part_of_plain, way=way), rounds=rounds))
    return rows


def fill(broker: Broker, topic: str, records: int, aborted_percent: int) -> int:
    """Transactions of a hundred records, some of them aborted evenly; how many records were committed."""
    values, each, committed = payloads(SIZE), 100, 0
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap, "transactional.id": f"fill-{topic}", "linger.ms": 1, "acks": "all"}
    )
    producer.init_transactions(_SECONDS_MAX)
    for number in range(records // each):
        producer.begin_transaction()
        for record in range(each):
            producer.produce(topic, values[record])
        if (number + 1) * aborted_percent // 100 > number * aborted_percent // 100:
            # Else librdkafka drops what it has not sent.
            producer.flush(_SECONDS_MAX)
            producer.abort_transaction(_SECONDS_MAX)
        else:
            producer.commit_transaction(_SECONDS_MAX)
            committed += each
    return committed


def consuming(brokers: list[Broker], rounds: int, scale: float) -> list[Row]:
    """Records per second of a reader of committed records, where none, few or half of the transactions are aborted."""
    rows = []
    for percent in ABORTED_PERCENT:
        topic = f"aborted-{percent}"
        committed = 0
        for broker in brokers:
            create_topic(broker.bootstrap, topic)
            committed = fill(broker, topic, int(CONSUMED * scale), percent)
        row = Row(f"read_committed, {percent} % aborted", "records/s", higher_is_better=True)
        work = partial(_consume, topic=topic, committed=committed)
        rows.append(alternate(row, brokers, work, rounds=rounds))
    return rows


def producing_for_a_time(brokers: list[Broker], rounds: int, scale: float) -> list[Row]:
    """Kafka's producer-perf with transactions of some duration, which is how it knows them, beside plain."""
    for broker in brokers:
        create_topic(broker.bootstrap, "for-a-time")
    perf = partial(java_clients.produce, topic="for-a-time", records=int(PRODUCED_BY_JAVA * scale), size=SIZE)
    plain = ("enable.idempotence=false",)

    def part_of_plain(broker: Broker, number: int, settings: tuple[str, ...], options: tuple[str, ...]) -> Sample:
        before = perf(broker, settings=plain).value
        options = tuple(each.format(number=next(_numbers)) for each in options)
        return Sample(perf(broker, settings=settings, options=options).value / before)

    rows = []
    for milliseconds in (0, *TRANSACTION_MS):
        options: tuple[str, ...] = ()
        if milliseconds:
            options = ("--transaction-duration-ms", str(milliseconds), "--transactional-id", "perf-{number}")
        way = f"transactions of {milliseconds:,} ms" if milliseconds else "idempotent"
        row = Row(f"producer-perf 100 B, {way}, as part of plain", "", higher_is_better=True)
        work = partial(part_of_plain, settings=(), options=options)
        rows.append(alternate(row, brokers, work, rounds=rounds))
    return rows


def of_three(work: Callable[[list[Broker]], list[Row]], against: str | None) -> list[Row]:
    """Run beside Kafka, or another checkout, with three brokers of each up."""
    options = argparse.Namespace(of="raftlog,kafka", against=against)
    with contextlib.ExitStack() as stack:
        return work([stack.enter_context(each) for each in make_sets(options, 3)])


def _consume(broker: Broker, _: int, topic: str, committed: int) -> Sample:
    return consume(broker, topic, range(committed, committed), SIZE, isolation="read_committed")


def main() -> int:
    """Run what was asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, help="measured rounds of each broker, after a warm-up")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the records that a full run sends")
    parser.add_argument("--only", default="", help="comma-separated names")
    parser.add_argument("--output", help="write the table to this file too")
    parser.add_argument("--against", metavar="TREE", help="another checkout of raftlog, in place of Kafka")
    options = parser.parse_args()
    others = beside_raftlog(options.against)
    rounds, scale = options.rounds, options.scale
    workloads: dict[str, Callable[[], list[Row]]] = {
        "produce": lambda: together(lambda b: producing(b, rounds, scale), others),
        "produce-java": lambda: together(lambda b: producing_for_a_time(b, rounds, scale), others),
        "read-committed": lambda: together(lambda b: consuming(b, rounds, scale), others),
    }
    kinds: dict[str, Callable[..., list[Row]]] = {
        "rates": lambda b, **replicas: rates(b, rounds, SECONDS * scale, librdkafka, **replicas),
        "rates-java": lambda b, **replicas: rates(b, rounds, SECONDS * scale, java, **replicas),
        "copier": lambda b, **replicas: copying(b, rounds, scale, **replicas),
    }
    for name, work in kinds.items():
        workloads[name] = partial(of_three, partial(work, replicas=3), options.against)
        workloads[f"{name}-alone"] = partial(together, partial(work, replicas=1), others)
    return run_chosen(parser, options, workloads)


if __name__ == "__main__":
    sys.exit(main())
