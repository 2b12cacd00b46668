"""Control records: what the brokers themselves write between the records of clients (KIP-98)."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from raftlog.wire.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    LENGTH_END,
    MAGIC,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    CorruptRecord,
    Record,
    decode_batch,
)
from raftlog.wire.checksum import Buffer, crc32c

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0

# A batch with a marker always has the same form, and is written and read as a whole: the header as `batch.py` draws it,
# then the record. Before its key stand its length (16), attributes, both deltas and the key's length, before its value
# that one's length; all lengths are zigzag varints of one byte.
_UNCHECKED = Struct(">qiibI")
_CHECKED = Struct(">hiqqqhii5shhBhiB")
_MARKER_SIZE = _UNCHECKED.size + _CHECKED.size
_BEFORE_KEY = bytes((2 * 16, 0, 0, 0, 2 * _KEY.size))
_BEFORE_VALUE = 2 * _VALUE.size
_NO_HEADERS = 0


class ControlType(IntEnum):
    """The type in a control record's key. Readers skip types they do not know; only the first two end
    transactions."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


# An attribute of an enum costs as much as a call.
_ABORT, _COMMIT = _ENDS = int(ControlType.ABORT), int(ControlType.COMMIT)


class TransactionMarker(NamedTuple):
    """The end of one producer's transaction in one partition."""

    committed: bool
    coordinator_epoch: int
    """Epoch of the transaction coordinator that wrote it; fences out an older coordinator (KIP-98)."""


def encode_transaction_marker(
    marker: TransactionMarker,
    *,
    producer_id: int,
    producer_epoch: int,
    timestamp: int,
    base_offset: int = 0,
    partition_leader_epoch: int = -1,
) -> bytes:
    """A batch with one marker. `timestamp` in ms since 1970."""
    kind = _COMMIT if marker.committed else _ABORT
    checked = _CHECKED.pack(
        *(TRANSACTIONAL_BIT | CONTROL_BIT, 0, timestamp, timestamp, producer_id, producer_epoch, NO_SEQUENCE, 1),
        *(_BEFORE_KEY, _VERSION, kind, _BEFORE_VALUE, _VERSION, marker.coordinator_epoch, _NO_HEADERS),
    )
    length = _MARKER_SIZE - LENGTH_END
    return _UNCHECKED.pack(base_offset, length, partition_leader_epoch, MAGIC, crc32c(checked)) + checked


def control_type(key: bytes | None) -> int:
    """The type in a control record's key, known or not. Raises CorruptRecord if there is none.

    Later versions of the key may be longer; what is known of them stays in front.
    """
    if key is None or len(key) < _KEY.size:
        raise CorruptRecord("a control record without a type")
    version, kind = _KEY.unpack_from(key)
    if version < 0:
        raise CorruptRecord(f"a control record of version {version}")
    return int(kind)


def parse_transaction_marker(record: Record) -> TransactionMarker | None:
    """What the control record ends, or None if it is another kind of control record. Raises CorruptRecord."""
    kind = control_type(record.key)
    if kind not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if record.value is None or len(record.value) < _VALUE.size:
        raise CorruptRecord("a transaction marker without a coordinator epoch")
    version, coordinator_epoch = _VALUE.unpack_from(record.value)
    if version < 0:
        raise CorruptRecord(f"a transaction marker of version {version}")
    return TransactionMarker(kind == ControlType.COMMIT, coordinator_epoch)


def decode_control_batch(batch: Buffer) -> TransactionMarker | None:
    """The marker in a control batch; None for other control types and for a batch that compaction has
    emptied."""
    if len(batch) == _MARKER_SIZE and (marker := _decode_as_written(batch)) is not None:
        return marker
    records = decode_batch(batch, max_bytes=MAX_CONTROL_BYTES)
    return parse_transaction_marker(records[0]) if records else None


def _decode_as_written(batch: Buffer) -> TransactionMarker | None:
    """The marker in a batch that is as `encode_transaction_marker` writes it, and Kafka; None for any other."""
    _, length, _, magic, crc = _UNCHECKED.unpack_from(batch)
    attributes, last_offset_delta, _, _, _, _, _, count, *record = _CHECKED.unpack_from(batch, ATTRIBUTES_OFFSET)
    before_key, key_version, kind, before_value, value_version, coordinator_epoch, headers = record
    is_as_written = (
        (length, magic, last_offset_delta, count) == (_MARKER_SIZE - LENGTH_END, MAGIC, 0, 1)
        and (before_key, before_value, headers) == (_BEFORE_KEY, _BEFORE_VALUE, _NO_HEADERS)
        and key_version == value_version == _VERSION
        and kind in _ENDS
        and not attributes & CODEC_MASK
        and crc32c(memoryview(batch)[ATTRIBUTES_OFFSET:]) == crc
    )
    return TransactionMarker(kind == _COMMIT, coordinator_epoch) if is_as_written else None


MAX_CONTROL_BYTES = 64 * 1024
"""A control batch holds one small record; KRaft's largest, the voter set, has a few kilobytes."""
