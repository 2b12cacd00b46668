"""Brokers in three racks, and consumers of librdkafka that say in which one they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from raftlog.testing import Cluster
from tests.system.cluster.world import DEADLINE_SECONDS, World
from tests.waiting import wait_until

pytestmark = pytest.mark.long

RACKS = ("a", "b", "c")
PARTITIONS = 6
SETTINGS = {
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("racks")
    running = Cluster(len(RACKS), directory, settings=SETTINGS)
    for broker, rack in zip(running.brokers, RACKS, strict=True):
        broker.settings["broker.rack"] = rack
    try:
        running.start()
        yield World(running)
        running.stop()
    finally:
        running.kill()
        running.close()


def create(world: World, name: str, placed: list[list[int]]) -> None:
    """A topic with its replicas on these brokers."""
    admin = world.admin()
    new = NewTopic(name, len(placed), replica_assignment=placed)
    admin.create_topics([new])[name].result(DEADLINE_SECONDS)


def assigned(consumer: Consumer, topic: str) -> set[int]:
    consumer.poll(0.02)
    return {each.partition for each in consumer.assignment() if each.topic == topic}


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_new_topic_is_given_to_members_with_a_replica_in_their_rack(world: World, name: str, replicas: int) -> None:
    """Kafka's uniform assignor leaves racks aside (4.3.1)."""
    before = f"{name}-before"
    create(world, before, [[broker] for broker in (1, 2, 3)])
    placed = [[(index + each) % len(RACKS) + 1 for each in range(replicas)] for index in range(PARTITIONS)]
    racks = [{RACKS[broker - 1] for broker in brokers} for brokers in placed]
    with ExitStack() as closing:
        consumers: dict[str, Consumer] = {}
        for rack in RACKS:
            consumers[rack] = Consumer({
                "bootstrap.servers": world.bootstrap, "group.id": name, "group.protocol": "consumer",
                "client.rack": rack, "topic.metadata.refresh.interval.ms": 500, "log_level": 0,
            })  # fmt: skip
            closing.callback(consumers[rack].close)
            consumers[rack].subscribe([before, name])

        def have_each(topic: str, count: int) -> bool:
            # All of them are polled each time: one that has too many gives nothing up otherwise.
            return [len(assigned(each, topic)) for each in consumers.values()] == [count] * len(consumers)

        wait_until(lambda: have_each(before, 1), "all are members")
        create(world, name, placed)
        wait_until(lambda: have_each(name, 2), "the new topic is shared")
        owned = {rack: assigned(consumer, name) for rack, consumer in consumers.items()}
    assert set().union(*owned.values()) == set(range(PARTITIONS))
    far = {rack: [index for index in owned[rack] if rack not in racks[index]] for rack in RACKS}
    assert not any(far.values()), f"without a replica in its rack: {far}"
