"""The records that lead from one image to another: for a node that is given a newer state as a whole."""

from __future__ import annotations

from collections.abc import Iterator

from raftlog.metadata.image import MetadataImage, TopicImage
from raftlog.metadata.records import (
    ClusterRecord,
    ConfigRecord,
    FeatureLevelRecord,
    LastBrokerEpochRecord,
    NewPartitionsRecord,
    PartitionChangeRecord,
    Record,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
)
from raftlog.metadata.snapshot import broker_records, producer_ids_record


def records_between(before: MetadataImage, after: MetadataImage) -> Iterator[Record]:
    """Records that, replayed on `before`, give `after`."""
    if after.cluster_id != before.cluster_id:
        yield ClusterRecord(after.cluster_id)
    for name in sorted({*before.features, *after.features}):
        if before.features.get(name, 0) != after.features.get(name, 0):
            yield FeatureLevelRecord(name, after.features.get(name, 0))
    yield from _brokers(before, after)
    if after.last_broker_epoch > before.last_broker_epoch:
        yield LastBrokerEpochRecord(after.last_broker_epoch)
    if after.next_producer_id > before.next_producer_id:
        yield producer_ids_record(after)
    for topic_id in before.topics_by_id:
        if topic_id not in after.topics_by_id:
            yield RemoveTopicRecord(topic_id)
    for topic in after.topics.values():
        yield from _topic(before.topics_by_id.get(topic.topic_id), topic)
    yield from _configs(before, after)


def _brokers(before: MetadataImage, after: MetadataImage) -> Iterator[Record]:
    for broker_id, known in before.brokers.items():
        if broker_id not in after.brokers:
            yield UnregisterBrokerRecord(broker_id, known.epoch)
    for broker_id, broker in after.brokers.items():
        if broker != before.brokers.get(broker_id):
            yield from broker_records(broker)


def _topic(before: TopicImage | None, after: TopicImage) -> Iterator[Record]:
    if before is None:
        yield TopicRecord(after.name, after.topic_id, after.partitions, after.internal)
        return
    if before is after or before.partitions == after.partitions:
        return
    count = len(before.partitions)
    changed = tuple(new for old, new in zip(before.partitions, after.partitions, strict=False) if old != new)
    if changed:
        yield PartitionChangeRecord(after.topic_id, changed)
    if len(after.partitions) > count:
        yield NewPartitionsRecord(after.topic_id, after.partitions[count:])


def _configs(before: MetadataImage, after: MetadataImage) -> Iterator[Record]:
    for key in (*(key for key in before.configs if key not in after.configs), *after.configs):
        if key[0] is ResourceType.TOPIC and key[1] not in after.topics:
            continue  # gone with its topic
        old, new = before.configs.get(key, {}), after.configs.get(key, {})
        if key[0] is ResourceType.TOPIC and _is_another_topic(before, after, key[1]):
            old = {}
        changes: dict[str, str | None] = {name: None for name in old if name not in new}
        changes.update({name: value for name, value in new.items() if old.get(name) != value})
        if changes:
            yield ConfigRecord(key[0], key[1], changes)


def _is_another_topic(before: MetadataImage, after: MetadataImage, name: str) -> bool:
    """Whether a topic of that name was made after another one of that name was deleted, with its configs."""
    old = before.topics.get(name)
    return old is not None and old.topic_id != after.topics[name].topic_id
