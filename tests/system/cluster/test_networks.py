"""Brokers in network namespaces of their own, cut off from each other both ways and one way."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.testing import BrokerProcess, Cluster
from raftlog.testing.clusters import development_settings
from tests.system.cluster.world import World, Writer
from tests.waiting import wait_until

_numbers = itertools.count(os.getpid() % 200)
PORT, PEER_PORT = 9092, 9192


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Network:
    """A bridge on this machine, and three namespaces with an address each."""

    def __init__(self) -> None:
        number = next(_numbers)
        self.bridge = f"rl{number}"
        self.prefix = f"10.{200 + number % 50}.{number % 250}"
        self.names = {node: f"{self.bridge}n{node}" for node in (1, 2, 3)}

    def address(self, node: int) -> str:
        return f"{self.prefix}.{node + 10}"

    def make(self) -> None:
        ip("link", "add", self.bridge, "type", "bridge")
        ip("addr", "add", f"{self.prefix}.1/24", "dev", self.bridge)
        ip("link", "set", self.bridge, "up")
        for node, name in self.names.items():
            ip("netns", "add", name)
            ip("link", "add", f"{name}v", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"{name}v", "master", self.bridge, "up")
            ip("-n", name, "addr", "add", f"{self.address(node)}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")

    def remove(self) -> None:
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
            subprocess.run(["ip", "link", "del", f"{name}v"], capture_output=True, check=False)
        subprocess.run(["ip", "link", "del", self.bridge], capture_output=True, check=False)

    def cut(self, sender: int, receiver: int) -> None:
        """From now on nothing that `sender` sends reaches `receiver`."""
        ip("-n", self.names[sender], "route", "add", "blackhole", f"{self.address(receiver)}/32")

    def heal(self) -> None:
        for node, name in self.names.items():
            for other in self.names:
                if other != node:
                    route = ["ip", "-n", name, "route", "del", "blackhole", f"{self.address(other)}/32"]
                    subprocess.run(route, capture_output=True, check=False)


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    made = Network()
    try:
        made.make()
    except (OSError, subprocess.CalledProcessError):
        made.remove()
        pytest.skip("needs the right to make network namespaces, and iproute2")
    yield made
    made.remove()


@pytest.fixture(scope="module")
def shared(network: Network, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory: Path = tmp_path_factory.mktemp("network")
    cluster = Cluster(1, directory)
    peers = ",".join(f"{node}@{network.address(node)}:{PEER_PORT}" for node in network.names)
    cluster.brokers = []
    for node, name in network.names.items():
        broker = BrokerProcess(
            node,
            directory / f"broker-{node}",
            host=network.address(node),
            port=PORT,
            # Two that both hear the quorum's leader are not fenced: only the ISR tells that one cannot reach the other.
            settings={**development_settings(3), "replica.lag.time.max.ms": "3000"},
            log_file=directory / f"broker-{node}.log",
            extra_arguments=["--peers", peers],
            python=("ip", "netns", "exec", name, sys.executable),
        )
        cluster.brokers.append(broker)
    cluster.start()
    yield World(cluster)
    cluster.kill()


@pytest.fixture
def world(shared: World, network: Network) -> Iterator[World]:
    yield shared
    network.heal()


def others(node: int) -> list[int]:
    return [each for each in (1, 2, 3) if each != node]


@pytest.mark.parametrize("direction", ["both ways", "sends nothing", "hears nothing"])
def test_a_leader_that_is_cut_off_from_the_others_is_replaced(
    world: World, network: Network, name: str, direction: str
) -> None:
    topic = world.create(name)
    with Writer(world.bootstrap, topic, request_timeout_ms=3000, socket_timeout_ms=3500) as writer:
        writer.wait_for_more()
        leader = world.leader(topic).node_id
        for other in others(leader):
            if direction != "hears nothing":
                network.cut(leader, other)
            if direction != "sends nothing":
                network.cut(other, leader)
        wait_until(
            lambda: any(each.leader not in (-1, leader) for each in seen_by(world, topic, others(leader))),
            "another broker leads",
        )
        writer.wait_for_more()
        network.heal()
        writer.wait_for_more()
    writer.check_no_errors()
    world.wait_until_in_sync(topic)
    world.check_nothing_lost(topic, writer)


def seen_by(world: World, topic: str, nodes: list[int]) -> list[object]:
    """The partitions as one of these brokers describes them."""
    from confluent_kafka.admin import AdminClient

    servers = ",".join(world.cluster.broker(node).address for node in nodes)
    return world.partitions(topic, AdminClient({"bootstrap.servers": servers, "log_level": 0}))


def test_a_bridge_between_two_that_do_not_see_each_other(world: World, network: Network, name: str) -> None:
    topic = world.create(name)
    with Writer(world.bootstrap, topic, request_timeout_ms=3000, socket_timeout_ms=3500) as writer:
        writer.wait_for_more()
        network.cut(1, 2)
        network.cut(2, 1)
        writer.wait_for_more(1000)
        network.heal()
        writer.wait_for_more()
    writer.check_no_errors()
    world.wait_until_in_sync(topic)
    world.check_nothing_lost(topic, writer)
