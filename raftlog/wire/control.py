"""Control records: what the brokers themselves write between the records of clients (KIP-98)."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from raftlog.wire.batch import CorruptRecord, Record, decode_batch, encode_batch
from raftlog.wire.checksum import Buffer

_KEY = Struct(">hh")
_VALUE = Struct(">hi")
_VERSION = 0


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
    kind = ControlType.COMMIT if marker.committed else ControlType.ABORT
    record = Record(
        offset=base_offset,
        timestamp=timestamp,
        key=_KEY.pack(_VERSION, kind),
        value=_VALUE.pack(_VERSION, marker.coordinator_epoch),
    )
    return encode_batch(
        [record],
        base_offset=base_offset,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        partition_leader_epoch=partition_leader_epoch,
        transactional=True,
        control=True,
    )


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
    records = decode_batch(batch, max_bytes=MAX_CONTROL_BYTES)
    return parse_transaction_marker(records[0]) if records else None


MAX_CONTROL_BYTES = 64 * 1024
"""A control batch holds one small record; KRaft's largest, the voter set, has a few kilobytes."""
