"""How long clients wait when a broker dies, stops or stands still, and how soon 3,000 partitions have new leaders."""

from __future__ import annotations

import itertools
import signal
import threading
import time

from confluent_kafka import OFFSET_END, Consumer, Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from benchmarks.cluster_brokers import BrokerSet, RaftlogSet, admin, wait_until_gone
from benchmarks.measure import Row, Sample, progress

RECORDS_PER_SECOND = 200
STANDSTILL_SECONDS = 25.0
SETTLE_SECONDS = 3.0


class Ticker(threading.Thread):
    """One record every few milliseconds to one partition, acks=all, and when each was acknowledged."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)

        self.acknowledged: list[float] = []
        self.failed = 0
        self._topic = topic
        self._ending = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )

    def run(self) -> None:
        def delivered(error: object, _: object) -> None:
            if error is None:
                self.acknowledged.append(time.perf_counter())
            else:
                self.failed += 1

        begin, number = time.perf_counter(), 0
        while not self._ending.is_set():
            due = begin + number / RECORDS_PER_SECOND
            self._producer.poll(max(0.0, due - time.perf_counter()))
            if time.perf_counter() >= due:
                self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=delivered)
                number += 1
        self._producer.flush(60)

    def end(self) -> None:
        self._ending.set()
        self.join(90)

    def longest_gap(self, since: float) -> float:
        """Seconds between two acknowledgements, at most, from the last one before `since` on."""
        return longest(self.acknowledged, since)


class Reader(threading.Thread):
    """Reads one partition as it grows: when records came."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.came: list[float] = []
        self._ending = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0}
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, 0, OFFSET_END)])

    def run(self) -> None:
        while not self._ending.is_set():
            message = self._consumer.poll(0.1)
            if message is not None and message.error() is None:
                self.came.append(time.perf_counter())
        self._consumer.close()

    def end(self) -> None:
        self._ending.set()
        self.join(30)


def longest(times: list[float], since: float) -> float:
    """Seconds between two of these times, at most, from the last one before `since` on."""
    counted = [at for at in times if at <= since][-1:] + [at for at in times if at > since]
    return max((after - at for at, after in itertools.pairwise(counted)), default=float("inf"))


def all_killed(brokers: BrokerSet) -> float:
    """All are killed at once and started again: the longest time without an acknowledgement."""
    ticker = Ticker(brokers.bootstrap, "gap")
    ticker.start()
    time.sleep(SETTLE_SECONDS)
    since = time.perf_counter()
    for node in brokers.pids:
        brokers.signal(node, signal.SIGKILL)
    brokers.restart_all()
    brokers.wait_until_in_sync("gap")
    time.sleep(SETTLE_SECONDS)
    ticker.end()
    return ticker.longest_gap(since)


def last_stopped(brokers: BrokerSet) -> float:
    """All are told to stop, one after the other: seconds until the last one has ended, which has no majority."""
    for node in brokers.pids:
        began = time.perf_counter()
        brokers.signal(node, signal.SIGTERM)
        wait_until_gone(brokers.pids[node])
    seconds = time.perf_counter() - began
    brokers.restart_all()
    brokers.wait_until_in_sync("gap")
    return seconds


def wiped(brokers: RaftlogSet) -> float:
    """A leader's disk is exchanged for an empty one: the longest time without a record for a consumer."""
    ticker, reader = Ticker(brokers.bootstrap, "gap"), Reader(brokers.bootstrap, "gap")
    ticker.start()
    reader.start()
    time.sleep(SETTLE_SECONDS)
    since = time.perf_counter()
    brokers.wipe(brokers.leader("gap"))
    brokers.wait_until_in_sync("gap")
    time.sleep(SETTLE_SECONDS)
    ticker.end()
    reader.end()
    return longest(reader.came, since)


def returns(sets: list[BrokerSet], rounds: int) -> list[Row]:
    """What clients wait for when all brokers die, or one comes back with an empty disk; and the end of the last one."""
    rows = {
        measure: Row(work, "s", higher_is_better=False)
        for measure, work in (
            (all_killed, "longest gap between acks, all killed at once and started again"),
            (last_stopped, "last of all told to stop (SIGTERM): until it has ended"),
            (wiped, "longest gap between records, leader killed and back with an empty disk"),
        )
    }
    for brokers in sets:
        create(brokers, "gap")
        # Kafka's own disks are formatted by hand.
        possible = {each: row for each, row in rows.items() if each is not wiped or isinstance(brokers, RaftlogSet)}
        for measure, row in [*possible.items()] * rounds:
            seconds = measure(brokers)
            row.samples.setdefault(brokers.name, []).append(Sample(seconds))
            progress(f"{row.work}: {brokers.name} {seconds:.3f} s")
    return list(rows.values())


def gap(brokers: BrokerSet, number: signal.Signals, topic: str, watch_seconds: float) -> float:
    """Do something to the leader of a partition; the longest time without an acknowledgement, in seconds."""
    brokers.wait_until_in_sync(topic)
    ticker = Ticker(brokers.bootstrap, topic)
    ticker.start()
    time.sleep(SETTLE_SECONDS)
    leader = brokers.leader(topic)
    since = time.perf_counter()
    brokers.signal(leader, number)
    if number == signal.SIGSTOP:
        time.sleep(STANDSTILL_SECONDS)
        brokers.signal(leader, signal.SIGCONT)
        time.sleep(watch_seconds)
    else:
        deadline = time.perf_counter() + 90
        time.sleep(watch_seconds)
        while ticker.longest_gap(since) == float("inf") and time.perf_counter() < deadline:
            time.sleep(0.1)
    ticker.end()
    found = ticker.longest_gap(since)
    if ticker.failed:
        progress(f"{brokers.name}: {ticker.failed} records were refused")
    if number != signal.SIGSTOP:
        brokers.restart(leader)
    brokers.wait_until_in_sync(topic)
    return found


def gaps(sets: list[BrokerSet], rounds: int) -> list[Row]:
    """The longest time without an acknowledgement after kill -9, SIGTERM and SIGSTOP of the leader."""
    rows = []
    for number, what, watch in (
        (signal.SIGKILL, "killed with -9", 3.0),
        (signal.SIGTERM, "told to stop (SIGTERM)", 3.0),
        (signal.SIGSTOP, f"standing still for {STANDSTILL_SECONDS:g} s (SIGSTOP)", 5.0),
    ):
        row = Row(f"longest gap between acks, leader {what}", "s", higher_is_better=False)
        for brokers in sets:
            create(brokers, "gap")
            times = 1 if number == signal.SIGSTOP else rounds
            for _ in range(times):
                seconds = gap(brokers, number, "gap", watch)
                row.samples.setdefault(brokers.name, []).append(Sample(seconds))
                progress(f"{row.work}: {brokers.name} {seconds:.3f} s")
        rows.append(row)
    return rows


def create(brokers: BrokerSet, topic: str, partitions: int = 1) -> None:
    """A topic with three replicas, unless it is there."""
    client = admin(brokers.bootstrap)
    if topic not in client.list_topics(timeout=10).topics:
        client.create_topics([NewTopic(topic, partitions, min(3, brokers.nodes))])[topic].result(60)
    brokers.wait_until_in_sync(topic)


def many_leaders(brokers: BrokerSet, count: int = 3000) -> float:
    """Kill the broker that leads `count` partitions; seconds until a client sees a new leader for each."""
    victim, others = 1, [2, 3]
    assignment = [[victim, *others]] * count
    client = admin(brokers.bootstrap)
    topic = NewTopic("many", count, replica_assignment=assignment)
    client.create_topics([topic], request_timeout=120)["many"].result(180)
    brokers.wait_until_in_sync("many", 300)
    elsewhere = ",".join(address for at, address in enumerate(brokers.bootstrap.split(","), 1) if at != victim)
    watcher = admin(elsewhere)
    watcher.list_topics("many", timeout=30)
    begin = time.perf_counter()
    brokers.signal(victim, signal.SIGKILL)
    while True:
        partitions = watcher.list_topics("many", timeout=30).topics["many"].partitions.values()
        if all(p.leader not in (victim, -1) for p in partitions):
            break
        if time.perf_counter() - begin > 120:
            raise TimeoutError("partitions have no leaders after two minutes")
    seconds = time.perf_counter() - begin
    brokers.restart(victim)
    return seconds


def leaders(sets: list[BrokerSet], count: int = 3000) -> Row:
    """One row of `many_leaders`."""
    row = Row(f"broker that leads {count:,} partitions killed: all have new leaders", "s", higher_is_better=False)
    for brokers in sets:
        row.samples[brokers.name] = [Sample(many_leaders(brokers, count))]
        progress(f"{row.work}: {brokers.name} {row.median(brokers.name):.2f} s")
    return row
