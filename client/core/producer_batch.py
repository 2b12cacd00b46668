"""A batch being filled, then sent, perhaps several times, always as the same bytes; and what became of it."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from raftlog.client.core.errors import KafkaError
from raftlog.client.core.metadata import TopicPartition
from raftlog.wire.batch import (
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    assemble_batch,
)
from raftlog.wire.compression import Compression, compress
from raftlog.wire.ids import LeaderEpoch, ProducerEpoch, ProducerId
from raftlog.wire.records import RecordBase, decode_records
from raftlog.wire.varint import encode_varint

HeaderPairs: TypeAlias = Sequence[tuple[str, bytes | None]]
_TABLE_SIZE = 1 << 11
_VARINTS = [encode_varint(value) for value in range(_TABLE_SIZE)]
"""Lengths and deltas are nearly always small: looking up costs a third of encoding."""
_ZERO = b"\x00"
_NULL = b"\x01"
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
RECORD_OVERHEAD = 24
"""Bytes that a record has at most beside key, value and headers, for numbers of ordinary size."""


class ProducerIdentity(NamedTuple):
    """Producer id and epoch (KIP-98)."""

    producer_id: int
    epoch: int


class Placed(NamedTuple):
    """Where a record went. `offset` is -1 if the brokers stored it and could not say where any more, or acks=0.

    `timestamp` in ms since 1970, the broker's if the topic has message.timestamp.type=LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class PackedRecords(NamedTuple):
    """What a batch holds, as it lies in one that is not compressed; offset deltas count from 0. Times in ms."""

    payload: bytes
    records_count: int
    base_timestamp: int
    max_timestamp: int


class ProducerBatch:
    """Records for one partition. `listeners` are called once, when `is_done`."""

    __slots__ = (
        "attempts",
        "base_offset",
        "base_sequence",
        "base_timestamp",
        "count",
        "created",
        "failure",
        "halves",
        "identity",
        "is_done",
        "is_full",
        "listeners",
        "log_append_time",
        "max_timestamp",
        "order",
        "partition",
        "parts",
        "record_errors",
        "size",
        "transactional",
        "was_sent",
        "whole",
        "wire",
    )

    def __init__(self, partition: TopicPartition, created: float, *, transactional: bool = False) -> None:
        self.partition = partition
        self.created = created
        self.transactional = transactional
        self.parts: list[bytes] = []
        self.count = 0
        self.size = 0
        self.base_timestamp = 0
        self.max_timestamp = 0
        self.is_full = False
        self.order: tuple[int, ...] = ()
        """Its place among the batches of its partition."""
        self.attempts = 0
        self.was_sent = False
        """Whether an attempt may have reached a broker: its outcome is unknown until a broker says."""
        self.identity: ProducerIdentity | None = None
        self.base_sequence = NO_SEQUENCE
        self.wire: bytes | None = None
        self.is_done = False
        self.base_offset = -1
        self.log_append_time = -1
        self.failure: KafkaError | None = None
        self.halves: list[ProducerBatch] = []
        self.whole: ProducerBatch | None = None
        """What was split, when this is a part of it."""
        self.record_errors: Mapping[int, str | None] = {}
        """Index in the batch to reason, of the records that a broker found wrong (KIP-467)."""
        self.listeners: list[Callable[[], None]] = []

    def append(self, key: bytes | None, value: bytes | None, headers: HeaderPairs, timestamp: int) -> int:
        """Adds a record, and returns its index. `timestamp` in ms since 1970."""
        index = self.count
        if not index:
            self.base_timestamp = self.max_timestamp = timestamp
        elif timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
        since = timestamp - self.base_timestamp
        fields = [
            _ZERO,
            _VARINTS[since] if 0 <= since < _TABLE_SIZE else encode_varint(since),
            _VARINTS[index] if index < _TABLE_SIZE else encode_varint(index),
        ]
        if key is None:
            fields.append(_NULL)
        else:
            size = len(key)
            fields.append(_VARINTS[size] if size < _TABLE_SIZE else encode_varint(size))
            fields.append(key)
        if value is None:
            fields.append(_NULL)
        else:
            size = len(value)
            fields.append(_VARINTS[size] if size < _TABLE_SIZE else encode_varint(size))
            fields.append(value)
        if headers:
            _add_headers(fields, headers)
        else:
            fields.append(_ZERO)
        body = b"".join(fields)
        size = len(body)
        prefix = _VARINTS[size] if size < _TABLE_SIZE else encode_varint(size)
        self.parts.append(prefix)
        self.parts.append(body)
        self.size += size + len(prefix)
        self.count = index + 1
        return index

    def fill(self, packed: PackedRecords) -> None:
        """All of its records at once; it takes no more."""
        self.parts = [packed.payload]
        self.size = len(packed.payload)
        self.count = packed.records_count
        self.base_timestamp, self.max_timestamp = packed.base_timestamp, packed.max_timestamp
        self.is_full = True

    def encode(self, compression: Compression, level: int | None = None) -> bytes:
        """The batch as it goes over the wire, the same at each attempt under the same identity and sequence."""
        if self.wire is None:
            payload = b"".join(self.parts)
            if compression:
                payload = compress(compression, payload, level)
            producer_id, epoch = self.identity or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
            header = BatchHeader(
                base_offset=0,
                batch_length=0,
                partition_leader_epoch=LeaderEpoch(NO_LEADER_EPOCH),
                magic=MAGIC,
                crc=0,
                attributes=compression | (TRANSACTIONAL_BIT if self.transactional else 0),
                last_offset_delta=self.count - 1,
                base_timestamp=self.base_timestamp,
                max_timestamp=self.max_timestamp,
                producer_id=ProducerId(producer_id),
                producer_epoch=ProducerEpoch(epoch),
                base_sequence=self.base_sequence,
                records_count=self.count,
            )
            self.wire = assemble_batch(header, payload)
        return self.wire

    def number(self, identity: ProducerIdentity, sequence: int) -> None:
        """Give the records their sequence numbers. What was encoded under others is forgotten."""
        self.identity = identity
        self.base_sequence = sequence
        self.wire = None

    def unnumber(self) -> None:
        """The brokers are known not to have it: it may get other numbers."""
        self.identity = None
        self.base_sequence = NO_SEQUENCE
        self.wire = None
        self.was_sent = False

    def split(self) -> list[ProducerBatch]:
        """Two batches of half the records each, in place of this one, which is too large for its topic.

        This one is done when both are, and its records' outcomes are theirs.
        """
        records = decode_records(b"".join(self.parts), RecordBase(self.count, 0, self.base_timestamp))
        middle = len(records) // 2
        self.halves = []
        for chunk in (records[:middle], records[middle:]):
            half = ProducerBatch(self.partition, self.created, transactional=self.transactional)
            for record in chunk:
                half.append(record.key, record.value, record.headers, record.timestamp)
            half.is_full, half.whole = True, self.whole or self
            half.listeners.append(self._half_done)
            self.halves.append(half)
        return self.halves

    def outcome(self, index: int) -> int | KafkaError:
        """What became of a record, once `is_done`: its offset (-1 if nobody can say), or why it failed."""
        batch, at = self.holder(index)
        if batch.failure is not None:
            return batch.failure
        return batch.base_offset if batch.base_offset < 0 else batch.base_offset + at

    def holder(self, index: int) -> tuple[ProducerBatch, int]:
        """Where a record is in the end, and its index there: here, or in a part that this was split into."""
        if not self.halves:
            return self, index
        first, second = self.halves
        return first.holder(index) if index < first.count else second.holder(index - first.count)

    def _half_done(self) -> None:
        if all(half.is_done for half in self.halves):
            self._finish()

    def complete(self, base_offset: int, log_append_time: int = -1) -> None:
        self.base_offset = base_offset
        self.log_append_time = log_append_time
        self._finish()

    def fail(self, failure: KafkaError, record_errors: Mapping[int, str | None] | None = None) -> None:
        self.failure = failure
        self.record_errors = record_errors or {}
        self._finish()

    def _finish(self) -> None:
        self.is_done = True
        self.parts = []
        self.wire = None
        listeners, self.listeners = self.listeners, []
        for listener in listeners:
            listener()


def check_record(value: object, key: object, headers: object, partition: object, timestamp: object) -> None:
    """Raises TypeError for what is no part of a record: in a batch it would stop the records of others."""
    _check_bytes("value", value)
    _check_bytes("key", key)
    for name, number in (("partition", partition), ("timestamp", timestamp)):
        if number is None:
            continue
        if not hasattr(number, "__index__") or not INT64_MIN <= operator.index(number) <= INT64_MAX:
            unit = ", milliseconds since 1970" if name == "timestamp" else ""
            raise TypeError(f"{name} is a whole number{unit}, not {number!r}")
    for pair in headers if isinstance(headers, Sequence) else (headers,):
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"headers are a list of pairs like ('name', b'value'), and this is {pair!r}")
        _utf8(pair[0])
        _check_bytes(f"header {pair[0]!r}", pair[1])


def _check_bytes(what: str, content: object) -> None:
    if content is not None and not isinstance(content, bytes | bytearray | memoryview):
        encode = ": .encode() makes bytes of it" if isinstance(content, str) else ""
        raise TypeError(f"{what} is bytes or None, not {type(content).__name__}{encode}")
    if isinstance(content, memoryview) and content.nbytes != len(content):
        raise TypeError(f"{what} is a memoryview of {content.format!r}, not of bytes: .cast('B') makes one of it")


def encoded_size(key: bytes | None, value: bytes | None, headers: HeaderPairs) -> int:
    """At least the bytes that a record takes in a batch."""
    size = RECORD_OVERHEAD + (len(key) if key else 0) + (len(value) if value else 0)
    for name, content in headers:
        size += 8 + 3 * len(name) + (len(content) if content else 0)
    return size


def _utf8(name: str) -> bytes:
    try:
        return name.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise TypeError(f"header {name!r} is no text: {error.reason}") from error


def _add_headers(fields: list[bytes], headers: Iterable[tuple[str, bytes | None]]) -> None:
    pairs = list(headers)
    fields.append(encode_varint(len(pairs)))
    for name, value in pairs:
        text = _utf8(name)
        fields += (encode_varint(len(text)), text)
        if value is None:
            fields.append(_NULL)
        else:
            fields += (encode_varint(len(value)), value)
