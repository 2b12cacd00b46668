"""`make demo`: a year of flights through a broker that is killed in the middle, and the books balanced afterwards.

Everything is done with unmodified confluent-kafka: an idempotent producer, a group of two consumer processes that
commit, and at the end a reader of the whole log. Knows the story and the accounts; refuses to know how a broker is
started (raftlog.testing) or a flight looks (flights.py).

Exit code 0 only when nothing that was acknowledged is missing and nothing is in the log twice.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from raftlog.pipeline.jobs.display import Display
from raftlog.pipeline.jobs.flights import Flight, load, row_of
from raftlog.pipeline.jobs.group_reader import CLIENT, GroupReader
from raftlog.testing import BrokerDied, Cluster, cluster

TOPIC = "flights"
GROUP = "arrivals-board"
PARTITIONS = 6
READERS = 2
TICK_SECONDS = 0.05
PRODUCE_CHUNK = 2000
STALL_SECONDS = 20.0


class Overdue(Exception):
    """The demo did not get on; the message says what it was waiting for."""


@dataclass
class Accounts:
    """What was counted. Times in seconds."""

    rows: int = 0
    bytes: int = 0
    broker_start: float = 0.0
    broker_restart: float = 0.0
    killed_at_acknowledged: int = 0
    killed_at_consumed: int = 0
    acknowledged: int = 0
    failed: int = 0
    produce_seconds: float = 0.0
    produce_pause: float = 0.0
    consumed: int = 0
    consume_seconds: float = 0.0
    consume_pause: float = 0.0
    commits: int = 0
    committed: int = 0
    in_log: Counter[int] = field(default_factory=Counter)
    consumed_twice: int = 0
    never_consumed: int = 0

    @property
    def lost(self) -> int:
        """Rows that are not in the log although every row was acknowledged in the end."""
        return self.rows - len(self.in_log)

    @property
    def twice_in_log(self) -> int:
        return sum(count - 1 for count in self.in_log.values())

    @property
    def balanced(self) -> bool:
        wrong = self.lost or self.twice_in_log or self.never_consumed or self.failed
        return not wrong and self.committed == len(self.in_log)


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


class Load:
    """The producer, and what it has heard back."""

    def __init__(self, bootstrap: str) -> None:
        from confluent_kafka import Producer

        self.acknowledged = 0
        self.failed = 0
        self.longest_pause = 0.0
        self._last = 0.0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 10,
                "compression.type": "lz4",
                **CLIENT,
            }
        )

    def _delivered(self, error: Any, _message: Any) -> None:
        now = time.monotonic()
        if error is not None:
            self.failed += 1
            return
        if self.acknowledged:
            self.longest_pause = max(self.longest_pause, now - self._last)
        self.acknowledged += 1
        self._last = now

    def send(self, flights: list[Flight]) -> int:
        """Queue as many as the client takes now; says how many."""
        for count, flight in enumerate(flights):
            try:
                self._producer.produce(TOPIC, key=flight.key, value=flight.value, on_delivery=self._delivered)
            except BufferError:
                return count
        return len(flights)

    def listen(self, seconds: float = 0.0) -> None:
        self._producer.poll(seconds)

    @property
    def waiting(self) -> int:
        return len(self._producer)


def create_topic(bootstrap: str, deadline: Deadline) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": bootstrap, **CLIENT})
    (created,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)]).values()
    try:
        created.result(timeout=deadline.left)
    except TimeoutError:
        deadline.check("the topic to be created")
        raise


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
        self._readers = [GroupReader(context, len(flights), bootstrap, TOPIC, GROUP) for _ in range(READERS)]
        self._load = Load(bootstrap)
        self.accounts = Accounts(rows=len(flights), bytes=sum(len(each.value) for each in flights))

    @property
    def _consumed(self) -> int:
        return sum(reader.tally.count for reader in self._readers)

    def run(self, display: Display) -> None:
        self._display = display
        create_topic(self._brokers.bootstrap_servers, self._deadline)
        for reader in self._readers:
            reader.start()
        try:
            while not all(reader.tally.assigned for reader in self._readers):
                self._tick("both consumers to be given partitions")
            self._say(f"topic {TOPIC}: {PARTITIONS} partitions; group {GROUP}: {READERS} consumer processes")
            self._produce_and_kill()
            self._drain()
        finally:
            for reader in self._readers:
                reader.stop(timeout=min(10.0, self._deadline.left + 1))
        self._close_accounts()

    def _produce_and_kill(self) -> None:
        began = time.monotonic()
        sent, killed = 0, False
        while sent < len(self._flights) or self._load.waiting:
            sent += self._load.send(self._flights[sent : sent + PRODUCE_CHUNK])
            self._tick(f"the producer ({self._load.acknowledged:,} of {len(self._flights):,} acknowledged)")
            if not killed and self._load.acknowledged >= len(self._flights) // 3 and self._consumed:
                self._kill_and_restart()
                killed = True
        self.accounts.produce_seconds = time.monotonic() - began
        self._began = began

    def _kill_and_restart(self) -> None:
        accounts = self.accounts
        (broker,) = self._brokers.brokers
        accounts.killed_at_acknowledged, accounts.killed_at_consumed = self._load.acknowledged, self._consumed
        broker.kill()
        self._say(
            f"killed the broker with -9 at {accounts.killed_at_acknowledged:,} acknowledged, "
            f"{accounts.killed_at_consumed:,} consumed"
        )
        began = time.monotonic()
        broker.start()
        accounts.broker_restart = time.monotonic() - began
        self._say(f"it serves again after {accounts.broker_restart * 1000:,.0f} ms, same port, same data directory")

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


def report(accounts: Accounts) -> str:
    megabytes = accounts.bytes / 1e6
    lines = [
        ("produced", f"{accounts.acknowledged:,} records acknowledged, {megabytes:.0f} MB, "
                     f"{accounts.acknowledged / accounts.produce_seconds:,.0f} records/s"),
        ("consumed", f"{accounts.consumed:,} records in {accounts.commits} commits, "
                     f"{accounts.consumed / accounts.consume_seconds:,.0f} records/s"),
        ("lost", f"{accounts.lost + accounts.never_consumed} "
                 f"({accounts.lost} not in the log, {accounts.never_consumed} never consumed)"),
        ("twice", f"{accounts.twice_in_log} in the log, {accounts.consumed_twice} consumed again after the crash "
                  "(allowed since the last commit)"),
        ("committed", f"offset {accounts.committed:,} of {sum(accounts.in_log.values()):,}"),
        ("longest pause", f"{accounts.produce_pause:.2f} s between acknowledgements, "
                          f"{accounts.consume_pause:.2f} s between records consumed"),
        ("broker", f"serves {accounts.broker_start * 1000:,.0f} ms after its start, "
                   f"{accounts.broker_restart * 1000:,.0f} ms after kill -9 and start"),
    ]  # fmt: skip
    return "\n".join(f"{name:>14}  {text}" for name, text in lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--timeout", type=float, default=180.0, metavar="SECONDS", help="give up after (default 180)")
    parser.add_argument("--rows", type=int, metavar="N", help="only the first N flights")
    options = parser.parse_args(arguments)
    deadline = Deadline(options.timeout)
    print("reading the flights ...", flush=True)
    try:
        flights = load(options.rows)
        began = time.monotonic()
        with cluster() as brokers:
            started = time.monotonic() - began
            with Display(["produced", "consumed"], len(flights)) as display:
                display.say(
                    f"{len(flights):,} flights; broker at {brokers.bootstrap_servers} "
                    f"serves {started * 1000:,.0f} ms after its start"
                )
                story = Story(flights, brokers, deadline, display.say)
                story.accounts.broker_start = started
                story.run(display)
    except ImportError as error:
        print(f"demo: {error}; pip install 'raftlog[demo]' brings what it needs", file=sys.stderr)
        return 2
    except (BrokerDied, Overdue) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(report(story.accounts))
    print("nothing was lost" if story.accounts.balanced else "THE BOOKS DO NOT BALANCE")
    return 0 if story.accounts.balanced else 1


if __name__ == "__main__":
    raise SystemExit(main())
