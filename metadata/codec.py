"""Records to bytes and back: what a metadata log entry and a snapshot hold.

One entry is the records of one decision, all or nothing: a msgpack array `[ENTRY_FORMAT, [record, …]]`,
each record an array `[type, version, field, …]`. A type number is never given to another record, and a
record's version grows when its fields change. An entry, type or version that this code does not know raises
`UnsupportedRecord` (forward-refusing): a node that cannot understand the log must not guess. Partitions are
written without the fields at their end that are at their default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import msgpack

from raftlog.metadata.records import (
    BrokerChangeRecord,
    ClusterRecord,
    ConfigRecord,
    CordonRecord,
    Endpoint,
    FeatureLevelRecord,
    FeatureRange,
    LastBrokerEpochRecord,
    NewLeaderEpochsRecord,
    NewPartitionsRecord,
    PartitionChangeRecord,
    PartitionState,
    ProducerIdsRecord,
    Record,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    ResourceType,
    TopicRecord,
    UnregisterBrokerRecord,
)

ENTRY_FORMAT = 1
R = TypeVar("R")


class UnsupportedRecord(ValueError):
    """The metadata log was written by a newer version of raftlog (or is none at all). Says what is not known here."""


class MalformedRecord(ValueError):
    """An entry whose checksum was right has contents that no version of raftlog wrote."""


_PARTITION_DEFAULTS = tuple(PartitionState._field_defaults.values())
_REQUIRED = len(PartitionState._fields) - len(_PARTITION_DEFAULTS)
_OWN = 4
"""The first fields of a partition, its index, leader and epochs, are its own; the others are those of many."""


def _pack_partition(state: PartitionState) -> Sequence[Any]:
    if state[_REQUIRED:] == _PARTITION_DEFAULTS:
        return state[:_REQUIRED]
    return state


class _Interner:
    """Shares equal tuples: ten thousand partitions of one replica set keep one tuple between them."""

    def __init__(self) -> None:
        self._tuples: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._rests: dict[Sequence[Any], tuple[Any, ...]] = {}

    def _tuple(self, values: Iterable[Any]) -> tuple[Any, ...]:
        made = tuple(values)
        return self._tuples.setdefault(made, made)

    def partition(self, fields: Sequence[Any]) -> PartitionState:
        """The state that `_pack_partition` wrote.

        What follows the first fields is looked up as a whole: few of an entry's partitions differ in that, and a start
        decodes hundreds of thousands.
        """
        written = fields[_OWN:]
        rest = self._rests.get(written)
        if rest is None:
            rest = self._rests[written] = self._rest(written)
        return tuple.__new__(PartitionState, (*fields[:_OWN], *rest))

    def _rest(self, written: Sequence[Any]) -> tuple[Any, ...]:
        if len(written) == _REQUIRED - _OWN:
            return (*map(self._tuple, written), *_PARTITION_DEFAULTS)
        if len(written) != len(PartitionState._fields) - _OWN:
            raise TypeError(f"a partition of {_OWN + len(written)} fields")
        return tuple([self._tuple(field) if isinstance(field, tuple) else field for field in written])


def _unpack_partitions(rows: Iterable[Sequence[Any]], interner: _Interner) -> tuple[PartitionState, ...]:
    return tuple(map(interner.partition, rows))


class _RecordType(NamedTuple):
    number: int
    version: int
    pack: Callable[[Any], tuple[Any, ...]]
    unpack: Callable[[Sequence[Any], _Interner], Record]


def _pack_register(record: RegisterBrokerRecord) -> tuple[Any, ...]:
    return (
        record.broker_id,
        record.incarnation_id,
        record.epoch,
        record.endpoints,
        record.rack,
        record.fenced,
        record.directories,
        record.features,
    )


def _unpack_register(fields: Sequence[Any], _: _Interner) -> RegisterBrokerRecord:
    broker_id, incarnation_id, epoch, endpoints, rack, fenced, directories, *later = fields
    found = tuple(Endpoint(*endpoint) for endpoint in endpoints)
    features = tuple(FeatureRange(*feature) for feature in later[0]) if later else ()
    return RegisterBrokerRecord(broker_id, incarnation_id, epoch, found, rack, fenced, tuple(directories), features)


def _unpack_broker_change(fields: Sequence[Any], _: _Interner) -> BrokerChangeRecord:
    broker_id, epoch, fenced, shutdown, *directories = fields
    found = [None if ids is None else tuple(ids) for ids in directories]
    return BrokerChangeRecord(broker_id, epoch, fenced, shutdown, *found)


def _pack_topic(record: TopicRecord) -> tuple[Any, ...]:
    return record.name, record.topic_id, [_pack_partition(p) for p in record.partitions], record.internal


def _unpack_topic(fields: Sequence[Any], interner: _Interner) -> TopicRecord:
    name, topic_id, partitions, internal = fields
    return TopicRecord(name, topic_id, _unpack_partitions(partitions, interner), internal)


def _pack_partitions(record: NewPartitionsRecord | PartitionChangeRecord) -> tuple[Any, ...]:
    return record.topic_id, [_pack_partition(p) for p in record.partitions]


def _unpack_new_partitions(fields: Sequence[Any], interner: _Interner) -> NewPartitionsRecord:
    topic_id, partitions = fields
    return NewPartitionsRecord(topic_id, _unpack_partitions(partitions, interner))


def _unpack_partition_change(fields: Sequence[Any], interner: _Interner) -> PartitionChangeRecord:
    topic_id, partitions = fields
    return PartitionChangeRecord(topic_id, _unpack_partitions(partitions, interner))


def _pack_config(record: ConfigRecord) -> tuple[Any, ...]:
    return int(record.resource_type), record.resource_name, dict(record.changes)


def _unpack_config(fields: Sequence[Any], _: _Interner) -> ConfigRecord:
    resource_type, name, changes = fields
    return ConfigRecord(ResourceType(resource_type), name, changes)


_TYPES: dict[type, _RecordType] = {
    ClusterRecord: _RecordType(1, 0, lambda r: (r.cluster_id,), lambda f, _: ClusterRecord(*f)),
    FeatureLevelRecord: _RecordType(2, 0, lambda r: (r.name, r.level), lambda f, _: FeatureLevelRecord(*f)),
    RegisterBrokerRecord: _RecordType(3, 1, _pack_register, _unpack_register),
    BrokerChangeRecord: _RecordType(
        4,
        1,
        tuple,
        _unpack_broker_change,
    ),
    UnregisterBrokerRecord: _RecordType(
        5, 0, lambda r: (r.broker_id, r.epoch), lambda f, _: UnregisterBrokerRecord(*f)
    ),
    TopicRecord: _RecordType(6, 0, _pack_topic, _unpack_topic),
    NewPartitionsRecord: _RecordType(7, 0, _pack_partitions, _unpack_new_partitions),
    PartitionChangeRecord: _RecordType(8, 0, _pack_partitions, _unpack_partition_change),
    RemoveTopicRecord: _RecordType(9, 0, lambda r: (r.topic_id,), lambda f, _: RemoveTopicRecord(*f)),
    ConfigRecord: _RecordType(10, 0, _pack_config, _unpack_config),
    ProducerIdsRecord: _RecordType(
        11,
        0,
        lambda r: (r.broker_id, r.broker_epoch, r.next_producer_id),
        lambda f, _: ProducerIdsRecord(*f),
    ),
    LastBrokerEpochRecord: _RecordType(12, 0, lambda r: (r.epoch,), lambda f, _: LastBrokerEpochRecord(*f)),
    NewLeaderEpochsRecord: _RecordType(13, 0, lambda r: (r.broker_id,), lambda f, _: NewLeaderEpochsRecord(*f)),
    CordonRecord: _RecordType(19, 0, tuple, lambda f, _: CordonRecord(f[0], f[1], tuple(f[2]))),
    # Kept for what comes: 14 SCRAM credentials, 15 ACLs, 16 client quotas, 17 quorum voters, 18 tokens.
}
_BY_NUMBER = {entry.number: entry for entry in _TYPES.values()}


def encode_records(records: Iterable[Record]) -> bytes:
    """The log entry that holds these records."""
    rows = []
    for record in records:
        kind = _TYPES[type(record)]
        rows.append((kind.number, kind.version, *kind.pack(record)))
    return cast(bytes, msgpack.packb((ENTRY_FORMAT, rows)))


def decode_records(entry: bytes | bytearray | memoryview) -> list[Record]:
    """The records of a log entry. Raises UnsupportedRecord and MalformedRecord."""
    try:
        decoded = msgpack.unpackb(entry, use_list=False, strict_map_key=False)
        entry_format, rows = decoded[0], decoded[1]
    except (ValueError, TypeError, IndexError, msgpack.exceptions.UnpackException) as error:
        raise MalformedRecord(f"not a metadata log entry: {error}") from error
    if entry_format != ENTRY_FORMAT:
        raise UnsupportedRecord(f"an entry of format {entry_format}")
    interner = _Interner()
    try:
        return [_decode_row(row, interner) for row in rows]
    except (TypeError, IndexError, KeyError, AttributeError) as error:
        raise MalformedRecord(f"not a list of records: {error}") from error


def _decode_row(row: Sequence[Any], interner: _Interner) -> Record:
    kind = _BY_NUMBER.get(row[0])
    if kind is None:
        raise UnsupportedRecord(f"a record of type {row[0]}")
    if row[1] > kind.version:
        raise UnsupportedRecord(f"version {row[1]} of a record of type {row[0]}")
    try:
        return kind.unpack(row[2:], interner)
    except (ValueError, TypeError) as error:
        raise MalformedRecord(f"record type {row[0]} has wrong fields: {error}") from error
