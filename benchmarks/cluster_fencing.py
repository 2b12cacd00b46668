"""Whether a cluster under more load than its machine can carry takes healthy brokers for dead.

Producers and consumers as fast as they can go, on the same cores as three brokers, for minutes; nobody harms anything.
Every fenced broker, change of the quorum's leader and replica that leaves an ISR is then a mistake, and is counted from
what the brokers log. How long their event loops stood still is felt from outside: a request that costs next to nothing
(ApiVersions) is asked all the time, and the longest wait for its answer told. The one who asks has to wait for a
processor as well, so the figure is an upper bound.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import re
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import NewTopic

from benchmarks.cluster_brokers import RaftlogSet, admin
from benchmarks.measure import Row, Sample, progress
from benchmarks.raw_client import connect, frame
from benchmarks.single_node import percentile
from raftlog.wire.apis import ApiKey
from raftlog.wire.messages.api_versions import ApiVersionsRequest

TOPIC = "saturated"
PARTITIONS = 6
RETENTION = {"retention.bytes": str(128 << 20), "segment.bytes": str(32 << 20)}
PROBE_SECONDS = 0.02
PRODUCERS = ((1000, 50), (100, 0))
"""Of each: bytes a record, linger in milliseconds. Large batches for the bytes, single ones for the requests."""
CONSUMERS = 2

FENCED = re.compile(r"broker=\d+ epoch=\d+ is fenced: .*")
SHRINKS = re.compile(r"proposes isr=([\d,]*)")
TERM = re.compile(r"metadata quorum, node \d+: .* in term (\d+)")
STOOD_STILL = re.compile(r"node \d+ stood still for .*")


class Told(NamedTuple):
    """What the brokers logged: lines about fenced brokers and stalls, proposals of fewer replicas, terms."""

    fenced: list[str]
    stalls: list[str]
    shrinks: int
    terms: set[int]


def told(texts: list[str]) -> Told:
    """Count what is in the logs of the brokers."""
    found = Told([], [], 0, set())
    shrinks = 0
    for text in texts:
        found.fenced.extend(FENCED.findall(text))
        found.stalls.extend(STOOD_STILL.findall(text))
        found.terms.update(int(term) for term in TERM.findall(text))
        shrinks += sum(len(isr.split(",")) < 3 for isr in SHRINKS.findall(text))
    return found._replace(shrinks=shrinks)


# -- the load ---------------------------------------------------------------------------------------------------------


def produce(bootstrap: str, size: int, linger_ms: int, ending: Event, results: Any) -> None:
    """As fast as acknowledgements come; how many came, and every error that a caller was told."""
    acknowledged, errors = 0, list[str]()

    def delivered(error: KafkaError | None, _: object) -> None:
        nonlocal acknowledged
        acknowledged += error is None
        if error is not None:
            errors.append(error.name())

    producer = Producer({
        "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": linger_ms, "log_level": 0,
        "queue.buffering.max.messages": 20_000, "message.timeout.ms": 60_000,
    })  # fmt: skip
    value = b"x" * size
    while not ending.is_set():
        for _ in range(500):
            try:
                producer.produce(TOPIC, value, on_delivery=delivered)
            except BufferError:
                producer.poll(0.05)
        producer.poll(0)
    producer.flush(60)
    results.put((acknowledged, errors))


def consume(bootstrap: str, ending: Event, results: Any) -> None:
    """A member of a group that commits; how many records came, and every error but that a broker went away."""
    consumer = Consumer({
        "bootstrap.servers": bootstrap, "group.id": "saturating", "auto.commit.interval.ms": 500, "log_level": 0,
        "queued.max.messages.kbytes": 16_384,
    })  # fmt: skip
    consumer.subscribe([TOPIC])
    count, errors = 0, list[str]()
    while not ending.is_set():
        for message in consumer.consume(5000, 0.2):
            error = message.error()
            count += error is None
            if error is not None:
                errors.append(error.name())
    consumer.close()
    results.put((count, errors))


def probe(brokers: list[str], ending: Event, results: Any) -> None:
    """Milliseconds until each of many ApiVersions requests was answered, all brokers together."""

    async def ask(address: str) -> list[float]:
        client = await connect(address)
        found: list[float] = []
        for number in itertools.count():
            if ending.is_set():
                return found
            begin = time.perf_counter()
            await client.send(frame(ApiKey.API_VERSIONS, 0, number, ApiVersionsRequest()))
            found.append((time.perf_counter() - begin) * 1000)
            await asyncio.sleep(PROBE_SECONDS)
        raise AssertionError("numbers do not end")

    async def run() -> list[float]:
        return [each for found in await asyncio.gather(*map(ask, brokers)) for each in found]

    results.put((0, asyncio.run(run())))


# -- the measurement --------------------------------------------------------------------------------------------------


def idle_seconds() -> float:
    """Of all processors of this machine together, since it started."""
    fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
    return (int(fields[4]) + int(fields[5])) / 100


def saturate(brokers: RaftlogSet, seconds: float) -> tuple[list[int], list[str], list[float]]:
    """Load for so long: what each process counted, the errors of clients, the waits in milliseconds."""
    context = multiprocessing.get_context("spawn")
    ending = context.Event()
    workloads: list[tuple[Any, tuple[Any, ...]]] = [(produce, (brokers.bootstrap, *each)) for each in PRODUCERS]
    workloads += [(consume, (brokers.bootstrap,))] * CONSUMERS
    workloads.append((probe, (brokers.bootstrap.split(","),)))
    running = []
    for workload, arguments in workloads:
        results = context.Queue()
        process = context.Process(target=workload, args=(*arguments, ending, results), daemon=True)
        process.start()
        running.append((process, results))
    began, idle = time.monotonic(), idle_seconds()
    while (passed := time.monotonic() - began) < seconds:
        time.sleep(min(30.0, seconds - passed))
        progress(f"fencing: {passed / 60:.1f} minutes, {len(told(logs(brokers)).fenced)} fenced so far")
    cores = multiprocessing.cpu_count()
    progress(f"fencing: {(idle_seconds() - idle) / (time.monotonic() - began) / cores:.0%} of the processors idle")
    ending.set()
    answers = [results.get(timeout=120) for _, results in running]
    for process, _ in running:
        process.join(30)
    return [count for count, _ in answers], [e for _, errors in answers[:-1] for e in errors], answers[-1][1]


def logs(brokers: RaftlogSet) -> list[str]:
    return [broker.log() for broker in brokers.cluster.brokers]


def fencing(minutes: float) -> list[Row]:
    """What went wrong in so many minutes, as rows; what exactly, on standard error."""

    def row(work: str, value: float, unit: str, *, higher_is_better: bool = False) -> Row:
        name = f"{minutes:g} minutes of saturating load: {work}"
        return Row(name, unit, higher_is_better, {"raftlog": [Sample(value)]})

    brokers = RaftlogSet(3, {"log.retention.check.interval.ms": "5000"})
    with brokers:
        client = admin(brokers.bootstrap)
        client.create_topics([NewTopic(TOPIC, PARTITIONS, 3, config=RETENTION)])[TOPIC].result(30)
        brokers.wait_until_in_sync(TOPIC)
        before = [len(text) for text in logs(brokers)]
        terms = len(told(logs(brokers)).terms)
        counts, errors, waits = saturate(brokers, minutes * 60)
        found = told([text[start:] for text, start in zip(logs(brokers), before, strict=True)])
        changes = len(told(logs(brokers)).terms) - terms
    for line in (*found.fenced, *found.stalls, *sorted(set(errors))):
        progress(f"fencing: {line}")
    produced, consumed = sum(counts[: len(PRODUCERS)]), sum(counts[len(PRODUCERS) :])
    return [
        row("brokers fenced", len(found.fenced), "times"),
        row("leaders of the quorum elected", changes, "times"),
        row("replicas proposed to leave an ISR", found.shrinks, "times"),
        row("errors told to clients", len(errors), "times"),
        row("acknowledged", produced / minutes / 60, "records/s", higher_is_better=True),
        row("consumed", consumed / minutes / 60, "records/s", higher_is_better=True),
        row("wait for ApiVersions, p99", percentile(waits, 0.99), "ms"),
        row("wait for ApiVersions, longest", max(waits), "ms"),
    ]
