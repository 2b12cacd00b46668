"""What a client knows about the cluster: brokers, topics, who leads each partition (KIP-320, KIP-951).

Knowledge only grows newer: a partition's leader of an older epoch never replaces one of a newer epoch, except when the
topic was made anew under its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from raftlog.client.core.addresses import Address
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from raftlog.wire.schema import ZERO_UUID

TopicPartition = tuple[str, int]
"""A topic's name and a partition's index."""

NO_LEADER = -1
NO_EPOCH = -1


class Node(NamedTuple):
    """A broker."""

    node_id: int
    address: Address
    rack: str | None = None


class Partition(NamedTuple):
    """One partition: `leader` is -1 while there is none."""

    leader: int
    leader_epoch: int
    replicas: Sequence[int] = ()
    isr: Sequence[int] = ()


class Topic(NamedTuple):
    """A topic's partitions by index, and its id (16 bytes, zero where brokers know none)."""

    topic_id: bytes
    partitions: Mapping[int, Partition]


class ClusterMetadata:
    """Brokers and topics as last heard of; `errors` has the code of each topic that could not be told."""

    def __init__(self) -> None:
        self.cluster_id: str | None = None
        self.nodes: dict[int, Node] = {}
        self.gone: set[int] = set()
        """Brokers that were there once: they may be back, and what they did is done by others."""
        self.topics: dict[str, Topic] = {}
        self.names: dict[bytes, str] = {}
        self.errors: dict[str, ErrorCode] = {}

    def update(self, answer: MetadataResponse) -> None:
        """Take over what a broker said; what it did not speak of stays."""
        self.cluster_id = answer.cluster_id
        self.gone.update(self.nodes)
        self.nodes = {
            broker.node_id: Node(broker.node_id, Address(broker.host, broker.port), broker.rack)
            for broker in answer.brokers
        }
        self.gone.difference_update(self.nodes)
        for topic in answer.topics:
            self._update_topic(topic)

    def found(self, node_id: int, address: Address) -> None:
        """A broker was told by itself; it may have moved since the last metadata."""
        known = self.nodes.get(node_id)
        self.nodes[node_id] = Node(node_id, address, known.rack if known is not None else None)

    def leader(self, partition: TopicPartition) -> int:
        """The leader's node id, or -1 while none is known."""
        topic = self.topics.get(partition[0])
        known = topic.partitions.get(partition[1]) if topic is not None else None
        return NO_LEADER if known is None else known.leader

    def leader_epoch(self, partition: TopicPartition) -> int:
        topic = self.topics.get(partition[0])
        known = topic.partitions.get(partition[1]) if topic is not None else None
        return NO_EPOCH if known is None else known.leader_epoch

    def topic_id(self, topic: str) -> bytes:
        """Zero for a topic that is not known, or whose id brokers do not tell."""
        known = self.topics.get(topic)
        return ZERO_UUID if known is None else known.topic_id

    def partition_count(self, topic: str) -> int:
        """0 for a topic that is not known."""
        known = self.topics.get(topic)
        return 0 if known is None else len(known.partitions)

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        known = [name for name in topics if name in self.topics]
        return [(name, index) for name in known for index in sorted(self.topics[name].partitions)]

    def leader_moved(self, partition: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """A hint in a reply (KIP-951); says whether it was news."""
        topic = self.topics.get(partition[0])
        if topic is None or partition[1] not in topic.partitions or leader not in self.nodes:
            return False
        known = topic.partitions[partition[1]]
        if leader_epoch <= known.leader_epoch:
            return False
        changed = dict(topic.partitions)
        changed[partition[1]] = known._replace(leader=leader, leader_epoch=leader_epoch)
        self.topics[partition[0]] = topic._replace(partitions=changed)
        return True

    def forget_leader(self, partition: TopicPartition) -> None:
        """The broker said to lead does not: nobody is asked until the next metadata."""
        topic = self.topics.get(partition[0])
        if topic is not None and partition[1] in topic.partitions:
            changed = dict(topic.partitions)
            changed[partition[1]] = topic.partitions[partition[1]]._replace(leader=NO_LEADER)
            self.topics[partition[0]] = topic._replace(partitions=changed)

    def _update_topic(self, told: MetadataResponseTopic) -> None:
        name = told.name or ""
        if told.error_code != ErrorCode.NONE:
            self.errors[name] = ErrorCode.of(told.error_code)
            if told.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                gone = self.topics.pop(name, None)
                if gone is not None:
                    self.names.pop(gone.topic_id, None)
            return
        self.errors.pop(name, None)
        before = self.topics.get(name)
        topic_id = bytes(told.topic_id)
        same = before is not None and before.topic_id == topic_id
        partitions = {}
        for each in told.partitions:
            new = Partition(each.leader_id, each.leader_epoch, tuple(each.replica_nodes), tuple(each.isr_nodes))
            old = before.partitions.get(each.partition_index) if before is not None and same else None
            partitions[each.partition_index] = old if old is not None and old.leader_epoch > new.leader_epoch else new
        if before is not None and not same:
            self.names.pop(before.topic_id, None)
        self.topics[name] = Topic(topic_id, partitions)
        if topic_id != ZERO_UUID:
            self.names[topic_id] = name
