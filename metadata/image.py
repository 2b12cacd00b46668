"""What the cluster is, at one point of the metadata log: immutable, shared freely, replaced as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from raftlog.metadata.persistent_map import PersistentMap, bucket_of_bytes, bucket_of_string
from raftlog.metadata.records import NO_LEADER, Endpoint, FeatureRange, PartitionState, ResourceType
from raftlog.wire.errors import InvariantViolation
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
    cordoned_directories: tuple[bytes, ...] = ()

    @property
    def is_cordoned(self) -> bool:
        """Whether no directory is left for new partitions (KIP-1066)."""
        online = [each for each in self.directories if each not in self.offline_directories]
        return bool(online) and all(each in self.cordoned_directories for each in online)

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
        """Raises InvariantViolation if the image contradicts itself."""
        self.topics.check_invariants()
        self.topics_by_id.check_invariants()
        self.configs.check_invariants()
        if len(self.topics) != len(self.topics_by_id):
            raise InvariantViolation(f"{len(self.topics)} topics by name, {len(self.topics_by_id)} by id")
        for name, topic in self.topics.items():
            if topic.name != name or self.topics_by_id.get(topic.topic_id) is not topic:
                raise InvariantViolation(f"{name}: it is {topic.name} by name, or another topic by id")
            for index, partition in enumerate(topic.partitions):
                if partition.partition_id != index:
                    raise InvariantViolation(f"{name}: partition {partition.partition_id} in the place of {index}")
                if not set(partition.isr) <= set(partition.replicas):
                    raise InvariantViolation(f"{name}: ISR outside the replicas")
                if partition.leader != NO_LEADER and partition.leader not in partition.isr:
                    raise InvariantViolation(f"{name}: leader not in ISR")
        for (kind, name), values in self.configs.items():
            if not values:
                raise InvariantViolation(f"{kind.name} {name} keeps an empty set of overrides")
            if kind is ResourceType.TOPIC and name not in self.topics:
                raise InvariantViolation(f"configs of an unknown topic {name}")
        for broker_id, broker in self.brokers.items():
            if broker.broker_id != broker_id or broker.epoch > self.last_broker_epoch:
                raise InvariantViolation(f"broker {broker_id}: {broker}, the last epoch is {self.last_broker_epoch}")

    def check_decisions(self) -> None:
        """Raises InvariantViolation if the image is not what decisions make, whatever the records."""
        for name, topic in self.topics.items():
            for partition in topic.partitions:
                wrong = self._undecidable(partition)
                if wrong is not None:
                    raise InvariantViolation(f"{name}-{partition.partition_id}: {wrong}")

    def _undecidable(self, partition: PartitionState) -> str | None:
        """What no decision makes of a partition."""
        replicas, isr, eligible = set(partition.replicas), set(partition.isr), set(partition.eligible_leader_replicas)
        leader = self.brokers.get(partition.leader)
        wrong = {
            "eligible leaders outside the replicas": not eligible <= replicas,
            "both in sync and not": bool(eligible & isr),
            "a replica twice, or none": not len(replicas) == len(partition.replicas) > 0,
            "odd directories": len(partition.directories) not in (0, len(partition.replicas)),
            "moves what is no replica": not {*partition.adding_replicas, *partition.removing_replicas} <= replicas,
            "in sync without a leader": bool(isr) is (partition.leader == NO_LEADER),
            "led by a fenced or unknown broker": partition.leader != NO_LEADER and (leader is None or leader.fenced),
        }
        return next((what for what, is_so in wrong.items() if is_so), None)
