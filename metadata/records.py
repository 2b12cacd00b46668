"""The facts that the metadata log holds: one named tuple for each kind of record.

A record says what *became* true, never what was asked for: every number in it (epochs, leaders, ids) was decided before
it was proposed, so that replaying it needs no judgement. Named tuples and not dataclasses: defining one takes a seventh
of the time, and a broker has to be up in a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from raftlog.wire.ids import BrokerEpoch, BrokerId, LeaderEpoch, PartitionEpoch

NO_LEADER = BrokerId(-1)


class ResourceType(IntEnum):
    """Kinds of resources that carry configs, with Kafka's codes (ConfigResource.Type)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Endpoint(NamedTuple):
    """Where a broker can be reached. An empty host means: tell each client the address it connected to."""

    listener_name: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class PartitionState(NamedTuple):
    """Who holds a partition and who leads it; `partition_id` is its number and its place in the topic.

    `directories` are 16-byte log directory ids parallel to `replicas`, or empty when unknown (KIP-858);
    `eligible_leader_replicas` and `last_known_leader` belong to KIP-966. A tuple, because there are very
    many.
    """

    partition_id: int
    leader: BrokerId
    leader_epoch: LeaderEpoch
    partition_epoch: PartitionEpoch
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    directories: tuple[bytes, ...] = ()
    eligible_leader_replicas: tuple[BrokerId, ...] = ()
    adding_replicas: tuple[BrokerId, ...] = ()
    removing_replicas: tuple[BrokerId, ...] = ()
    last_known_leader: BrokerId = NO_LEADER
    leader_recovering: bool = False


class ClusterRecord(NamedTuple):
    """The cluster's name for ever: the first record of a metadata log."""

    cluster_id: str


class FeatureLevelRecord(NamedTuple):
    """A feature (KIP-584) is now at this level; 0 removes it."""

    name: str
    level: int


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker's version knows, both ends included (KIP-584)."""

    name: str
    min_level: int
    max_level: int


class RegisterBrokerRecord(NamedTuple):
    """A broker process joined. `incarnation_id` (16 bytes) is new with each start, `epoch` with each
    registration.
    """

    broker_id: BrokerId
    incarnation_id: bytes
    epoch: BrokerEpoch
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    fenced: bool
    directories: tuple[bytes, ...] = ()
    features: tuple[FeatureRange, ...] = ()


class BrokerChangeRecord(NamedTuple):
    """A registered broker was fenced or unfenced, began to shut down, or reported its directories. None:
    unchanged.
    """

    broker_id: BrokerId
    epoch: BrokerEpoch
    fenced: bool | None = None
    in_controlled_shutdown: bool | None = None
    directories: tuple[bytes, ...] | None = None
    offline_directories: tuple[bytes, ...] | None = None


class CordonRecord(NamedTuple):
    """These directories of a broker get no more partitions (KIP-1066), and no others."""

    broker_id: BrokerId
    epoch: BrokerEpoch
    directories: tuple[bytes, ...]


class UnregisterBrokerRecord(NamedTuple):
    """A broker left for good."""

    broker_id: BrokerId
    epoch: BrokerEpoch


class LastBrokerEpochRecord(NamedTuple):
    """The highest broker epoch ever given out, so that it is not given out again after its broker has left."""

    epoch: BrokerEpoch


class TopicRecord(NamedTuple):
    """A topic with all its partitions: one record, so that thousands of partitions stay compact."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionState, ...]
    internal: bool = False


class NewPartitionsRecord(NamedTuple):
    """Partitions were appended to a topic, in the order of their indexes and without a gap."""

    topic_id: bytes
    partitions: tuple[PartitionState, ...]


class PartitionChangeRecord(NamedTuple):
    """Some partitions of one topic changed: their whole new states."""

    topic_id: bytes
    partitions: tuple[PartitionState, ...]


class NewLeaderEpochsRecord(NamedTuple):
    """Every partition that this broker leads has the next leader epoch and the next partition epoch.

    The one record that speaks of many partitions without naming them: it is written whenever a broker comes back
    after a crash, and naming ten thousand partitions would make each of the following starts slower.
    """

    broker_id: BrokerId


class RemoveTopicRecord(NamedTuple):
    """A topic is gone, with its configs."""

    topic_id: bytes


class ConfigRecord(NamedTuple):
    """Configs of one resource changed: name to the new value, or to None when the override was removed."""

    resource_type: ResourceType
    resource_name: str
    changes: Mapping[str, str | None]


class ProducerIdsRecord(NamedTuple):
    """A broker was given a block of producer ids; `next_producer_id` is the first one that nobody was
    given.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    next_producer_id: int


Record = (
    ClusterRecord
    | FeatureLevelRecord
    | RegisterBrokerRecord
    | BrokerChangeRecord
    | CordonRecord
    | UnregisterBrokerRecord
    | LastBrokerEpochRecord
    | TopicRecord
    | NewPartitionsRecord
    | PartitionChangeRecord
    | NewLeaderEpochsRecord
    | RemoveTopicRecord
    | ConfigRecord
    | ProducerIdsRecord
)
