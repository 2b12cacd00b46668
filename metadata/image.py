"""What the cluster is, at one point of the metadata log: immutable, shared freely, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from raftlog.metadata.persistent_map import PersistentMap, bucket_of_bytes, bucket_of_string
from raftlog.metadata.records import NO_LEADER, Endpoint, FeatureRange, PartitionState, ResourceType
from raftlog.wire.ids import BrokerEpoch, BrokerId

__all__ = [
    "EMPTY_CONFIGS",
    "NO_LEADER",
    "BrokerRegistration",
    "ConfigKey",
    "Endpoint",
    "MetadataImage",
    "PartitionState",
    "ResourceType",
    "TopicImage",
]

ConfigKey = tuple[ResourceType, str]
"""A resource: its type and its name; a broker's name is its id in decimal, and "" is the default for all
brokers.
"""

NO_BROKER_YET = BrokerEpoch(0)
"""Epochs of brokers begin at 1."""

EMPTY_CONFIGS: Mapping[str, str] = MappingProxyType({})


class BrokerRegistration(NamedTuple):
    """A registered broker. A fenced one leads nothing and is told to no client."""

    broker_id: BrokerId
    incarnation_id: bytes
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool = False
    directories: tuple[bytes, ...] = ()
    offline_directories: tuple[bytes, ...] = ()
    features: tuple[FeatureRange, ...] = ()

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """The broker's endpoint on a listener, or None when it has none there."""
        for endpoint in self.endpoints:
            if endpoint.listener_name == listener_name:
                return endpoint
        return None


class TopicImage(NamedTuple):
    """A topic; partition `i` is `partitions[i]`."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    internal: bool = False


def bucket_of_config(key: ConfigKey) -> int:
    """The bucket of a config resource."""
    return bucket_of_string(key[1])


def _no_topics() -> PersistentMap[str, TopicImage]:
    return PersistentMap(bucket_of_string)


def _no_topics_by_id() -> PersistentMap[bytes, TopicImage]:
    return PersistentMap(bucket_of_bytes)


def _no_configs() -> PersistentMap[ConfigKey, Mapping[str, str]]:
    return PersistentMap(bucket_of_config)


def _no_names() -> PersistentMap[str, str]:
    return PersistentMap(bucket_of_string)


@dataclass(frozen=True, slots=True, eq=False)
class MetadataImage:
    """All metadata after the log entry `version` was replayed; 0 is the state before the first entry.

    Invariants: `topics` and `topics_by_id` hold the same topics; each ISR is a subset of its replicas; a
    leader is in the ISR or NO_LEADER; no broker epoch exceeds `last_broker_epoch`. Of decided records also: ISR and
    eligible leaders have nobody in common; somebody leads exactly when somebody is in sync; no leader is fenced;
    what is added or removed is among the replicas.
    """

    cluster_id: str = ""
    version: int = 0
    brokers: Mapping[BrokerId, BrokerRegistration] = field(default_factory=lambda: MappingProxyType({}))
    topics: PersistentMap[str, TopicImage] = field(default_factory=_no_topics)
    topics_by_id: PersistentMap[bytes, TopicImage] = field(default_factory=_no_topics_by_id)
    configs: PersistentMap[ConfigKey, Mapping[str, str]] = field(default_factory=_no_configs)
    features: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    next_producer_id: int = 0
    last_broker_epoch: BrokerEpoch = NO_BROKER_YET
    # Names with '.' or '_', keyed by the name that they share in metric names: "a.b" and "a_b" both under
    # "a_b".
    colliding_names: PersistentMap[str, str] = field(default_factory=_no_names)

    def partition(self, topic: str, index: int) -> PartitionState | None:
        """The partition, or None when topic or index is unknown."""
        found = self.topics.get(topic)
        if found is None or not 0 <= index < len(found.partitions):
            return None
        return found.partitions[index]

    def configs_of(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """The overrides of one resource; empty when it has none."""
        return self.configs.get((resource_type, name), EMPTY_CONFIGS)

    def is_usable(self, broker_id: BrokerId) -> bool:
        """Whether a broker is registered and may lead partitions."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.in_controlled_shutdown

    def address_of(self, broker_id: BrokerId, listener_name: str) -> tuple[str, int] | None:
        """Where other brokers reach a broker that is registered and has that listener."""
        broker = self.brokers.get(broker_id)
        endpoint = broker.endpoint(listener_name) if broker is not None else None
        if endpoint is None:
            return None
        # Without a host brokers are told what clients are told: that they are on one machine.
        return endpoint.host or "localhost", endpoint.port

    def check_invariants(self) -> None:
        """Raise AssertionError when the image contradicts itself (tests and simulator)."""
        self.topics.check_invariants()
        self.topics_by_id.check_invariants()
        self.configs.check_invariants()
        assert len(self.topics) == len(self.topics_by_id)
        for name, topic in self.topics.items():
            assert topic.name == name
            assert self.topics_by_id[topic.topic_id] is topic
            for index, partition in enumerate(topic.partitions):
                assert partition.partition_id == index, (
                    f"{name}: partition {partition.partition_id} in the place of {index}"
                )
                assert set(partition.isr) <= set(partition.replicas), f"{name}: ISR outside the replicas"
                assert partition.leader == NO_LEADER or partition.leader in partition.isr, f"{name}: leader not in ISR"
        for (kind, name), values in self.configs.items():
            assert values, f"{kind.name} {name} keeps an empty set of overrides"
            assert kind is not ResourceType.TOPIC or name in self.topics, f"configs of an unknown topic {name}"
        for broker_id, broker in self.brokers.items():
            assert broker.broker_id == broker_id and broker.epoch <= self.last_broker_epoch, f"broker {broker_id}"

    def check_decisions(self) -> None:
        """Raise AssertionError when the image is not what decisions make, whatever the records (tests, simulator)."""
        for name, topic in self.topics.items():
            for partition in topic.partitions:
                eligible = partition.eligible_leader_replicas
                assert set(eligible) <= set(partition.replicas), f"{name}: eligible leaders outside the replicas"
                assert not set(eligible) & set(partition.isr), f"{name}: both in sync and not"
                assert len(set(partition.replicas)) == len(partition.replicas) > 0, f"{name}: a replica twice, or none"
                assert len(partition.directories) in (0, len(partition.replicas)), f"{name}: odd directories"
                moving = {*partition.adding_replicas, *partition.removing_replicas}
                assert moving <= set(partition.replicas), f"{name}: moves what is no replica"
                assert bool(partition.isr) is (partition.leader != NO_LEADER), f"{name}: in sync without a leader"
                if partition.leader != NO_LEADER:
                    leader = self.brokers.get(partition.leader)
                    assert leader is not None and not leader.fenced, f"{name}: led by a fenced or unknown broker"
