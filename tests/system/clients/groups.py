"""What the group tests of all clients share: a broker that can be killed, topics, and waiting for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from raftlog.testing import BrokerProcess
from raftlog.testing.clusters import DEVELOPMENT_SETTINGS

DEADLINE_SECONDS = 60.0


class Polled(Protocol):
    def poll(self) -> None: ...


def poll_together(members: Sequence[Polled]) -> None:
    """One poll of each, all at the same time.

    kafka-python throws an assignment away that comes between two polls, and joins again: members that are polled in
    turns can go on so for ever.
    """
    with ThreadPoolExecutor(len(members)) as pool:
        for polled in [pool.submit(member.poll) for member in members]:
            polled.result()


@contextmanager
def broker_of_our_own(directory: Path, **settings: str) -> Iterator[BrokerProcess]:
    """A broker with short sessions, for tests that stop or kill it. Setting names with underscores."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    broker = BrokerProcess(
        1,
        directory / "data",
        settings={**DEVELOPMENT_SETTINGS, "group.min.session.timeout.ms": "100", **given},
        log_file=directory / "broker.log",
    )
    broker.start()
    try:
        yield broker
    finally:
        broker.kill()


def fresh_name(what: str) -> str:
    """A name that no other test uses."""
    return f"{what}-{uuid4().hex[:8]}"


def make_topic(bootstrap_servers: str, partitions: int, records: int = 0) -> str:
    """A new topic with `records` numbered records in each partition."""
    name = fresh_name("topic")
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    for future in admin.create_topics([NewTopic(name, partitions, 1)]).values():
        future.result(DEADLINE_SECONDS)
    produce(bootstrap_servers, name, partitions, range(records))
    return name


def produce(bootstrap_servers: str, topic: str, partitions: int, numbers: range) -> None:
    """The numbers, as text, into every partition."""
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for partition in range(partitions):
        for number in numbers:
            producer.produce(topic, str(number).encode(), partition=partition)
    assert producer.flush(DEADLINE_SECONDS) == 0


def until(condition: Callable[[], Any], what: str = "") -> Any:
    """The first true value of `condition`, which should take its time itself (a poll)."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not (value := condition()):
        assert time.monotonic() < deadline, what or "it did not come about"
    return value
