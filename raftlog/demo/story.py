"""The demo from start to end: produce, kill the leaders, drain, and balance the books.

Everything is done with unmodified confluent-kafka: an idempotent producer, a group of two consumer processes that
commit, and at the end a reader of the whole log.
"""

from __future__ import annotations

import multiprocessing
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from raftlog.demo.accounts import Accounts, Kill
from raftlog.demo.display import Display
from raftlog.demo.flight_load import Load
from raftlog.demo.flights import Flight, row_of
from raftlog.demo.group_reader import CLIENT, GroupReader
from raftlog.testing import BrokerDied, BrokerProcess, Cluster

TOPIC = "flights"
GROUP = "arrivals-board"
PARTITIONS = 6
READERS = 2
REPLICAS_MAX = 3
KILLS_IN_A_CLUSTER = 2
TICK_SECONDS = 0.05
PRODUCE_CHUNK = 2000
TRICKLE = 20
"""Rows a tick while a killed broker is not yet in sync again: the next leader must not be killed before it is."""
STALL_SECONDS = 20.0
LOOK_SECONDS = 0.1


class Overdue(Exception):
    """The demo did not get on; the message says what it was waiting for."""


class Deadline:
    """The time the whole demo may take."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._seconds = seconds

    @property
    def left(self) -> float:
        return max(0.0, self._end - time.monotonic())

    def check(self, waiting_for: str) -> None:
        if time.monotonic() > self._end:
            raise Overdue(f"gave up after {self._seconds:g} s, waiting for {waiting_for}")


def admin_client(bootstrap: str) -> Any:
    from confluent_kafka.admin import AdminClient

    return AdminClient({"bootstrap.servers": bootstrap, **CLIENT})


def create_topic(admin: Any, replicas: int, deadline: Deadline) -> None:
    from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

    (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, replicas)]).values()
    try:
        created.result(timeout=deadline.left)
    except TimeoutError:
        deadline.check("the topic to be created")
        raise


def partitions_of(admin: Any) -> list[Any]:
    """The topic's partitions as a broker describes them; none while nobody answers."""
    from confluent_kafka import KafkaException

    try:
        topic = admin.list_topics(TOPIC, timeout=2).topics.get(TOPIC)
    except KafkaException:
        return []
    return [] if topic is None or topic.error is not None else list(topic.partitions.values())


class Restart(threading.Thread):
    """Starts a killed broker once the others have taken over, and ends when every replica is in sync again.

    In a thread, because the producer must be listened to meanwhile: it is the one that measures.
    """

    def __init__(
        self, broker: BrokerProcess, kill: Kill, admin: Any, replicas: int, get_on: Callable[[], bool]
    ) -> None:
        """`get_on`: whether the producer has got on since the kill."""
        super().__init__(name=f"restart of broker {broker.node_id}", daemon=True)
        self.failure: BrokerDied | None = None
        self._broker = broker
        self._kill = kill
        self._admin = admin
        self._replicas = replicas
        self._get_on = get_on

    def run(self) -> None:
        # With no other broker there is nobody to take over.
        end = time.monotonic() + (STALL_SECONDS if self._replicas > 1 else 0)
        while not self._get_on() and time.monotonic() < end:
            time.sleep(LOOK_SECONDS)
        began = time.monotonic()
        try:
            self._broker.start()
        except BrokerDied as died:
            self.failure = died
            return
        self._kill.restart = time.monotonic() - began
        while not self._in_sync():
            time.sleep(LOOK_SECONDS)

    def _in_sync(self) -> bool:
        found = partitions_of(self._admin)
        return len(found) == PARTITIONS and all(len(each.isrs) == self._replicas for each in found)


class Story:
    """The demo from start to end; `accounts` is filled in as it goes."""

    def __init__(self, flights: list[Flight], brokers: Cluster, deadline: Deadline, say: Callable[[str], None]) -> None:
        self._flights = flights
        self._brokers = brokers
        self._deadline = deadline
        self._say = say
        self._display: Display | None = None
        context = multiprocessing.get_context("spawn")
        bootstrap = brokers.bootstrap_servers
        self._replicas = min(len(brokers.brokers), REPLICAS_MAX)
        self._kills = KILLS_IN_A_CLUSTER if self._replicas == REPLICAS_MAX else 1
        self._admin = admin_client(bootstrap)
        self._readers = [GroupReader(context, len(flights), bootstrap, TOPIC, GROUP) for _ in range(READERS)]
        self._load = Load(bootstrap, TOPIC)
        self._restart: Restart | None = None
        self._began = 0.0
        self.accounts = Accounts(
            rows=len(flights), bytes=sum(len(each.value) for each in flights), brokers=len(brokers.brokers)
        )

    @property
    def _consumed(self) -> int:
        return sum(reader.tally.count for reader in self._readers)

    def run(self, display: Display) -> None:
        self._display = display
        create_topic(self._admin, self._replicas, self._deadline)
        for reader in self._readers:
            reader.start()
        try:
            while not all(reader.tally.assigned for reader in self._readers):
                self._tick("both consumers to be given partitions")
            self._say(
                f"topic {TOPIC}: {PARTITIONS} partitions, replication factor {self._replicas}; "
                f"group {GROUP}: {READERS} consumer processes"
            )
            self._produce_and_kill()
            self._drain()
        finally:
            for reader in self._readers:
                reader.stop(timeout=min(10.0, self._deadline.left + 1))
        self._close_accounts()

    def _produce_and_kill(self) -> None:
        self._began = time.monotonic()
        sent = 0
        while sent < len(self._flights) or self._load.waiting:
            sent += self._load.send(self._flights[sent : sent + self._chunk(sent)])
            self._tick(f"the producer ({self._load.acknowledged:,} of {len(self._flights):,} acknowledged)")
            due = len(self._flights) * (len(self.accounts.kills) + 1) // (self._kills + 1)
            is_due = len(self.accounts.kills) < self._kills and self._load.acknowledged >= due
            if is_due and self._consumed and self._is_well():
                self._kill_leader()
        self.accounts.produce_seconds = time.monotonic() - self._began
        while not self._is_well():
            self._tick("every replica to be in sync again")
        if self.accounts.kills:  # few rows may all be acknowledged before one was consumed
            self.accounts.kills[-1].pause = self._load.pause_since_mark

    def _chunk(self, sent: int) -> int:
        """How many rows to send now: a trickle when the next kill is due and cannot be yet."""
        if len(self.accounts.kills) >= self._kills:
            return PRODUCE_CHUNK
        share = len(self._flights) // (self._kills + 1)
        due = share * (len(self.accounts.kills) + 1)
        if sent < due + share // 4:
            return PRODUCE_CHUNK
        # What is left for the kill to come must not run out while the one before is being mended, nor before anything
        # was consumed.
        keeps = sent < len(self._flights) - share // 4
        return TRICKLE if keeps and self._load.acknowledged >= due else 0

    def _is_well(self) -> bool:
        """Whether no restart is under way."""
        if self._restart is None or self._restart.is_alive():
            return self._restart is None
        if self._restart.failure is not None:
            raise self._restart.failure
        kill = self.accounts.kills[-1]
        self._say(f"broker {kill.broker} serves again {kill.restart * 1000:,.0f} ms after its start, and is in sync")
        self._restart = None
        return True

    def _kill_leader(self) -> None:
        if self.accounts.kills:
            self.accounts.kills[-1].pause = self._load.pause_since_mark
        leads = Counter(each.leader for each in partitions_of(self._admin))
        victim = self._brokers.broker(max(sorted(leads), key=lambda node: leads[node]) if leads else 1)
        kill = Kill(victim.node_id, self._load.acknowledged, self._consumed)
        self.accounts.kills.append(kill)
        self._load.mark()
        victim.kill()
        self._say(
            f"killed broker {kill.broker} with -9, the leader of {leads[kill.broker]} of {PARTITIONS} partitions, "
            f"at {kill.acknowledged:,} acknowledged, {kill.consumed:,} consumed"
        )
        enough = kill.acknowledged + PRODUCE_CHUNK
        get_on = self._load
        self._restart = Restart(
            victim, kill, self._admin, self._replicas, lambda: get_on.acknowledged > enough or not get_on.waiting
        )
        self._restart.start()

    def _drain(self) -> None:
        """Wait until every row was consumed, or nothing has come for so long that nothing will."""
        last, since = -1, time.monotonic()
        while self._missing_rows():
            if self._consumed != last:
                last, since = self._consumed, time.monotonic()
            if time.monotonic() - since > STALL_SECONDS:
                self._say(f"nothing was consumed for {STALL_SECONDS:g} s; counting what is missing")
                break
            self._tick(f"the consumers ({self._consumed:,} of {len(self._flights):,} read)")
        self.accounts.consume_seconds = time.monotonic() - self._began

    def _missing_rows(self) -> int:
        if self._consumed < len(self._flights):
            return len(self._flights) - self._consumed
        return merged(self._readers).count(0)

    def _tick(self, waiting_for: str) -> None:
        self._deadline.check(waiting_for)
        if any(reader.failed for reader in self._readers):
            raise Overdue("a consumer process ended early")
        busy = self._load.waiting
        self._load.listen(TICK_SECONDS if busy else 0)
        if not busy:
            time.sleep(TICK_SECONDS)
        assert self._display is not None
        self._display.update(produced=self._load.acknowledged, consumed=self._consumed)

    def _close_accounts(self) -> None:
        accounts = self.accounts
        accounts.acknowledged, accounts.failed = self._load.acknowledged, self._load.failed
        accounts.produce_pause = self._load.longest_pause
        accounts.consumed = self._consumed
        accounts.consume_pause = max(reader.tally.longest_pause for reader in self._readers)
        accounts.commits = sum(reader.tally.commits for reader in self._readers)
        seen = merged(self._readers)
        accounts.never_consumed = seen.count(0)
        accounts.consumed_twice = sum(count - 1 for count in seen if count > 1)
        accounts.in_log, accounts.committed = read_back(self._brokers.bootstrap_servers, self._deadline)


def merged(readers: list[GroupReader]) -> bytearray:
    """How often each row was seen, by all readers together (at most 255 times)."""
    return bytearray(min(255, sum(counts)) for counts in zip(*(reader.tally.seen for reader in readers), strict=True))


def read_back(bootstrap: str, deadline: Deadline) -> tuple[Counter[int], int]:
    """Every row that is in the log, with how often, and the sum of the group's committed offsets."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "enable.auto.commit": False, **CLIENT})
    partitions = [TopicPartition(TOPIC, index, OFFSET_BEGINNING) for index in range(PARTITIONS)]
    committed = sum(max(0, each.offset) for each in consumer.committed(partitions, timeout=10))
    ends = [consumer.get_watermark_offsets(each, timeout=10)[1] for each in partitions]
    rows: Counter[int] = Counter()
    consumer.assign(partitions)
    while sum(rows.values()) < sum(ends):
        deadline.check(f"the log to be read back ({sum(rows.values()):,} of {sum(ends):,})")
        messages = consumer.consume(5000, 0.2)
        rows.update(row_of(message.value() or b"") for message in messages if message.error() is None)
    consumer.close()
    return rows, committed
