"""A system under test: how it is started, who has which role in it, and what can happen to its brokers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from raftlog.client.core.errors import KafkaError
from raftlog.client.sync import SyncAdmin, SyncClient
from raftlog.testing.faults.spec import Evidence
from raftlog.testing.waiting import wait_until

ADMIN_SECONDS = 5.0
PROCESSES = frozenset({"processes"})
REPLICAS = "replicas"
"""Enough of them that a partition bears the loss of one."""
REPLICAS_MIN = 3


class CannotStart(Exception):
    """The system does not serve."""


@dataclass(slots=True)
class Effect:
    """One thing that was done to the system. `heal` undoes it; `evidence` says what it did."""

    kind: str
    target: str
    heal: Callable[[], None]
    evidence: Callable[[], Mapping[str, float]]
    brokers: list[int] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)


def nothing() -> None:
    """There is nothing to undo."""


def counted(fired: int = 1, **more: float) -> dict[str, float]:
    """Evidence of something that simply was done."""
    return {**asdict(Evidence(calls=fired, fired=fired)), **more}


NEW_DISK = "new-disk"


class System(ABC):
    """`abilities`: what faults may ask of it (`processes`, `links`, `disks`, `clocks`, `requests`, `voters`), and
    REPLICAS.
    """

    name = ""
    abilities: frozenset[str] = frozenset()
    broker_ids: tuple[int, ...] = ()
    version: str | None = None
    is_ours: bool = True
    """Nobody else uses it, and it is gone after the run."""

    def __init__(self) -> None:
        self._client: SyncClient | None = None

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until it serves. Raises CannotStart."""

    @abstractmethod
    def stop(self, logs: Path) -> list[str]:
        """Stop it, and put its logs there. What went wrong with it that nobody asked for, in sentences."""

    @property
    @abstractmethod
    def bootstrap(self) -> str:
        """`host:port,host:port`"""

    @abstractmethod
    def states(self) -> dict[int, str]:
        """up, down or paused, of each broker."""

    def lost_disks(self) -> list[int]:
        """Brokers that have ended because their disk was damaged."""
        return []

    def replace_disk(self, broker: int) -> Effect | None:
        """Give a broker another disk, an empty one, as an operator would; None if others have not all that it has."""
        return None

    # -- roles -------------------------------------------------------------------------------------

    @property
    def admin(self) -> SyncAdmin:
        """Our own client's, which works with every Kafka."""
        if self._client is None:
            self._client = SyncClient(self.bootstrap, client_id="verify-harness", timeout=ADMIN_SECONDS)
        return self._client.admin

    def close_admin(self) -> None:
        """Give it back."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def leader_of(self, topic: str, partition: int) -> int:
        """Who leads a partition; 0 if nobody knows."""
        found = self.partitions(topic).get(partition)
        return 0 if found is None else max(0, found["leader"])

    def in_sync(self, brokers: Collection[int]) -> bool:
        """Whether these are in sync in all partitions that they keep."""
        found = {each: self.in_sync_replicas(each) for each in brokers}
        return all(replicas is not None and all(each in one for one in replicas) for each, replicas in found.items())

    def in_sync_replicas(self, broker: int) -> list[list[int]] | None:
        """Of each partition that a broker keeps; None if nobody answers."""
        try:
            topics = self.admin.metadata().topics
        except KafkaError:
            return None
        return [each.isr_nodes for topic in topics for each in topic.partitions if broker in each.replica_nodes]

    def partitions(self, topic: str) -> dict[int, dict[str, Any]]:
        """As `described`; none if nobody answers."""
        try:
            return self.described(topic)
        except KafkaError:
            return {}

    def described(self, topic: str) -> dict[int, dict[str, Any]]:
        """leader, epoch, replicas and isr of each partition. Raises KafkaError."""
        return {
            each.partition_index: {
                "leader": each.leader_id,
                "epoch": each.leader_epoch,
                "replicas": list(each.replica_nodes),
                "isr": sorted(each.isr_nodes),
            }
            for each in self.admin.topic(topic).partitions
        }

    def quorum_leader(self) -> int:
        """Who leads the metadata quorum; 0 if nobody knows."""
        try:
            return max(0, self.admin.describe_quorum().leader)
        except KafkaError:
            return 0

    def coordinator(self, group: str) -> int:
        """Who coordinates a group; 0 if nobody knows."""
        try:
            return max(0, self.admin.coordinator(group))
        except KafkaError:
            return 0

    def make_topic(self, name: str, partitions: int, replicas: int, configs: Mapping[str, str]) -> None:
        """Make a topic, and wait until it can be written. Raises CannotStart."""
        try:
            self.admin.create_topic(name, partitions=partitions, replication_factor=replicas, configs=dict(configs))
            wait_until(
                lambda: len(self.partitions(name)) == partitions
                and all(each["leader"] > 0 for each in self.partitions(name).values()),
                30.0,
                lambda: f"leaders of topic {name}",
            )
        except (KafkaError, AssertionError) as error:
            raise CannotStart(f"topic {name} cannot be made: {error}") from error

    # -- what can happen ---------------------------------------------------------------------------

    def kill(self, broker: int) -> Effect:
        """kill -9; started again when healed."""
        raise NotImplementedError

    def stop_broker(self, broker: int) -> Effect:
        """SIGTERM; started again when healed."""
        raise NotImplementedError

    def pause(self, broker: int) -> Effect:
        """SIGSTOP and SIGCONT."""
        raise NotImplementedError

    def data_directory(self, broker: int) -> Path:
        """Where its partitions lie."""
        raise NotImplementedError
