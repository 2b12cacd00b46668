"""How records turn one image into the next: the only code that changes metadata.

Replay is total: it never raises on a record, whatever the image holds, because every node replays the same committed
records and an exception would stop them all; what cannot apply is passed over and noted in `anomalies`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple, assert_never

from raftlog.metadata.image import BrokerRegistration, ConfigKey, MetadataImage, PartitionState, TopicImage
from raftlog.metadata.persistent_map import PersistentMap
from raftlog.metadata.records import (
    BrokerChangeRecord,
    ClusterRecord,
    ConfigRecord,
    CordonRecord,
    FeatureLevelRecord,
    LastBrokerEpochRecord,
    NewLeaderEpochsRecord,
    NewPartitionsRecord,
    PartitionChangeRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
)
from raftlog.metadata.topic_names import colliding_form
from raftlog.wire.ids import BrokerId


class TopicChange(NamedTuple):
    """A topic before and after; `before` is None for a new topic and `after` for a deleted one."""

    before: TopicImage | None
    after: TopicImage | None


class MetadataDelta:
    """The records of one log entry (or a snapshot) on top of an image. Not to be replayed into after
    `apply`.
    """

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.anomalies: list[str] = []
        self.partitions_replayed = 0  # how much work replaying was, whatever the records' sizes
        self._cluster_id = image.cluster_id
        self._last_broker_epoch = image.last_broker_epoch
        self._next_producer_id = image.next_producer_id
        self._features: dict[str, int] | None = None
        self._brokers: dict[BrokerId, BrokerRegistration] | None = None
        self._brokers_changed: dict[BrokerId, None] = {}
        self._topics: dict[bytes, TopicImage | None] = {}  # by id; None: deleted here
        self._names: dict[str, bytes | None] = {}  # of the topics created or deleted here
        self._partitions: dict[bytes, list[PartitionState]] = {}  # edited in place until apply
        self._configs: dict[ConfigKey, dict[str, str]] = {}
        self._applied = False
        self._changes: tuple[TopicChange, ...] | None = None  # kept once nothing more is replayed

    # -- replay ------------------------------------------------------------------------------------

    def replay(self, record: Record) -> None:
        """Apply one record. Never raises."""
        match record:
            case PartitionChangeRecord():
                self._replay_partition_change(record)
            case TopicRecord():
                self._replay_topic(record)
            case ConfigRecord():
                self._replay_config(record)
            case NewPartitionsRecord():
                self._replay_new_partitions(record)
            case RemoveTopicRecord():
                self._replay_remove_topic(record)
            case NewLeaderEpochsRecord():
                self._replay_new_leader_epochs(record.broker_id)
            case RegisterBrokerRecord() | BrokerChangeRecord() | CordonRecord() | UnregisterBrokerRecord():
                self._replay_broker(record)
            case ProducerIdsRecord():
                # max(): a producer id that was handed out is never handed out again, whatever the record
                # says.
                self._next_producer_id = max(self._next_producer_id, record.next_producer_id)
            case LastBrokerEpochRecord():
                self._last_broker_epoch = max(self._last_broker_epoch, record.epoch)
            case FeatureLevelRecord():
                self._replay_feature(record)
            case ClusterRecord():
                self._cluster_id = record.cluster_id
            case _:
                assert_never(record)

    def _replay_topic(self, record: TopicRecord) -> None:
        if self._topic(record.topic_id) is not None or self._topic_named(record.name) is not None:
            self.anomalies.append(f"topic {record.name} was created twice")
            return
        self.partitions_replayed += len(record.partitions)
        topic = TopicImage(record.name, record.topic_id, record.partitions, record.internal)
        self._topics[record.topic_id] = topic
        self._names[record.name] = record.topic_id

    def _replay_remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._topic(record.topic_id)
        if topic is None:
            self.anomalies.append(f"unknown topic {record.topic_id.hex()} was deleted")
            return
        self._topics[record.topic_id] = None
        self._names[topic.name] = None
        self._partitions.pop(record.topic_id, None)
        key = (ResourceType.TOPIC, topic.name)
        if key in self.image.configs or key in self._configs:
            self._configs[key] = {}

    def _replay_new_partitions(self, record: NewPartitionsRecord) -> None:
        partitions = self._editable_partitions(record.topic_id)
        expected = len(partitions) if partitions is not None else -1
        if partitions is None or [state.partition_id for state in record.partitions] != list(
            range(expected, expected + len(record.partitions))
        ):
            self.anomalies.append(f"new partitions do not follow in {record.topic_id.hex()}")
            return
        partitions.extend(record.partitions)

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        partitions = self._editable_partitions(record.topic_id)
        if partitions is None:
            self.anomalies.append(f"partitions of unknown topic {record.topic_id.hex()} changed")
            return
        self.partitions_replayed += len(record.partitions)
        for state in record.partitions:
            if 0 <= state.partition_id < len(partitions):
                partitions[state.partition_id] = state
            else:
                self.anomalies.append(f"unknown partition {state.partition_id} of {record.topic_id.hex()} changed")

    def _replay_new_leader_epochs(self, broker_id: BrokerId) -> None:
        self._finish_partitions()
        for topic_id in (*self.image.topics_by_id, *self._topics):
            topic = self._topic(topic_id)
            if topic is not None and topic_id not in self._partitions:
                partitions = [_in_next_epoch(state, broker_id) for state in topic.partitions]
                self.partitions_replayed += len(partitions)
                if any(map(operator.is_not, partitions, topic.partitions)):
                    self._topics[topic_id] = topic
                    self._partitions[topic_id] = partitions

    def _replay_config(self, record: ConfigRecord) -> None:
        key = (record.resource_type, record.resource_name)
        if key[0] is ResourceType.TOPIC and self._topic_named(key[1]) is None:
            self.anomalies.append(f"configs of unknown topic {key[1]} changed")
            return
        values = self._configs.get(key)
        if values is None:
            values = self._configs[key] = dict(self.image.configs_of(*key))
        for name, value in record.changes.items():
            if value is None:
                values.pop(name, None)
            else:
                values[name] = value

    def _replay_broker(
        self, record: RegisterBrokerRecord | BrokerChangeRecord | CordonRecord | UnregisterBrokerRecord
    ) -> None:
        if self._brokers is None:
            self._brokers = dict(self.image.brokers)
        broker_id = record.broker_id
        self._brokers_changed[broker_id] = None
        self._last_broker_epoch = max(self._last_broker_epoch, record.epoch)
        if isinstance(record, RegisterBrokerRecord):
            self._brokers[broker_id] = registered_broker(record)
            return
        known = self._brokers.get(broker_id)
        if known is None or known.epoch != record.epoch:
            self.anomalies.append(f"broker {broker_id} epoch {record.epoch} is not registered")
        elif isinstance(record, UnregisterBrokerRecord):
            del self._brokers[broker_id]
        elif isinstance(record, CordonRecord):
            self._brokers[broker_id] = known._replace(cordoned_directories=record.directories)
        else:
            self._brokers[broker_id] = _changed_broker(known, record)

    def _replay_feature(self, record: FeatureLevelRecord) -> None:
        if self._features is None:
            self._features = dict(self.image.features)
        if record.level:
            self._features[record.name] = record.level
        else:
            self._features.pop(record.name, None)

    # -- what the replayed records see -------------------------------------------------------------

    def _topic(self, topic_id: bytes) -> TopicImage | None:
        if topic_id in self._topics:
            return self._topics[topic_id]
        return self.image.topics_by_id.get(topic_id)

    def _topic_named(self, name: str) -> TopicImage | None:
        if name in self._names:
            topic_id = self._names[name]
            return None if topic_id is None else self._topics[topic_id]
        return self.image.topics.get(name)

    def _editable_partitions(self, topic_id: bytes) -> list[PartitionState] | None:
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._topic(topic_id)
            if topic is None:
                return None
            partitions = self._partitions[topic_id] = list(topic.partitions)
            self._topics.setdefault(topic_id, topic)
        return partitions

    # -- the outcome -------------------------------------------------------------------------------

    def apply(self, version: int) -> MetadataImage:
        """The image after everything that was replayed. `version`: the log index of the entry."""
        self._finish_partitions()
        self._applied = True
        self._changes = None
        before = self.image
        topics, topics_by_id, colliding_names = before.topics, before.topics_by_id, before.colliding_names
        if self._topics:
            put = {topic.topic_id: topic for topic in self._topics.values() if topic is not None}
            gone = [topic_id for topic_id, topic in self._topics.items() if topic is None]
            topics_by_id = topics_by_id.with_changes(put, gone)
            gone_names = [name for name, topic_id in self._names.items() if topic_id is None]
            topics = topics.with_changes({topic.name: topic for topic in put.values()}, gone_names)
            colliding_names = self._colliding_names_after()
        return MetadataImage(
            cluster_id=self._cluster_id,
            version=version,
            brokers=before.brokers if self._brokers is None else MappingProxyType(self._brokers),
            topics=topics,
            topics_by_id=topics_by_id,
            configs=before.configs.with_changes(*self._config_changes()) if self._configs else before.configs,
            features=before.features if self._features is None else MappingProxyType(self._features),
            next_producer_id=self._next_producer_id,
            last_broker_epoch=self._last_broker_epoch,
            colliding_names=colliding_names,
        )

    def _finish_partitions(self) -> None:
        for topic_id, partitions in self._partitions.items():
            topic = self._topics[topic_id]
            if topic is not None:
                self._topics[topic_id] = topic._replace(partitions=tuple(partitions))
        self._partitions = {}

    def _colliding_names_after(self) -> PersistentMap[str, str]:
        names = self.image.colliding_names
        put: dict[str, str] = {}
        gone: list[str] = []
        for name, topic_id in self._names.items():
            form = colliding_form(name)
            if form is None:
                continue
            if topic_id is not None:
                put[form] = name
            elif names.get(form) == name:
                gone.append(form)
        return names.with_changes(put, gone) if put or gone else names

    def _config_changes(self) -> tuple[dict[ConfigKey, Mapping[str, str]], list[ConfigKey]]:
        put = {key: MappingProxyType(values) for key, values in self._configs.items() if values}
        gone = [key for key, values in self._configs.items() if not values]
        return dict(put), gone

    # -- what changed ------------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether nothing was replayed that an image shows."""
        return not (self._topics or self._configs or self._brokers_changed or self._features) and (
            self._cluster_id == self.image.cluster_id and self._next_producer_id == self.image.next_producer_id
        )

    @property
    def topic_changes(self) -> tuple[TopicChange, ...]:
        """Every topic created, deleted or changed, in order; complete after `apply`."""
        if self._changes is None:
            before = self.image.topics_by_id.get
            pairs = [TopicChange(before(topic_id), after) for topic_id, after in self._topics.items()]
            changes = tuple([pair for pair in pairs if pair.before is not None or pair.after is not None])
            if not self._applied:
                return changes
            self._changes = changes
        return self._changes

    @property
    def created_topics(self) -> tuple[TopicImage, ...]:
        """Topics that were not there before."""
        return tuple(c.after for c in self.topic_changes if c.before is None and c.after is not None)

    @property
    def deleted_topics(self) -> tuple[TopicImage, ...]:
        """Topics that are no longer there, as they were."""
        return tuple(c.before for c in self.topic_changes if c.before is not None and c.after is None)

    @property
    def changed_topics(self) -> tuple[str, ...]:
        """Names of topics that were there before and still are, with other partitions or partition states."""
        return tuple(c.after.name for c in self.topic_changes if c.before is not None and c.after is not None)

    def topics_with_changed_configs(self, image: MetadataImage) -> Iterable[str]:
        """Names of existing topics whose effective configs may differ in `image`, the one that `apply` gave.

        All topics when the configs of brokers changed; new topics only when they came with configs.
        """
        if any(resource_type is ResourceType.BROKER for resource_type, _ in self._configs):
            return image.topics
        touched = (name for resource_type, name in self._configs if resource_type is ResourceType.TOPIC)
        return tuple(name for name in touched if name in image.topics)

    @property
    def changed_configs(self) -> tuple[ConfigKey, ...]:
        """Resources whose overrides were touched, those of deleted topics among them."""
        return tuple(self._configs)

    @property
    def changed_brokers(self) -> tuple[BrokerId, ...]:
        """Brokers registered, unregistered or changed."""
        return tuple(self._brokers_changed)


def registered_broker(record: RegisterBrokerRecord) -> BrokerRegistration:
    """A broker as it is right after this record."""
    return BrokerRegistration(
        broker_id=record.broker_id,
        incarnation_id=record.incarnation_id,
        epoch=record.epoch,
        endpoints=record.endpoints,
        rack=record.rack,
        fenced=record.fenced,
        directories=record.directories,
        features=record.features,
    )


def _changed_broker(known: BrokerRegistration, record: BrokerChangeRecord) -> BrokerRegistration:
    return known._replace(
        fenced=known.fenced if record.fenced is None else record.fenced,
        in_controlled_shutdown=(
            known.in_controlled_shutdown if record.in_controlled_shutdown is None else record.in_controlled_shutdown
        ),
        directories=known.directories if record.directories is None else record.directories,
        offline_directories=(
            known.offline_directories if record.offline_directories is None else record.offline_directories
        ),
    )


def _in_next_epoch(state: PartitionState, broker_id: BrokerId) -> PartitionState:
    if state.leader != broker_id:
        return state
    return PartitionState._make((*state[:2], state.leader_epoch + 1, state.partition_epoch + 1, *state[4:]))
