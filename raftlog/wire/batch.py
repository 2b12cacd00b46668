"""Record batches of format version 2: the unit that is produced, stored, replicated and fetched (KIP-98).

Formats 0 and 1, which Kafka 4 no longer accepts from clients (KIP-724), are recognised and refused.

    0  base offset      int64     17 checksum          uint32    43 producer id     int64
    8  length after it  int32     21 attributes        int16     51 producer epoch  int16
    12 leader epoch     int32     23 last offset delta int32     53 base sequence   int32
    16 magic            int8      27 base timestamp    int64     57 record count    int32
                                  35 max timestamp     int64     61 records

The checksum covers everything from the attributes on. Base offset and leader epoch lie before it, so that a
leader sets both without touching it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, cast

from raftlog.wire.checksum import Buffer, crc32c
from raftlog.wire.compression import Compression, CorruptCompression, compress, decompress, decompress_in_pieces
from raftlog.wire.ids import LeaderEpoch, ProducerEpoch, ProducerId
from raftlog.wire.records import (
    CorruptRecord,
    Headers,
    Kind,
    Record,
    RecordBase,
    decode_records_as,
    encode_records,
)

__all__ = [
    "HEADER_SIZE",
    "MAX_DECOMPRESSED_BYTES",
    "BatchHeader",
    "CorruptRecord",
    "Headers",
    "Record",
    "TimestampType",
    "UnsupportedMagic",
    "assemble_batch",
    "check_crc",
    "decode_batch",
    "decode_records_of",
    "encode_batch",
    "iterate_batches",
    "parse_header",
    "stamp_batch",
    "unpack_in_pieces",
    "unpack_payload",
]

HEADER_SIZE = 61
LENGTH_END = 12
"""Where counting of `batch_length` begins: a batch has 12 bytes more than it says."""
MAGIC_OFFSET = 16
CRC_OFFSET = 17
ATTRIBUTES_OFFSET = 21
MAGIC = 2

CODEC_MASK = 0x07
LOG_APPEND_TIME_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40
"""KIP-534: the base timestamp is the time from which tombstones and transaction markers of the batch may
go."""

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_LEADER_EPOCH = -1
EPOCH_AT = 12
"""Where a header has its leader epoch."""

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""What one batch may unfold to unless the caller says otherwise: a hundred times Kafka's default for the
packed size (max.message.bytes), and little enough to be survived by a process that did not expect it."""

HEADER_LAYOUT = Struct(">qiibIhiqqqhii")
_CHECKED = Struct(">hiqqqhii")
_UNCHECKED = Struct(">qiibI")
_STAMP = Struct(">qii")


class TimestampType(IntEnum):
    """Who set the timestamps of a batch (message.timestamp.type, KIP-32)."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class UnsupportedMagic(CorruptRecord):
    """A batch of another format version than 2."""

    def __init__(self, magic: int) -> None:
        super().__init__(f"message format version {magic} is not supported")
        self.magic = magic


class BatchHeader(NamedTuple):
    """The header as it lies on disk. `batch_length` counts the bytes after the length field; see `size`."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: LeaderEpoch
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: ProducerId
    producer_epoch: ProducerEpoch
    base_sequence: int
    records_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_END

    @property
    def last_offset(self) -> int:
        """Offset of the last record, or of what was the last record before compaction."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> Compression:
        """Raises CorruptRecord for the ids 5 to 7, which nobody has defined."""
        try:
            return Compression(self.attributes & CODEC_MASK)
        except ValueError:
            raise CorruptRecord(f"unknown compression codec {self.attributes & CODEC_MASK}") from None

    @property
    def timestamp_type(self) -> TimestampType:
        return TimestampType(self.attributes >> 3 & 1)

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_BIT != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_BIT != 0

    @property
    def delete_horizon_ms(self) -> int | None:
        """When tombstones and markers of this batch may be removed, in ms since 1970 (KIP-534); None if not
        decided."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_BIT else None

    @property
    def last_sequence(self) -> int:
        """Sequence number of the last record; sequences wrap from 2^31 - 1 to 0. -1 without a producer."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return self.base_sequence + self.last_offset_delta & 0x7FFFFFFF


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`; the records need not be there.

    Raises UnsupportedMagic for another format, CorruptRecord if there are too few bytes or the length is
    impossible.
    """
    try:
        header = BatchHeader._make(HEADER_LAYOUT.unpack_from(buffer, position))
    except StructError:
        # An old format's batch may be shorter than our header, and is to be named for what it is.
        if position + MAGIC_OFFSET < len(buffer) and buffer[position + MAGIC_OFFSET] != MAGIC:
            raise UnsupportedMagic(_signed_byte(buffer[position + MAGIC_OFFSET])) from None
        raise CorruptRecord(f"{len(buffer) - position} bytes where a header has {HEADER_SIZE}") from None
    if header.magic != MAGIC:
        raise UnsupportedMagic(header.magic)
    if header.batch_length < HEADER_SIZE - LENGTH_END:
        raise CorruptRecord(f"a batch length of {header.batch_length} is less than a header has")
    return header


def _signed_byte(byte: int) -> int:
    return byte - 256 if byte > 127 else byte


def check_crc(buffer: Buffer, position: int, size: int) -> bool:
    """Whether the batch of `size` bytes (BatchHeader.size) at `position` has the checksum it states."""
    view = memoryview(buffer)
    stated = int.from_bytes(view[position + CRC_OFFSET : position + ATTRIBUTES_OFFSET], "big")
    return crc32c(view[position + ATTRIBUTES_OFFSET : position + size]) == stated


def stamp_batch(
    buffer: bytearray | memoryview, header: BatchHeader, base_offset: int, leader_epoch: LeaderEpoch
) -> None:
    """Write what only a leader knows into the batch at the start of `buffer`. The checksum stays right."""
    _STAMP.pack_into(buffer, 0, base_offset, header.batch_length, leader_epoch)


def iterate_batches(buffer: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch, in order.

    A batch that is cut short ends the iteration silently: a fetch reply may end anywhere (KIP-74). Raises
    CorruptRecord where the bytes are no batch. Checksums are not looked at.
    """
    position, end = 0, len(buffer)
    while end - position > MAGIC_OFFSET:
        length = int.from_bytes(buffer[position + 8 : position + LENGTH_END], "big", signed=True)
        if length >= 0 and position + LENGTH_END + length > end and buffer[position + MAGIC_OFFSET] == MAGIC:
            return
        header = parse_header(buffer, position)
        yield position, header
        position += header.size


def unpack_payload(batch: Buffer, header: BatchHeader, max_bytes: int) -> bytes:
    """The records of the batch at the start of `batch`, decompressed, as one buffer.

    Raises CorruptRecord if they cannot be unpacked or are more than `max_bytes`.
    """
    packed = _packed(batch, header)
    if not header.attributes & CODEC_MASK and len(packed) <= max_bytes:
        return bytes(packed)
    try:
        return decompress(header.codec, packed, max_bytes)
    except CorruptCompression as error:
        raise CorruptRecord(str(error)) from error


def unpack_in_pieces(batch: Buffer, header: BatchHeader, max_bytes: int) -> memoryview:
    """The same for a thread beside others, see `decompress_in_pieces`."""
    try:
        return decompress_in_pieces(header.codec, _packed(batch, header), max_bytes)
    except CorruptCompression as error:
        raise CorruptRecord(str(error)) from error


def _packed(batch: Buffer, header: BatchHeader) -> memoryview:
    if len(batch) < header.size:
        raise CorruptRecord(f"{len(batch)} bytes of a batch of {header.size}")
    return memoryview(batch)[HEADER_SIZE : header.size]


def decode_batch(batch: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, verify_crc: bool = True) -> list[Record]:
    """The records of the batch at the start of `batch`; what follows the batch is ignored.

    `max_bytes` bounds the decompressed records. Raises CorruptRecord, or UnsupportedMagic, which is one.
    """
    header = parse_header(batch)
    if len(batch) < header.size:
        raise CorruptRecord(f"{len(batch)} bytes of a batch of {header.size}")
    if verify_crc and not check_crc(batch, 0, header.size):
        raise CorruptRecord("the checksum does not match")
    return decode_records_of(Record, batch, header, max_bytes=max_bytes)


def decode_records_of(
    kind: type[Kind],
    batch: Buffer,
    header: BatchHeader,
    common: tuple[object, ...] = (),
    *,
    max_bytes: int = MAX_DECOMPRESSED_BYTES,
) -> list[Kind]:
    """The records of a batch whose header was parsed, as `decode_records_as` makes them. The checksum is not looked at.

    Raises CorruptRecord.
    """
    if header.records_count == 0 and header.size == HEADER_SIZE:
        # Compaction leaves an empty batch to remember a producer's last sequence; there is nothing to unpack.
        return []
    append_time = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    base = RecordBase(header.records_count, header.base_offset, header.base_timestamp, append_time)
    records = decode_records_as(kind, unpack_payload(batch, header, max_bytes), base, common)
    # The first field is the offset, whatever kind of tuple it is.
    if records and cast(int, records[-1][0]) > header.last_offset:
        raise CorruptRecord(f"a record at offset {records[-1][0]} in a batch that ends at {header.last_offset}")
    return records


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    partition_leader_epoch: int = NO_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
    timestamp_type: TimestampType = TimestampType.CREATE_TIME,
) -> bytes:
    """One batch of `records`, whose offsets must rise and begin at `base_offset` or later.

    With LOG_APPEND_TIME the greatest of the records' timestamps becomes that of all. Raises ValueError on no
    records.
    """
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp = records[0].timestamp
    attributes = compression | timestamp_type << 3
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    if control:
        attributes |= CONTROL_BIT
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=0,
        partition_leader_epoch=LeaderEpoch(partition_leader_epoch),
        magic=MAGIC,
        crc=0,
        attributes=attributes,
        last_offset_delta=records[-1].offset - base_offset,
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
        producer_id=ProducerId(producer_id),
        producer_epoch=ProducerEpoch(producer_epoch),
        base_sequence=base_sequence,
        records_count=len(records),
    )
    payload = encode_records(records, base_offset, base_timestamp)
    if compression:
        payload = compress(compression, payload, level)
    return assemble_batch(header, payload)


def encode_packed_batch(payload: bytes, count: int, timestamp: int) -> bytes:
    """One batch of `count` records that are packed already: the n-th has n as its offset delta, all one timestamp."""
    return assemble_batch(
        BatchHeader(
            base_offset=0,
            batch_length=0,
            partition_leader_epoch=LeaderEpoch(NO_LEADER_EPOCH),
            magic=MAGIC,
            crc=0,
            attributes=Compression.NONE,
            last_offset_delta=count - 1,
            base_timestamp=timestamp,
            max_timestamp=timestamp,
            producer_id=ProducerId(NO_PRODUCER_ID),
            producer_epoch=ProducerEpoch(NO_PRODUCER_EPOCH),
            base_sequence=NO_SEQUENCE,
            records_count=count,
        ),
        payload,
    )


def assemble_batch(header: BatchHeader, packed: Buffer) -> bytes:
    """A batch of `header` and records that are packed already; `batch_length` and `crc` are computed anew."""
    checked = _CHECKED.pack(*header[5:])
    return b"".join(
        (
            _UNCHECKED.pack(
                header.base_offset,
                HEADER_SIZE - LENGTH_END + len(packed),
                header.partition_leader_epoch,
                header.magic,
                crc32c(packed, crc32c(checked)),
            ),
            checked,
            packed,
        )
    )
