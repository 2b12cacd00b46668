"""Unmodified clients against three brokers: partitions spread over them, groups and offsets kept through a failover."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Consumer, TopicPartition

from raftlog.broker.core.coordinator.shared import coordinator_partition
from raftlog.testing import BrokerProcess
from tests import java
from tests.system.clients.confluent import consumer, produce, read_all, take
from tests.system.clients.test_aiokafka import consuming, producing
from tests.system.clients.test_aiokafka import take as take_async
from tests.system.clients.test_kafka_python import consumer as kafka_python_consumer
from tests.system.clients.test_kafka_python import producer as kafka_python_producer
from tests.system.clients.test_kafka_python import take as take_kafka_python
from tests.system.cluster.world import World
from tests.waiting import wait_until

RECORDS = 300
PARTITIONS = 6


def values(name: str) -> list[bytes]:
    return [f"{name}-{number}".encode() for number in range(RECORDS)]


def test_leaders_are_spread_and_every_broker_says_the_same(world: World, name: str) -> None:
    world.create(name, PARTITIONS)
    leaders = [each.leader for each in world.described(name)]
    assert {leaders.count(node) for node in (1, 2, 3)} == {PARTITIONS // 3}
    first, second, third = world.cluster.brokers
    wait_until(lambda: said_by(first, name) == said_by(second, name) == said_by(third, name), "all say the same")
    brokers, partitions = said_by(first, name)
    assert brokers == {broker.node_id: broker.address for broker in world.cluster.brokers}
    assert [leader for leader, _, _ in partitions] == leaders


def said_by(broker: BrokerProcess, topic: str) -> tuple[dict[int, str], list[tuple[int, list[int], list[int]]]]:
    """The brokers, and the topic's leaders, replicas and ISRs, as this one knows them."""
    metadata = Consumer({"bootstrap.servers": broker.address, "group.id": "none"}).list_topics(topic, 10)
    brokers = {node: f"{each.host}:{each.port}" for node, each in metadata.brokers.items()}
    partitions = metadata.topics[topic].partitions.values()
    return brokers, [(each.leader, each.replicas, sorted(each.isrs)) for each in partitions]


def test_confluent_kafka_produces_and_consumes(world: World, name: str) -> None:
    world.create(name, PARTITIONS)
    records = [{"value": value, "partition": number % PARTITIONS} for number, value in enumerate(values(name))]
    produce(world.bootstrap, name, records, enable_idempotence=True)
    found = read_all(world.bootstrap, name, RECORDS, partitions=PARTITIONS)
    assert sorted(message.value() or b"" for message in found) == sorted(values(name))
    world.check_replicas_are_identical(name, PARTITIONS)


async def test_aiokafka_produces_and_consumes_in_a_group(world: World, name: str) -> None:
    world.create(name, PARTITIONS)
    async with producing(world.bootstrap, acks="all", enable_idempotence=True) as client:
        for value in values(name):
            await client.send(name, value)
    async with consuming(world.bootstrap, name, group_id=f"{name}-group") as client:
        received = await take_async(client, RECORDS)
        await client.commit()
    assert sorted(record.value for record in received) == sorted(values(name))


async def test_aiokafka_finds_its_committed_offset_when_it_asks_a_broker_that_coordinates_no_more(
    world: World, name: str
) -> None:
    world.create(name)
    partition = AioTopicPartition(name, 0)
    async with consuming(world.bootstrap, group_id=f"{name}-group") as client:
        client.assign([partition])
        await client.commit({partition: 7})
        with coordinator_elsewhere(world, f"{name}-group"):
            assert await client.committed(partition) == 7


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_produces_and_consumes_in_a_group(world: World, name: str) -> None:
    world.create(name, PARTITIONS)
    with closing(kafka_python_producer(world.bootstrap, acks="all", enable_idempotence=True)) as client:
        for value in values(name):
            client.send(name, value)
        client.flush(30)
    with closing(kafka_python_consumer(world.bootstrap, name, group_id=f"{name}-group")) as client:
        received = take_kafka_python(client, RECORDS)
        client.commit()
    assert sorted(record.value for record in received) == sorted(values(name))


def test_committed_offsets_outlive_the_coordinator(world: World, name: str) -> None:
    world.create(name)
    group = f"{name}-group"
    produce(world.bootstrap, name, [{"value": value} for value in values(name)])
    with consumer(world.bootstrap, group, session_timeout_ms=6000, heartbeat_interval_ms=300) as client:
        client.subscribe([name])
        take(client, RECORDS // 2)
        client.commit(asynchronous=False)
        world.wait_until_in_sync("__consumer_offsets")
        with world.client() as connected:
            coordinator = connected.admin.coordinator(group)
        world.cluster.broker(coordinator).kill()
        # The member goes on at the new coordinator, without a rebalance that would show as an error.
        rest = take(client, RECORDS // 2)
        client.commit(asynchronous=False)
        with world.client() as connected:
            assert connected.admin.coordinator(group) != coordinator
    assert [message.value() for message in rest] == values(name)[RECORDS // 2 :]
    world.restore()
    with consumer(world.bootstrap, group) as client:
        (committed,) = client.committed([TopicPartition(name, 0)], timeout=30)
    assert committed.offset == RECORDS


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_confluent_kafka_goes_on_when_it_asks_a_broker_for_offsets_that_coordinates_no_more(
    world: World, name: str, isolation: str
) -> None:
    world.create(name)
    group = f"{name}-group"
    produce(world.bootstrap, name, [{"value": value} for value in values(name)])
    with consumer(world.bootstrap, group, isolation_level=isolation) as client:
        client.commit(offsets=[TopicPartition(name, 0, 7)], asynchronous=False)
        with coordinator_elsewhere(world, group):
            client.assign([TopicPartition(name, 0)])
            assert [message.offset() for message in take(client, 1)] == [7]


@contextmanager
def coordinator_elsewhere(world: World, group: str) -> Iterator[None]:
    """Within the block the replica that coordinated the group is none any more."""
    with world.client() as client:
        coordinator = client.admin.coordinator(group)
        partitions = client.admin.topic("__consumer_offsets").partitions
        index = coordinator_partition(group, len(partitions))
        (replicas,) = [each.replica_nodes for each in partitions if each.partition_index == index]
        partition = "__consumer_offsets", index
        client.admin.reassign({partition: [each for each in replicas if each != coordinator]})
        wait_until(lambda: not client.admin.reassignments(), "the coordinator has moved")
        try:
            yield
        finally:
            client.admin.reassign({partition: replicas})
            wait_until(lambda: not client.admin.reassignments(), "the replica is back")


class TestJava:
    """Kafka's own tools."""

    pytestmark: Any = java.marks

    def test_console_tools_and_a_failover(self, world: World, name: str) -> None:
        world.create(name, PARTITIONS)
        lines = [value.decode() for value in values(name)]
        server = ("--bootstrap-server", world.bootstrap, "--topic", name)
        java.run("console-producer", *server, "--producer-property", "acks=all", stdin="\n".join(lines) + "\n")
        victim = world.leader(name)
        victim.kill()
        wait_until(
            lambda: {-1, victim.node_id}.isdisjoint([each.leader for each in world.partitions(name)] or [-1]),
            "new leaders",
        )
        limits = ("--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "60000")
        consumed = java.run("console-consumer", *server, *limits)
        assert sorted(consumed.split()) == sorted(lines)

    def test_the_quorum_is_described(self, world: World) -> None:
        server = ("--bootstrap-server", world.bootstrap)
        status = java.run("metadata-quorum", *server, "describe", "--status")
        said = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        assert said["LeaderId"].strip() == str(world.quorum().leader)
        assert said["CurrentVoters"].count('"id"') == 3

    def test_partitions_are_described_and_given_to_their_preferred_leaders(self, world: World, name: str) -> None:
        world.create(name, PARTITIONS)
        server = ("--bootstrap-server", world.bootstrap)
        world.cluster.broker(2).restart()
        world.wait_until_in_sync(*world.admin().list_topics(timeout=10).topics)
        java.run("leader-election", *server, "--election-type", "preferred", "--all-topic-partitions")
        described = java.run("topics", *server, "--describe", "--topic", name)
        leaders = [line.split("Leader: ")[1].split()[0] for line in described.splitlines() if "Leader: " in line]
        preferred = [line.split("Replicas: ")[1].split(",")[0] for line in described.splitlines() if "Leader: " in line]
        assert leaders == preferred and len(leaders) == PARTITIONS

    def test_a_partition_is_moved_with_a_throttle_that_is_lifted_afterwards(
        self, world: World, name: str, tmp_path: Path
    ) -> None:
        world.create(name)
        before = world.described(name)[0].replicas
        plan = tmp_path / "plan.json"
        replicas = before[:0:-1]
        plan.write_text(
            json.dumps({"version": 1, "partitions": [{"topic": name, "partition": 0, "replicas": replicas}]})
        )
        tool = ("reassign-partitions", "--bootstrap-server", world.bootstrap, "--reassignment-json-file", str(plan))
        begun = java.run(*tool, "--execute", "--throttle", "1000000")
        assert "The inter-broker throttle limit was set to 1000000 B/s" in begun
        wait_until(lambda: [each.replicas for each in world.partitions(name)] == [replicas], "the partition is moved")
        done = java.run(*tool, "--verify")
        assert f"Reassignment of partition {name}-0 is completed." in done
        assert "Clearing broker-level throttles on brokers 1,2,3" in done
        described = java.run("topics", "--bootstrap-server", world.bootstrap, "--describe", "--topic", name)
        assert "throttled" not in described and f"Replicas: {','.join(map(str, replicas))}" in described

    def test_features_are_described(self, world: World) -> None:
        described = java.run("features", "--bootstrap-server", world.bootstrap, "describe")
        lines = [line.split() for line in described.splitlines() if line.startswith("Feature: ")]
        levels = {words[1]: words[words.index("FinalizedVersionLevel:") + 1] for words in lines}
        assert levels == {"group.version": "1", "raftlog.metadata.version": "1", "transaction.version": "2"}
