"""An image as records and back, in chunks: what a snapshot file holds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raftlog.metadata.codec import decode_records, encode_records
from raftlog.metadata.commands import NO_EPOCH
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import BrokerRegistration, MetadataImage
from raftlog.metadata.records import (
    BrokerChangeRecord,
    ClusterRecord,
    ConfigRecord,
    CordonRecord,
    FeatureLevelRecord,
    LastBrokerEpochRecord,
    NewPartitionsRecord,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    TopicRecord,
)
from raftlog.wire.ids import BrokerId

PARTITIONS_PER_CHUNK = 4096
"""About 100 KB a chunk: small enough to be checked, sent and decoded piecemeal."""
BYTES_PER_PARTITION = 25


def snapshot_records(image: MetadataImage) -> Iterator[Record]:
    """The records that make `image` out of an empty one; the same image gives the same records in the same
    order.
    """
    if image.cluster_id:
        yield ClusterRecord(image.cluster_id)
    for name, level in sorted(image.features.items()):
        yield FeatureLevelRecord(name, level)
    yield from _brokers(image)
    if image.next_producer_id:
        yield producer_ids_record(image)
    for topic in image.topics.values():
        # A huge topic goes out in slices, so that a chunk has a bound.
        first = topic.partitions[:PARTITIONS_PER_CHUNK]
        yield TopicRecord(topic.name, topic.topic_id, first, topic.internal)
        for start in range(PARTITIONS_PER_CHUNK, len(topic.partitions), PARTITIONS_PER_CHUNK):
            part = topic.partitions[start : start + PARTITIONS_PER_CHUNK]
            yield NewPartitionsRecord(topic.topic_id, part)
    for (resource_type, name), values in image.configs.items():
        yield ConfigRecord(resource_type, name, dict(values))


def producer_ids_record(image: MetadataImage) -> ProducerIdsRecord:
    """The record that says which producer id is next, reserved for no broker."""
    return ProducerIdsRecord(BrokerId(-1), NO_EPOCH, image.next_producer_id)


def broker_records(broker: BrokerRegistration) -> Iterator[Record]:
    """The records that make one broker."""
    yield RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        epoch=broker.epoch,
        endpoints=broker.endpoints,
        rack=broker.rack,
        fenced=broker.fenced,
        directories=broker.directories,
        features=broker.features,
    )
    if broker.in_controlled_shutdown or broker.offline_directories:
        yield BrokerChangeRecord(
            broker.broker_id,
            broker.epoch,
            in_controlled_shutdown=broker.in_controlled_shutdown,
            offline_directories=broker.offline_directories,
        )
    if broker.cordoned_directories:
        yield CordonRecord(broker.broker_id, broker.epoch, broker.cordoned_directories)


def _brokers(image: MetadataImage) -> Iterator[Record]:
    for broker in image.brokers.values():
        yield from broker_records(broker)
    highest = max((broker.epoch for broker in image.brokers.values()), default=0)
    if image.last_broker_epoch > highest:
        # The broker with the newest epoch has left; its epoch must not be given out again.
        yield LastBrokerEpochRecord(image.last_broker_epoch)


def encode_snapshot(image: MetadataImage) -> Iterator[bytes]:
    """The snapshot of an image as a sequence of chunks."""
    batch: list[Record] = []
    weight = 0
    for record in snapshot_records(image):
        batch.append(record)
        weight += _weight(record)
        if weight >= PARTITIONS_PER_CHUNK:
            yield encode_records(batch)
            batch, weight = [], 0
    if batch:
        yield encode_records(batch)


def _weight(record: Record) -> int:
    """How much of a chunk a record takes, in partitions."""
    if isinstance(record, (TopicRecord, NewPartitionsRecord)):
        return len(record.partitions)
    if isinstance(record, ConfigRecord):
        return 1 + sum(len(value or "") for value in record.changes.values()) // BYTES_PER_PARTITION
    return 1


def decode_snapshot(chunks: Iterable[bytes], version: int) -> MetadataImage:
    """The image of a snapshot taken after log entry `version`. Raises UnsupportedRecord and
    MalformedRecord.
    """
    delta = MetadataDelta(MetadataImage())
    for chunk in chunks:
        for record in decode_records(chunk):
            delta.replay(record)
    return delta.apply(version)
