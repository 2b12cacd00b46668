"""Reading a coordinator's log.

Of all records with one key only the last counts, so that a log of millions of commits is read at the cost of finding
keys and values, and only what is left is decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from raftlog.wire.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LENGTH_END,
    MAGIC,
    TRANSACTIONAL_BIT,
    decode_batch,
    parse_header,
)
from raftlog.wire.checksum import crc32c
from raftlog.wire.records import CorruptRecord
from raftlog.wire.varint import read_varint

MAX_BATCH_BYTES = 64 * 1024 * 1024
"""What one batch may unfold to: our own writes are bounded by max.message.bytes, and are not compressed."""

# Of a batch's header: base offset, length, magic, checksum, attributes, last offset delta, number of records.
_HEADER = Struct(">qi4xbIhi8x8x8x2x4xi")


class UnreadableRecord(ValueError):
    """A key or value that is not what its version says, or has a version from the future."""


class CoordinatorLogReader:
    """Reads the batches of a partition in order, then tells what is left of them."""

    __slots__ = ("_latest", "next_offset", "records_read")

    def __init__(self, start_offset: int) -> None:
        self._latest: dict[bytes, bytes] = {}
        self.next_offset = start_offset
        self.records_read = 0

    def feed(self, data: bytes) -> None:
        """Take the whole batches from `next_offset` on, which moves behind them; the last may be cut short.

        Raises UnreadableRecord for what cannot be taken in, and CorruptRecord, which is a ValueError too.
        """
        position, size, view = 0, len(data), memoryview(data)
        while size - position >= HEADER_SIZE:
            base_offset, length, magic, crc, attributes, last_delta, count = _HEADER.unpack_from(data, position)
            end = position + LENGTH_END + length
            if magic != MAGIC or length < HEADER_SIZE - LENGTH_END:
                parse_header(data, position)  # says what is wrong
            if end > size:
                return
            if crc32c(view[position + ATTRIBUTES_OFFSET : end]) != crc:
                raise CorruptRecord(f"the checksum does not match, at offset {base_offset}")
            if attributes & CONTROL_BIT:
                count = 0
            elif attributes & TRANSACTIONAL_BIT:
                raise UnreadableRecord(f"offsets committed in a transaction, at offset {base_offset}")
            elif attributes & CODEC_MASK:
                self._take_packed(data[position:end])
            else:
                self._take(data, position + HEADER_SIZE, end, count)
            self.records_read += count
            self.next_offset = base_offset + last_delta + 1
            position = end

    def _take_packed(self, batch: bytes) -> None:
        for record in decode_batch(batch, max_bytes=MAX_BATCH_BYTES, verify_crc=False):
            if record.key is None:
                raise UnreadableRecord(f"a record without a key, at offset {record.offset}")
            if record.value is None:
                self._latest.pop(record.key, None)
            else:
                self._latest[record.key] = record.value

    def _take(self, data: bytes, position: int, end: int, count: int) -> None:
        try:
            self._take_plain(data, position, end, count)
        except IndexError:
            raise UnreadableRecord(f"{count} records are longer than their batch") from None

    def _take_plain(self, data: bytes, position: int, end: int, count: int) -> None:
        """The records of a batch that is not compressed; timestamps, offsets and headers are stepped over."""
        latest = self._latest
        # Lengths of one byte, and the record's of two, are read in place: that is nearly all of them.
        for _ in range(count):
            byte = data[position]
            if byte < 0x80:
                length, position = byte >> 1, position + 1
            elif data[position + 1] < 0x80:
                length, position = (byte & 0x7F | data[position + 1] << 7) >> 1, position + 2
            else:
                length, position = read_varint(data, position)
            record_end = position + length
            # The attributes are one byte; then come the deltas of timestamp and offset.
            position += 1
            while data[position] >= 0x80:
                position += 1
            position += 1
            while data[position] >= 0x80:
                position += 1
            byte = data[position + 1]
            if byte < 0x80 and not byte & 1:
                key_size, position = byte >> 1, position + 2
            else:
                key_size, position = read_varint(data, position + 1)
            key_end = position + key_size
            byte = data[key_end]
            if byte < 0x80 and not byte & 1:
                value_size, value_at = byte >> 1, key_end + 1
            else:
                value_size, value_at = read_varint(data, key_end)
            if key_size < 0 or record_end > end or value_at + value_size >= record_end:
                raise UnreadableRecord(f"a record without a key, or whose lengths do not fit, at byte {position}")
            if value_size < 0:
                latest.pop(data[position:key_end], None)
            else:
                latest[data[position:key_end]] = data[value_at : value_at + value_size]
            position = record_end
        if position != end:
            raise UnreadableRecord(f"{end - position} bytes more than {count} records")

    def __len__(self) -> int:
        """How many keys are left."""
        return len(self._latest)

    def survivors(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of the last record of each key, in any order; each is let go."""
        while self._latest:
            yield self._latest.popitem()
