"""What was fetched and is handed out: record batches as they came, decoded when somebody looks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raftlog.client.core.errors import DamagedRecords
from raftlog.wire.batch import BatchHeader, CorruptRecord, Record, TimestampType, check_crc, decode_batch
from raftlog.wire.records import Headers
from raftlog.wire.schema import Bytes


class ConsumerRecord(NamedTuple):
    """One record. `timestamp` in ms since 1970; `timestamp_type` says who set it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


class Piece(NamedTuple):
    """A record batch, or the part of it from offset `first` to before `end`."""

    header: BatchHeader
    data: Bytes
    first: int
    end: int

    @property
    def is_whole(self) -> bool:
        return self.first <= self.header.base_offset and self.end > self.header.last_offset


class Slice(NamedTuple):
    """Pieces of one partition, in order. `end` is where to read on after them; `leader_epoch` that of their last."""

    topic: str
    partition: int
    pieces: Sequence[Piece]
    end: int
    leader_epoch: int

    def records(self) -> list[Record]:
        """Decoded. Raises DamagedRecords."""
        found: list[Record] = []
        for piece in self.pieces:
            records = decode_piece(self.topic, self.partition, piece)
            found = found + records if found else records
        return found

    def consumer_records(self) -> Iterator[ConsumerRecord]:
        topic, partition = self.topic, self.partition
        for piece in self.pieces:
            kind = piece.header.timestamp_type
            for offset, timestamp, key, value, headers in decode_piece(topic, partition, piece):
                yield ConsumerRecord(topic, partition, offset, timestamp, key, value, headers, kind)


def decode_piece(topic: str, partition: int, piece: Piece) -> list[Record]:
    """The records of a piece whose checksum was looked at before. Raises DamagedRecords."""
    try:
        records = decode_batch(piece.data, verify_crc=False)
    except CorruptRecord as error:
        header = piece.header
        raise DamagedRecords(topic, partition, header.base_offset, str(error), header.next_offset) from error
    if piece.is_whole:
        return records
    return [record for record in records if piece.first <= record.offset < piece.end]


def verify(topic: str, partition: int, piece: Piece) -> None:
    """Raises DamagedRecords if the batch has not the checksum that it states."""
    if not check_crc(piece.data, 0, piece.header.size):
        header = piece.header
        reason = "the checksum does not match"
        raise DamagedRecords(topic, partition, header.base_offset, reason, header.next_offset)


def cut(topic: str, partition: int, piece: Piece, count: int) -> tuple[Piece, Piece | None]:
    """The first `count` records of a piece, and the rest if there is one."""
    records = decode_piece(topic, partition, piece)
    if len(records) <= count:
        return piece, None
    at = records[count].offset
    return piece._replace(end=at), piece._replace(first=at)
