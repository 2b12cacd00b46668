"""What can be asked of the metadata controller, and what it answers: frozen values, one pair for each question.

What only clusters of several brokers ask is in `cluster_commands`; a broker alone starts without it.

Times are milliseconds, ids 16 bytes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, Generic, NamedTuple, TypeVar

from raftlog.metadata.records import Endpoint, FeatureRange
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerEpoch, BrokerId

ZERO_ID = bytes(16)
NO_EPOCH = BrokerEpoch(-1)
USE_DEFAULT = -1
"""For partition counts and replication factors: what the broker's configuration says."""


R_co = TypeVar("R_co", covariant=True)


class Command(ABC, Generic[R_co]):
    """A question whose answer is an R_co.

    What is a property here, subclasses give as a class attribute, or as a property where it depends on their fields.
    """

    __slots__ = ()

    @property
    def repeatable(self) -> bool:
        """Whether it may be asked again when nobody knows what became of the first time: the second time finds the work
        done, or does it on newer state. Those of brokers are made so.
        """
        return False

    @property
    def liveness_only(self) -> bool:
        """Whether the answer may rest on what is not yet committed, or not yet replayed where it is heard. Brokers must
        not fall silent because a disk is slow, the leader's or their own.
        """
        return False

    @abstractmethod
    def refused(self, error: ErrorCode, message: str) -> R_co:
        """The answer when it could not be decided or committed at all."""


@dataclass(frozen=True, slots=True)
class InitializeCluster(Command["ClusterInitialized"]):
    """Give a metadata log without a cluster its id and features. Answered by ClusterInitialized."""

    cluster_id: str
    features: Mapping[str, int]

    repeatable: ClassVar[bool] = True

    def refused(self, error: ErrorCode, message: str) -> ClusterInitialized:
        """See Command."""
        return ClusterInitialized("")


class ClusterInitialized(NamedTuple):
    """The cluster's id: the one asked for, or the one that it had already."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class RegisterBroker(Command["BrokerRegistered"]):
    """A broker process begins. Answered by BrokerRegistered.

    `previous_broker_epoch`: the epoch that the broker noted when it last shut down cleanly, else NO_EPOCH (KIP-966).
    `log_survived`: the process died and the machine did not, so that what it had written is still there.
    `previous_is_alive`: whether the leader still hears another incarnation of this broker id.
    `cordoned_directories`: those of `directories` that get no more partitions (KIP-1066).
    `fenced`: false only for a broker that is the whole cluster; others are unfenced by their heartbeats.
    """

    broker_id: BrokerId
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    directories: tuple[bytes, ...] = ()
    cluster_id: str | None = None
    fenced: bool = False
    previous_broker_epoch: BrokerEpoch = NO_EPOCH
    log_survived: bool = False
    previous_is_alive: bool = False
    features: tuple[FeatureRange, ...] = ()
    cordoned_directories: tuple[bytes, ...] = ()

    repeatable: ClassVar[bool] = True

    def refused(self, error: ErrorCode, message: str) -> BrokerRegistered:
        """See Command."""
        return BrokerRegistered(error, message, NO_EPOCH)


class BrokerRegistered(NamedTuple):
    """The epoch that the broker carries from now on."""

    error: ErrorCode
    message: str | None
    broker_epoch: BrokerEpoch


class NewTopic(NamedTuple):
    """A topic to create. `assignments`: replicas by partition index, for those who place by hand."""

    name: str
    num_partitions: int = USE_DEFAULT
    replication_factor: int = USE_DEFAULT
    assignments: tuple[tuple[int, tuple[BrokerId, ...]], ...] = ()
    configs: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class CreateTopics(Command["TopicsCreated"]):
    """Answered by TopicsCreated, one result for each topic in the same order.

    `internal`: the broker itself asks; then a topic that is already there is no error, and a replication factor beyond
    the number of brokers means all of them when `cap_replication` is set.
    """

    topics: tuple[NewTopic, ...]
    validate_only: bool = False
    internal: bool = False
    cap_replication: bool = False

    @property
    def repeatable(self) -> bool:
        """See Command."""
        return self.internal

    def refused(self, error: ErrorCode, message: str) -> TopicsCreated:
        """See Command."""
        return TopicsCreated(tuple(TopicResult(topic.name, error, message) for topic in self.topics))


class TopicResult(NamedTuple):
    """What became of one topic. Counts are -1 and `configs` empty on an error."""

    name: str
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    topic_id: bytes = ZERO_ID
    num_partitions: int = -1
    replication_factor: int = -1
    configs: tuple[tuple[str, str], ...] = ()


class TopicsCreated(NamedTuple):
    """One result for each topic asked for, in order."""

    results: tuple[TopicResult, ...]


@dataclass(frozen=True, slots=True)
class DeleteTopics(Command["TopicsDeleted"]):
    """Topics to delete, each by name or by id. Answered by TopicsDeleted, in the same order."""

    topics: tuple[str | bytes, ...]

    def refused(self, error: ErrorCode, message: str) -> TopicsDeleted:
        """See Command."""
        named = ((t, ZERO_ID) if isinstance(t, str) else (None, t) for t in self.topics)
        return TopicsDeleted(tuple(TopicDeleted(name, topic_id, error, message) for name, topic_id in named))


class TopicDeleted(NamedTuple):
    """What became of one topic; `name` is None when it was asked for by an id that nobody knows."""

    name: str | None
    topic_id: bytes
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class TopicsDeleted(NamedTuple):
    """One result for each topic asked for, in order."""

    results: tuple[TopicDeleted, ...]


class MorePartitions(NamedTuple):
    """The number of partitions that a topic shall have. `assignments`: None, or replicas of each new partition."""

    name: str
    partitions: int
    assignments: tuple[tuple[BrokerId, ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class CreatePartitions(Command["PartitionsCreated"]):
    """Answered by PartitionsCreated, in the same order."""

    topics: tuple[MorePartitions, ...]
    validate_only: bool = False

    def refused(self, error: ErrorCode, message: str) -> PartitionsCreated:
        """See Command."""
        return PartitionsCreated(tuple((topic.name, error, message) for topic in self.topics))


class PartitionsCreated(NamedTuple):
    """One (name, error, message) for each topic asked for, in order."""

    results: tuple[tuple[str, ErrorCode, str | None], ...]


class ConfigOperation(IntEnum):
    """What to do with a setting, with the codes of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change of one setting. `operation` is a number from the wire: it may be none of ConfigOperation."""

    name: str
    operation: int
    value: str | None


class AlterResource(NamedTuple):
    """The changes of one resource. `replace`: all settings not named here go back to their default (AlterConfigs)."""

    resource_type: int
    name: str
    changes: tuple[ConfigChange, ...]
    replace: bool = False


@dataclass(frozen=True, slots=True)
class AlterConfigs(Command["ConfigsAltered"]):
    """Answered by ConfigsAltered, in the same order. Each resource changes as a whole or not at all."""

    resources: tuple[AlterResource, ...]
    validate_only: bool = False

    def refused(self, error: ErrorCode, message: str) -> ConfigsAltered:
        """See Command."""
        return ConfigsAltered(tuple((r.resource_type, r.name, error, message) for r in self.resources))


class ConfigsAltered(NamedTuple):
    """One (resource type, name, error, message) for each resource, in order."""

    results: tuple[tuple[int, str, ErrorCode, str | None], ...]


@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Command["ProducerIdsAllocated"]):
    """A block of producer ids for one broker. Answered by ProducerIdsAllocated."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch

    repeatable: ClassVar[bool] = True

    def refused(self, error: ErrorCode, message: str) -> ProducerIdsAllocated:
        """See Command."""
        return ProducerIdsAllocated(error, -1, 0)


class ProducerIdsAllocated(NamedTuple):
    """Ids from `first` to `first + size - 1`, which nobody else is ever given."""

    error: ErrorCode
    first: int
    size: int


BasicCommand = (
    InitializeCluster
    | RegisterBroker
    | CreateTopics
    | DeleteTopics
    | CreatePartitions
    | AlterConfigs
    | AllocateProducerIds
)
"""All commands of this file: mypy proves by it that each of them is decided."""
