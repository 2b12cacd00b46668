"""What all observers together know of a cluster: its newest metadata, its replicas, and what is committed."""

from __future__ import annotations

from collections.abc import Iterator

from raftlog.broker.broker import Broker
from raftlog.broker.core.coordinator.shared import TRANSACTION_TOPIC
from raftlog.broker.core.transaction.state import TransactionMetadata
from raftlog.broker.runtime.partition import Partition
from raftlog.linearizability.simulator.cluster.replica_contents import Batch, raw_batches_of, records_of, values_of
from raftlog.linearizability.simulator.machine.world import World
from raftlog.metadata.records import NO_LEADER, PartitionState
from raftlog.wire.batch import BatchHeader

Key = tuple[str, int, bytes]
"""Topic, partition and topic id: a topic that was made again under its name is another one."""


class ClusterState:
    """All brokers of one cluster.

    `newest`: partitions in the newest metadata. `committed`: the batches below the highest high watermark that any
    leader had, by partition. `tainted`: who may have lost what it had, until it is in sync everywhere; `held`: those of
    them whose disk is still as bad.
    """

    def __init__(self, world: World, nodes: list[int]) -> None:
        self.world = world
        self.nodes = nodes
        self.newest: dict[Key, PartitionState] = {}
        self.committed: dict[Key, list[Batch]] = {}
        self.tainted: dict[int, bool] = {}
        self.held: set[int] = set()

    def committed_end(self, key: Key) -> int:
        """Where the committed part of a partition ends."""
        known = self.committed.get(key)
        return known[-1].end_offset if known else 0

    def _brokers(self) -> Iterator[tuple[int, Broker]]:
        for node in self.nodes:
            machine = self.world.machines[node]
            broker = machine.parts.get("broker") if machine.running else None
            if broker is not None:
                yield node, broker

    def leader_of(self, broker: Broker, topic: str, index: int) -> int:
        """Who leads as this broker knows it, or -1."""
        image = broker.controller.image.topics.get(topic)
        return image.partitions[index].leader if image is not None else NO_LEADER

    def may_lose_power(self, node: int) -> bool:
        """Whether nobody else lost power without having caught up since, or is about to lose it."""
        for other in list(self.tainted):
            if self.is_whole(other):
                del self.tainted[other]
        armed = any(self.world.machines[other].disk.countdown is not None for other in self.nodes if other != node)
        return not armed and all(other == node for other in self.tainted)

    def is_whole(self, node: int) -> bool:
        """Whether it serves, and is in sync everywhere."""
        machine = self.world.machines[node]
        return (
            node not in self.held
            and machine.running
            and bool(machine.parts.get("serving"))
            and all(node in state.isr for state in self.newest.values() if node in state.replicas)
        )

    def replicas_of(self, key: Key) -> dict[int, Partition]:
        return {
            node: partition
            for node, broker in self._brokers()
            if broker.has_logs
            for partition in broker.partitions.open_partitions()
            if (partition.topic, partition.index, partition.topic_id) == key
        }

    def all_in_sync(self) -> bool:
        """Whether every partition has a leader and all its replicas in its ISR."""
        return bool(self.newest) and all(
            state.leader != NO_LEADER and set(state.isr) == set(state.replicas) for state in self.newest.values()
        )

    def all_equal(self) -> bool:
        """Whether all replicas end at one offset, and know that it is committed."""
        for key, state in self.newest.items():
            replicas = self.replicas_of(key)
            if set(replicas) != set(state.replicas):
                return False
            ends = {(p.log.log_end_offset, p.log.high_watermark) for p in replicas.values()}
            if len(ends) != 1 or any(end != high for end, high in ends):
                return False
            # What was deleted where a follower's leader is, is deleted there too.
            if min(p.log.log_start_offset for p in replicas.values()) < replicas[state.leader].log.log_start_offset:
                return False
        return True

    def key_of(self, topic: str, index: int) -> Key:
        """The partition, as it is in the newest metadata."""
        return next(key for key in self.newest if key[:2] == (topic, index))

    def lives(self) -> dict[int, int]:
        """Which start of its process each running broker is in."""
        return {node: self.world.machines[node].incarnation for node, _ in self._brokers()}

    def starts_of(self, key: Key) -> dict[int, int]:
        """Where the log of each replica that runs begins."""
        return {node: partition.log.log_start_offset for node, partition in self.replicas_of(key).items()}

    def records_left(self, topic: str, index: int) -> int:
        """How many records the leader has."""
        key = self.key_of(topic, index)
        partition = self.replicas_of(key)[self.newest[key].leader]
        return len(records_of(partition, partition.log.log_start_offset, partition.log.log_end_offset))

    def batches(self, topic: str, index: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """What the leader has, from the start."""
        key = self.key_of(topic, index)
        partition = self.replicas_of(key)[self.newest[key].leader]
        return raw_batches_of(partition, partition.log.log_start_offset, partition.log.log_end_offset)

    def leadership(self, topic: str, index: int) -> tuple[int, int] | None:
        """Leader and leader epoch in the newest metadata."""
        for key, state in self.newest.items():
            if key[:2] == (topic, index):
                return state.leader, state.leader_epoch
        return None

    def coordinated(self, transactional_id: str) -> Iterator[TransactionMetadata]:
        """What the coordinator of the id has of it: the broker that leads in the newest metadata, if it runs."""
        for node, broker in self._brokers():
            hosts = broker.transactions.hosts if broker.transactions is not None else {}
            for index, host in hosts.items():
                leads = self.leadership(TRANSACTION_TOPIC, index)
                known = host.shard.transactions.get(transactional_id)
                if known is not None and leads is not None and leads[0] == node:
                    yield known

    def end_of(self, topic: str, index: int) -> int:
        """Where the leader's log ends; -1 while there is none."""
        key = self.key_of(topic, index)
        partition = self.replicas_of(key).get(self.newest[key].leader)
        return -1 if partition is None else partition.log.log_end_offset

    def strays(self) -> Iterator[tuple[int, str, int]]:
        """Node, topic and partition of each log that the metadata do not know, or not there."""
        for node, broker in self._brokers():
            image = broker.controller.image
            for log in broker.logs if broker.has_logs else ():
                topic = image.topics.get(log.topic)
                state = image.partition(log.topic, log.index)
                if (
                    topic is None
                    or state is None
                    or node not in state.replicas
                    or log.topic_id not in (None, topic.topic_id)
                ):
                    yield node, log.topic, log.index

    def values(self, topic: str, index: int) -> tuple[int, tuple[int, ...]]:
        """What the partition holds in the end, and from which offset on."""
        key = self.key_of(topic, index)
        log = self.replicas_of(key)[self.newest[key].leader].log
        return log.log_start_offset, values_of(log)
