"""What was fetched and is handed out: record batches as they came, decoded when somebody looks."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter
from typing import NamedTuple

from raftlog.client.core.errors import DamagedRecords
from raftlog.wire.batch import BatchHeader, CorruptRecord, TimestampType, check_crc, decode_records_of
from raftlog.wire.records import Headers
from raftlog.wire.schema import Bytes


class ConsumerRecord(NamedTuple):
    """One record. `timestamp` in ms since 1970; `timestamp_type` says who set it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    topic: str
    partition: int
    timestamp_type: TimestampType = TimestampType.CREATE_TIME


class Piece(NamedTuple):
    """A record batch, or the part of it from offset `first` to before `end`."""

    header: BatchHeader
    data: Bytes
    first: int
    end: int
    decoded: list[list[ConsumerRecord]] | None = None
    """Parts of one batch share what it was decoded to, once it was."""

    @property
    def is_whole(self) -> bool:
        return self.first <= self.header.base_offset and self.end > self.header.last_offset

    @property
    def count_max(self) -> int:
        """No fewer records than there are in it."""
        return min(self.header.records_count, self.end - self.first)


class Slice(NamedTuple):
    """Pieces of one partition, in order. `end` is where to read on after them; `leader_epoch` that of their last."""

    topic: str
    partition: int
    pieces: Sequence[Piece]
    end: int
    leader_epoch: int

    def parts(self) -> list[Slice]:
        """The same, piece by piece."""
        ends = [*(piece.first for piece in self.pieces[1:]), self.end]
        return [
            Slice(self.topic, self.partition, [piece], end, piece.header.partition_leader_epoch)
            for piece, end in zip(self.pieces, ends, strict=True)
        ]

    def records(self) -> list[ConsumerRecord]:
        """Decoded. Raises DamagedRecords."""
        found: list[ConsumerRecord] = []
        for piece in self.pieces:
            found += decode_piece(self.topic, self.partition, piece)
        return found


def decode_piece(topic: str, partition: int, piece: Piece) -> list[ConsumerRecord]:
    """The records of a piece whose checksum was looked at before. Raises DamagedRecords."""
    header, decoded = piece.header, piece.decoded
    if decoded:
        records = decoded[0]
    else:
        try:
            common = (topic, partition, header.timestamp_type)
            records = decode_records_of(ConsumerRecord, piece.data, header, common)
        except CorruptRecord as error:
            raise DamagedRecords(topic, partition, header.base_offset, str(error), header.next_offset) from error
        if decoded is not None:
            decoded.append(records)
    if piece.is_whole:
        return records
    return records[bisect_left(records, piece.first, key=_offset) : bisect_left(records, piece.end, key=_offset)]


_offset = itemgetter(0)


def in_order(batches: Iterable[tuple[int, BatchHeader]]) -> Iterator[tuple[int, BatchHeader]]:
    """The same batches. Raises CorruptRecord for one that begins below the end of the one before it."""
    reached: int | None = None
    for at, header in batches:
        if reached is not None and header.base_offset < reached:
            raise CorruptRecord(f"one that begins at {header.base_offset} comes after one that ends before {reached}")
        if header.last_offset_delta < 0:
            raise CorruptRecord(f"its last offset is {header.last_offset_delta} behind its first")
        reached = header.next_offset
        yield at, header


def verify(topic: str, partition: int, piece: Piece) -> None:
    """Raises DamagedRecords if the batch has not the checksum that it states."""
    if not check_crc(piece.data, 0, piece.header.size):
        header = piece.header
        reason = "the checksum does not match"
        raise DamagedRecords(topic, partition, header.base_offset, reason, header.next_offset)


def cut(topic: str, partition: int, piece: Piece, count: int) -> tuple[Piece, Piece | None]:
    """The first `count` records of a piece, and the rest if there is one. Raises DamagedRecords."""
    if piece.decoded is None:
        piece = piece._replace(decoded=[])
    header = piece.header
    at = max(piece.first, header.base_offset) + count
    if header.records_count != header.last_offset_delta + 1:
        records = decode_piece(topic, partition, piece)
        at = records[count].offset if count < len(records) else piece.end
    if at >= piece.end:
        return piece, None
    return piece._replace(end=at), piece._replace(first=at)
