"""Several controllers in one process on a real quorum over loopback: no partition logs, no Kafka listeners.

A node that is `killed` lets go of its connections without a word; one that `hangs` keeps them and says nothing.
"""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from types import TracebackType

from raftlog.broker.config import BrokerConfig
from raftlog.broker.platform import Platform
from raftlog.broker.runtime.controller import Controller
from raftlog.broker.runtime.controller_duties import ControllerDuties, DutySettings
from raftlog.broker.runtime.lifecycle import BrokerLifecycle, LifecycleSettings, State
from raftlog.broker.runtime.opening import open_controller, random_id
from raftlog.metadata.commands import CreateTopics, NewTopic, RegisterBroker, TopicResult
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage, PartitionState
from raftlog.metadata.records import Endpoint
from raftlog.testing.ports import ReservedPort
from tests.waiting import DEADLINE_SECONDS, until

SESSION_MS = 1000
HEARTBEAT_SECONDS = 0.05


class Node:
    """A broker as far as the cluster's metadata go."""

    def __init__(self, world: World, node_id: int, *, directories: tuple[bytes, ...] = ()) -> None:
        self.world = world
        self.node_id = node_id
        self.directories = directories
        self.lifecycle: BrokerLifecycle | None = None
        self.tasks: set[object] = set()
        self.offline: tuple[bytes, ...] = ()
        self.deltas: list[MetadataDelta] = []
        settings = {
            "node.id": str(node_id),
            "log.dirs": str(world.directory / str(node_id)),
            "listeners": f"PLAINTEXT://127.0.0.1:{10_000 + node_id}",
            "controller.quorum.voters": world.voters,
            "min.insync.replicas": "2",
        }
        self.config = BrokerConfig(settings)
        Path(self.config.metadata_directory).mkdir(parents=True, exist_ok=True)
        self.controller: Controller = open_controller(self.config, Platform(rng=random.Random(node_id)))

    @property
    def image(self) -> MetadataImage:
        return self.controller.image

    async def start(self) -> None:
        await self.controller.start()
        self.duties = ControllerDuties(self.controller, DutySettings(self.world.session_ms, 0), self.tasks.add)
        self.controller.subscribe(lambda delta, _: self.deltas.append(delta))

    async def join(
        self, incarnation: bytes | None = None, *, sound: bool = True, duplicate_seconds_max: float = DEADLINE_SECONDS
    ) -> BrokerLifecycle:
        """Find the cluster, register, and send heartbeats. One that was killed and is back at once counts as there
        until its session ends, and waits for that."""
        cluster_id = ""
        while not cluster_id:
            cluster_id = await self.controller.initialize(f"cluster-of-{self.node_id}")
        registration = RegisterBroker(
            self.node_id,
            incarnation or random_id(),
            (Endpoint("PLAINTEXT", "127.0.0.1", 10_000 + self.node_id),),
            directories=self.directories,
            cluster_id=cluster_id,
            fenced=True,
            log_survived=sound,
        )
        settings = LifecycleSettings(HEARTBEAT_SECONDS, duplicate_seconds_max)
        self.lifecycle = BrokerLifecycle(self.controller, registration, settings, lambda: self.offline)
        await self.lifecycle.register()
        self.lifecycle.start()
        return self.lifecycle

    async def up(self) -> Node:
        """Start and join, and serve."""
        await self.start()
        await (await self.join()).wait_until_serving()
        return self

    async def hang(self) -> None:
        """Say nothing any more, and keep the connections."""
        assert self.lifecycle is not None and self.lifecycle.task is not None
        while not self.lifecycle.task.done():
            # Again and again: wait_for in Python 3.11 may swallow it.
            self.lifecycle.task.cancel()
            await asyncio.sleep(0)

    async def kill(self) -> None:
        """Vanish."""
        self.world.nodes.pop(self.node_id, None)
        if self.lifecycle is not None:
            await self.lifecycle.close()
        self.duties.close()
        await self.controller.close()


class World:
    """Three voters and their directory. Use as `async with`."""

    def __init__(self, directory: Path, voters: int = 3, *, session_ms: int = SESSION_MS) -> None:
        self.directory = directory
        self.session_ms = session_ms
        self._reserved = [ReservedPort() for _ in range(voters)]
        self.voters = ",".join(f"{number}@127.0.0.1:{port.number}" for number, port in enumerate(self._reserved, 1))
        self.nodes: dict[int, Node] = {}
        self.count = voters

    async def __aenter__(self) -> World:
        """Returns when all serve, and everybody knows it."""
        await asyncio.gather(*(self.node(number).up() for number in range(1, self.count + 1)))
        await until(lambda: all(self.count_serving(node) == self.count for node in self.nodes.values()), "all serve")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for node in list(self.nodes.values()):
            node.image.check_invariants()
            await node.kill()
        for port in self._reserved:
            port.release()

    @staticmethod
    def count_serving(node: Node) -> int:
        """How many brokers serve, as far as the node knows."""
        return sum(not broker.fenced for broker in node.image.brokers.values())

    def node(self, node_id: int, *, directories: tuple[bytes, ...] = ()) -> Node:
        """A new process with this id, not started."""
        node = self.nodes[node_id] = Node(self, node_id, directories=directories)
        return node

    @property
    def leader(self) -> Node:
        """The node that decides."""
        return next(node for node in self.nodes.values() if node.controller.log.is_leader)

    @property
    def followers(self) -> list[Node]:
        return [node for node in self.nodes.values() if not node.controller.log.is_leader]

    async def create(self, node: Node, *topics: NewTopic) -> tuple[TopicResult, ...]:
        return (await node.controller.execute(CreateTopics(topics))).results

    async def topic(self, *replicas: int, name: str = "t") -> None:
        """A topic with one partition on these brokers, led by the first, known to all nodes."""
        (result,) = await self.create(self.leader, NewTopic(name, assignments=((0, replicas),)))
        assert not result.error, result
        for node in self.nodes.values():
            await until(lambda node=node: name in node.image.topics, "the topic arrives")  # type: ignore[misc]

    def partition(self, node: Node, name: str = "t") -> PartitionState:
        found = node.image.partition(name, 0)
        assert found is not None
        return found


def is_serving(node: Node) -> bool:
    return node.lifecycle is not None and node.lifecycle.state is State.SERVING
