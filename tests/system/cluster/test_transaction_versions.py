"""Operators change transaction.version, down and up again, while clients of every kind have transactions open."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from raftlog.testing import cluster
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from tests import java
from tests.system.clients.confluent import producer
from tests.system.cluster.transactions import Copier, Step, Wire
from tests.system.cluster.world import World
from tests.waiting import wait_until

pytestmark = pytest.mark.long

SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
FEATURE = "transaction.version"
LEVELS = (0, 1, 2)
"""What the cluster, which begins with 2, is set to in turn."""
SAFE_DOWNGRADE = 2
DEADLINE_SECONDS = 60.0


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with cluster(3, settings=SETTINGS) as running:
        yield World(running)


def change(world: World, wire: Wire, level: int) -> None:
    """Set the level, and wait until every broker tells of it."""
    kind = 1 if level > finalized(wire, world.cluster.brokers[0].address) else SAFE_DOWNGRADE
    key = FeatureUpdateKey(feature=FEATURE, max_version_level=level, upgrade_type=kind)
    answer = wire.any(UpdateFeaturesRequest(feature_updates=[key]), 2)
    assert answer.error_code == ErrorCode.NONE, answer
    for broker in world.cluster.brokers:
        wait_until(lambda address=broker.address: finalized(wire, address) == level, f"it is {level}")  # type: ignore[misc]


def finalized(wire: Wire, address: str) -> int:
    ask = ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = wire.connection(address).ask(ask, 4)
    return next((each.max_version_level for each in answer.finalized_features if each.name == FEATURE), 0)


class Unmodified:
    """A producer of librdkafka with a transaction open."""

    def __init__(self, world: World, topic: str, kind: str) -> None:
        self.topic = topic
        self.bootstrap = world.bootstrap
        self.client: Producer = producer(world.bootstrap, transactional_id=f"{topic}-{kind}")
        self.client.init_transactions(DEADLINE_SECONDS)

    def begin(self, number: int) -> None:
        self.client.begin_transaction()
        self._write(0, number)

    def end(self, number: int, *, commits: bool) -> None:
        """More of it, and the offset that it stands for."""
        self._write(1, number)
        group = Consumer({"bootstrap.servers": self.bootstrap, "group.id": self.topic}).consumer_group_metadata()
        offset = TopicPartition(self.topic, 0, number + 1)
        self.client.send_offsets_to_transaction([offset], group, DEADLINE_SECONDS)
        (self.client.commit_transaction if commits else self.client.abort_transaction)(DEADLINE_SECONDS)

    def _write(self, partition: int, number: int) -> None:
        self.client.produce(self.topic, b"%d" % number, partition=partition)
        assert self.client.flush(DEADLINE_SECONDS) == 0


def test_transactions_that_are_open_while_the_version_changes_end_as_their_producers_say(
    world: World, name: str
) -> None:
    wire = Wire(world.bootstrap)
    ours = world.create(f"{name}-unmodified", 2)
    committing, aborting, lasting = (Unmodified(world, ours, kind) for kind in ("commits", "aborts", "lasts"))
    lasting.begin(99)
    copiers = {version: Copier(wire, world.create(f"{name}-{version}", 2), version=version) for version in (1, 2)}
    for number, level in enumerate(LEVELS):
        committing.begin(number)
        aborting.begin(50 + number)
        for copier in copiers.values():
            copier.begin()
            begun = [Step.ADD_PARTITIONS, Step.PRODUCE] if copier.version == 1 else [Step.PRODUCE]
            copier.go_on(number, begun)
        change(world, wire, level)
        aborting.end(50 + number, commits=False)
        committing.end(number, commits=True)
        for copier in copiers.values():
            copier.go_on(number, copier.steps()[copier.steps().index(Step.PRODUCE_MORE) :])
            assert wire.committed(copier.name, copier.name) == number + 1
        assert wire.committed(ours, ours) == number + 1
    lasting.end(99, commits=True)
    assert wire.visible(ours, 0) == [99, *range(len(LEVELS))]
    assert wire.visible(ours, 1) == [*range(len(LEVELS)), 99]
    assert wire.committed(ours, ours) == 100
    for copier in copiers.values():
        expected = list(range(len(LEVELS)))
        assert [wire.visible(copier.name, index) for index in (0, 1)] == [expected, expected]
    wire.close()


class TestJavaCopier:
    """Kafka's own transactional-message-copier, whose producer takes the version up that it is told."""

    pytestmark = [*java.marks, pytest.mark.slow]

    MESSAGES = 10_000

    def test_copies_exactly_once_while_the_version_changes(self, world: World, name: str) -> None:
        source, target = world.create(f"{name}-in"), world.create(f"{name}-out")
        wire = Wire(world.bootstrap)
        client = producer(world.bootstrap, linger_ms=5, queue_buffering_max_messages=2 * self.MESSAGES)
        for number in range(self.MESSAGES):
            client.produce(source, b"%d" % number, partition=0)
        assert client.flush(DEADLINE_SECONDS) == 0
        tool = java.Tool(
            "transactional-message-copier",
            *("--input-topic", source, "--input-partition", "0", "--output-topic", target),
            *("--broker-list", world.bootstrap, "--consumer-group", name, "--transactional-id", name),
            *("--transaction-size", "50", "--max-messages", "-1"),
            *("--group-mode", "--use-group-metadata", "--enable-random-aborts"),
        )
        for level in LEVELS * 2:
            before = wire.committed(name, source)
            wait_until(lambda before=before: wire.committed(name, source) > before, "it goes on", DEADLINE_SECONDS)  # type: ignore[misc]
            change(world, wire, level)
        assert wire.committed(name, source) < self.MESSAGES, "it was still copying"
        tool.finish()
        assert wire.committed(name, source) == self.MESSAGES
        assert wire.visible(target, 0) == list(range(self.MESSAGES))
        wire.close()
