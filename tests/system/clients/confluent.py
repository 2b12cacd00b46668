"""confluent-kafka (librdkafka) for tests: producing, consuming and waiting, each with a deadline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

DEADLINE_SECONDS = 45.0
POLL_SECONDS = 0.1

Settings = dict[str, Any]

# A client that lost its broker tries again at once, and not after ten seconds.
QUICK: Settings = {"reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 300}


def producer(bootstrap_servers: str, **settings: Any) -> Producer:
    """Settings by librdkafka's names, with _ for the dots."""
    return Producer({"bootstrap.servers": bootstrap_servers, **QUICK, **dotted(settings)})


def dotted(settings: dict[str, Any]) -> Settings:
    return {key.replace("_", "."): value for key, value in settings.items()}


class Deliveries:
    """What became of each message that was produced with `on_delivery=deliveries`."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.errors: list[KafkaError] = []

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        else:
            self.messages.append(message)


def produce(bootstrap_servers: str, topic: str, records: Iterable[dict[str, Any]], **settings: Any) -> Deliveries:
    """Produce records (keyword arguments of Producer.produce) and wait until all are acknowledged."""
    client = producer(bootstrap_servers, **settings)
    deliveries = Deliveries()
    for record in records:
        client.produce(topic, on_delivery=deliveries, **record)
    left = client.flush(DEADLINE_SECONDS)
    assert left == 0, f"{left} records were not acknowledged in time"
    assert not deliveries.errors, deliveries.errors[:3]
    return deliveries


@contextmanager
def consumer(bootstrap_servers: str, group: str = "assigned-by-hand", **settings: Any) -> Iterator[Consumer]:
    """A consumer that begins at the beginning and commits when it is told to."""
    client = Consumer({
        "bootstrap.servers": bootstrap_servers,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "fetch.wait.max.ms": 100,
        **QUICK,
        **dotted(settings),
    })  # fmt: skip
    try:
        yield client
    finally:
        client.close()


def poll(client: Consumer, enough: Callable[[list[Message]], bool], *, idle: bool = False) -> list[Message]:
    """Messages until there are enough; fails at the deadline. `idle`: no message is needed for the condition."""
    messages: list[Message] = []
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not enough(messages):
        assert time.monotonic() < deadline, f"only {len(messages)} messages came in {DEADLINE_SECONDS:g} s"
        message = client.poll(POLL_SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            messages.append(message)
        else:
            assert error.retriable() or error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT), error
    return messages


def take(client: Consumer, count: int) -> list[Message]:
    """The next `count` messages."""
    return poll(client, lambda messages: len(messages) >= count)


def read_all(bootstrap_servers: str, topic: str, count: int, *, partitions: int = 1, **settings: Any) -> list[Message]:
    """`count` messages from the start of the partitions, without a group."""
    with consumer(bootstrap_servers, **settings) as client:
        client.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
        return take(client, count)
