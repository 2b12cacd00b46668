"""What a transactional id leaves in `__transaction_state`, as a value and as bytes.

Kafka's key 0 and value 1 (0 while transaction.version is 0). The value is packed and parsed here by hand, for it is
written several times in each transaction and read thousandfold when a coordinator is loaded; the schema of
`raftlog.wire.internal` reads what Kafka may have written otherwise, and tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from raftlog.broker.core.coordinator.loading import UnreadableRecord
from raftlog.broker.core.transaction.state import (
    HAS_ENDED,
    IS_ENDING,
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from raftlog.wire import internal
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.internal.transaction_log import PartitionsSchema, TransactionLogValue
from raftlog.wire.varint import encode_unsigned_varint

_KEY_VERSION = 0
_VALUE_VERSION = 1
_KEY_HEAD = Struct(">hh")
# Version, producer id, epoch, time-out, state.
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")
_INT32 = Struct(">i")
# Number, size and value of a tagged field: the producer ids before and after, the client's version.
_PREVIOUS_ID = Struct(">BBq")
_NEXT_ID = Struct(">BBq")
_CLIENT_VERSION = Struct(">BBh")
_PREVIOUS_ID_TAG, _NEXT_ID_TAG, _CLIENT_VERSION_TAG = 0, 1, 2
_NULL, _NO_TAGS = b"\x00", b"\x00"


class TransactionRecord(NamedTuple):
    """A transactional id has come to be like this; None when it is forgotten."""

    transactional_id: str
    value: TransactionMetadata | None


# --- writing


def encode_record(record: TransactionRecord, transaction_version: int) -> tuple[bytes, bytes | None]:
    """Key and value, as they are at this level of transaction.version; the value of a removal is None."""
    name = record.transactional_id.encode()
    key = _KEY_HEAD.pack(_KEY_VERSION, len(name)) + name
    value = record.value
    if value is None:
        return key, None
    # A client that speaks a newer protocol than the cluster has must not lose what the old form has no room for.
    if not transaction_version and not value.client_version:
        return key, internal.encode_internal(_to_schema(value), 0)
    return key, _encode_value(value)


def _encode_value(value: TransactionMetadata) -> bytes:
    tags = []
    if value.previous_producer_id != NO_PRODUCER_ID:
        tags.append(_PREVIOUS_ID.pack(_PREVIOUS_ID_TAG, 8, value.previous_producer_id))
    if value.next_producer_id != NO_PRODUCER_ID:
        tags.append(_NEXT_ID.pack(_NEXT_ID_TAG, 8, value.next_producer_id))
    if value.client_version:
        tags.append(_CLIENT_VERSION.pack(_CLIENT_VERSION_TAG, 2, value.client_version))
    return b"".join(
        (
            _HEAD.pack(_VALUE_VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, value.state),
            _NULL if value.state is TransactionState.EMPTY else _encode_partitions(value.partitions),
            _TIMES.pack(value.last_update_ms, value.start_ms),
            encode_unsigned_varint(len(tags)),
            *tags,
        )
    )


def _encode_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics = by_topic(partitions)
    parts = [encode_unsigned_varint(len(topics) + 1)]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += (encode_unsigned_varint(len(name) + 1), name, encode_unsigned_varint(len(indexes) + 1))
        parts += (_INT32.pack(index) for index in indexes)
        parts.append(_NO_TAGS)
    return b"".join(parts)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Partitions as lists by topic, all in order."""
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return topics


def _to_schema(value: TransactionMetadata) -> TransactionLogValue:
    """Without what the first form has no room for."""
    topics = None if value.state is TransactionState.EMPTY else by_topic(value.partitions)
    return TransactionLogValue(
        producer_id=value.producer_id,
        producer_epoch=value.producer_epoch,
        transaction_timeout_ms=value.timeout_ms,
        transaction_status=value.state,
        transaction_partitions=None
        if topics is None
        else [PartitionsSchema(topic=topic, partition_ids=indexes) for topic, indexes in topics.items()],
        transaction_last_update_timestamp_ms=value.last_update_ms,
        transaction_start_timestamp_ms=value.start_ms,
    )


# --- reading


def decode_record(key: bytes, value: bytes | None) -> TransactionRecord | None:
    """The record, or None when it is of a kind that this version does not know. Raises UnreadableRecord."""
    try:
        kind, length = _KEY_HEAD.unpack_from(key)
        if kind != _KEY_VERSION:
            return None
        if length < 0 or len(key) != _KEY_HEAD.size + length:
            raise UnreadableRecord(f"key {key[:64]!r}: its length does not fit")
        name = key[_KEY_HEAD.size :].decode()
        return TransactionRecord(name, None if value is None else _decode_value(value))
    except (StructError, IndexError, UnicodeDecodeError, RemoteProtocolError) as error:
        raise UnreadableRecord(f"key {key[:64]!r}: {error}") from error


_AFTER_HEAD = _HEAD.size
_AFTER_TIMES = _AFTER_HEAD + 1 + _TIMES.size
# What follows the times when the only tagged fields are the previous id, and perhaps the client's version.
_ONE_TAG = bytes((1, _PREVIOUS_ID_TAG, 8))
_TWO_TAGS = bytes((2, _PREVIOUS_ID_TAG, 8))
_ONE_TAG_SIZE = _AFTER_TIMES + 1 + _PREVIOUS_ID.size
_TWO_TAGS_SIZE = _ONE_TAG_SIZE + _CLIENT_VERSION.size


def _decode_value(value: bytes) -> TransactionMetadata:
    # Nearly all ids of a log that is loaded are between two transactions: no partitions, one or two tagged fields.
    size = len(value)
    if size in (_ONE_TAG_SIZE, _TWO_TAGS_SIZE) and value[0:2] == b"\x00\x01" and value[_AFTER_HEAD] <= 1:
        client_version = 0
        known = value[_AFTER_TIMES : _AFTER_TIMES + 3] == _ONE_TAG
        if size == _TWO_TAGS_SIZE:
            tag, tag_size, client_version = _CLIENT_VERSION.unpack_from(value, _ONE_TAG_SIZE)
            known = value[_AFTER_TIMES : _AFTER_TIMES + 3] == _TWO_TAGS and (tag, tag_size) == (2, 2)
        if known:
            _, producer_id, epoch, timeout_ms, status = _HEAD.unpack_from(value)
            last_update_ms, start_ms = _TIMES.unpack_from(value, _AFTER_HEAD + 1)
            _, _, previous = _PREVIOUS_ID.unpack_from(value, _AFTER_TIMES + 1)
            return TransactionMetadata(
                _state(status),
                producer_id,
                previous,
                NO_PRODUCER_ID,
                epoch,
                NO_PRODUCER_EPOCH,
                timeout_ms,
                NO_PARTITIONS,
                start_ms,
                last_update_ms,
                client_version,
            )
    return _from_schema(internal.decode_internal(TransactionLogValue, value))


_STORED = {int(state): state for state in (*HAS_ENDED, *IS_ENDING, TransactionState.ONGOING)}


def _state(status: int) -> TransactionState:
    state = _STORED.get(status)
    if state is None:
        raise UnreadableRecord(f"a transaction in state {status}")
    return state


def _from_schema(decoded: TransactionLogValue) -> TransactionMetadata:
    partitions = [
        (topic.topic, index) for topic in decoded.transaction_partitions or () for index in topic.partition_ids
    ]
    return TransactionMetadata(
        _state(decoded.transaction_status),
        ProducerId(decoded.producer_id),
        ProducerId(decoded.previous_producer_id),
        ProducerId(decoded.next_producer_id),
        ProducerEpoch(decoded.producer_epoch),
        NO_PRODUCER_EPOCH,
        decoded.transaction_timeout_ms,
        frozenset(partitions) if partitions else NO_PARTITIONS,
        decoded.transaction_start_timestamp_ms,
        decoded.transaction_last_update_timestamp_ms,
        decoded.client_transaction_version,
    )
