"""Reading a coordinator's log.

Of all records with one key only the last counts, so that a log of millions of commits is read at the cost of finding
keys and values, and only what is left is decoded. Records of a transaction count when its marker comes, if it commits.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct

from raftlog.broker.core.coordinator.pending_writes import PendingWrites
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
from raftlog.wire.control import ControlType, decode_control_batch
from raftlog.wire.ids import ProducerId
from raftlog.wire.records import CorruptRecord
from raftlog.wire.varint import read_varint

MAX_BATCH_BYTES = 64 * 1024 * 1024
"""What one batch may unfold to: our own writes are bounded by max.message.bytes, and are not compressed."""

RECORDS_A_STEP = 200
"""So many are found in a third of a millisecond."""

# Of a batch's header: base offset, length, magic, checksum, attributes, last offset delta, producer id, number of
# records.
_HEADER = Struct(">qi4xbIhi8x8xq2x4xi")

# Of a control batch's record: attributes, timestamp and offset are 0, then a key of 4 bytes with version 0, and the
# first byte of the type.
_MARKER_HEAD = b"\x00\x00\x00\x08\x00\x00\x00"
_MARKER_HEAD_AT = HEADER_SIZE + 1
_MARKER_TYPE_AT = _MARKER_HEAD_AT + len(_MARKER_HEAD)


class UnreadableRecord(ValueError):
    """A key or value that is not what its version says, or has a version from the future."""


class CoordinatorLogReader:
    """Reads the batches of a partition in order, then tells what is left of them."""

    __slots__ = ("_latest", "_pending", "next_offset", "records_read")

    def __init__(self, start_offset: int) -> None:
        self._latest: dict[bytes, bytes] = {}
        self._pending: PendingWrites[bytes, bytes] = PendingWrites()
        self.next_offset = start_offset
        self.records_read = 0

    def feed(self, data: bytes) -> None:
        """Take the whole batches from `next_offset` on, which moves behind them; the last may be cut short.

        Raises what `read` raises.
        """
        for _ in self.read(data):
            pass

    def read(self, data: bytes) -> Iterator[None]:
        """The same in steps of up to RECORDS_A_STEP records.

        Raises UnreadableRecord for what cannot be taken in, and CorruptRecord, which is a ValueError too.
        """
        position, size, view = 0, len(data), memoryview(data)
        while size - position >= HEADER_SIZE:
            base_offset, length, magic, crc, attributes, last_delta, producer_id, count = _HEADER.unpack_from(
                data, position
            )
            end = position + LENGTH_END + length
            if magic != MAGIC or length < HEADER_SIZE - LENGTH_END:
                parse_header(data, position)  # says what is wrong
            if end > size:
                return
            if crc32c(view[position + ATTRIBUTES_OFFSET : end]) != crc:
                raise CorruptRecord(f"the checksum does not match, at offset {base_offset}")
            if attributes & CONTROL_BIT:
                self._end_transaction(ProducerId(producer_id), data[position:end])
            else:
                plain = not attributes & TRANSACTIONAL_BIT
                written = self._latest if plain and not self._pending else {}
                removed: list[bytes] = []
                if attributes & CODEC_MASK:
                    _take_packed(data[position:end], written, removed)
                else:
                    yield from _take_plain(data[position:end], count, written, removed)
                if written is not self._latest:
                    self._apply(None if plain else ProducerId(producer_id), written, removed)
                self.records_read += count
            self.next_offset = base_offset + last_delta + 1
            position = end
            yield

    def _apply(self, producer_id: ProducerId | None, written: dict[bytes, bytes], removed: list[bytes]) -> None:
        """Take over a batch while transactions are open; a removal counts at once, also in a transaction."""
        latest, pending = self._latest, self._pending
        for key in removed:
            latest.pop(key, None)
            pending.remove(key)
        for key, value in written.items():
            if producer_id is None:
                pending.overtake(key)
                latest[key] = value
            else:
                pending.write(producer_id, key, value)

    def _end_transaction(self, producer_id: ProducerId, batch: bytes) -> None:
        kind: int | None
        if batch.startswith(_MARKER_HEAD, _MARKER_HEAD_AT):
            # As it is written, by us and by Kafka.
            kind = batch[_MARKER_TYPE_AT]
        else:
            marker = decode_control_batch(batch)
            kind = None if marker is None else int(marker.committed)
        if kind == ControlType.COMMIT or kind == ControlType.ABORT:
            self._latest.update(self._pending.end(producer_id, committed=kind == ControlType.COMMIT))

    def __len__(self) -> int:
        """How many keys are left."""
        return len(self._latest)

    def survivors(self) -> Iterator[tuple[bytes, bytes]]:
        """Key and value of the last record of each key, in any order; each is let go."""
        while self._latest:
            yield self._latest.popitem()

    def pending(self) -> Iterator[tuple[ProducerId, bytes, bytes | None]]:
        """Producer, key and value of what open transactions have written, in the order of `PendingWrites.items`."""
        return self._pending.items()


def _take_packed(batch: bytes, written: dict[bytes, bytes], removed: list[bytes]) -> None:
    for record in decode_batch(batch, max_bytes=MAX_BATCH_BYTES, verify_crc=False):
        if record.key is None:
            raise UnreadableRecord(f"a record without a key, at offset {record.offset}")
        if record.value is None:
            written.pop(record.key, None)
            removed.append(record.key)
        else:
            written[record.key] = record.value


def _take_plain(data: bytes, count: int, written: dict[bytes, bytes], removed: list[bytes]) -> Iterator[None]:
    """The records of a batch that is not compressed; timestamps, offsets and headers are stepped over."""
    position = HEADER_SIZE
    try:
        for first in range(0, count, RECORDS_A_STEP):
            if first:
                yield
            position = _step_through(data, position, min(RECORDS_A_STEP, count - first), written, removed)
    except IndexError:
        raise UnreadableRecord(f"{count} records are longer than their batch") from None
    if position != len(data):
        raise UnreadableRecord(f"{len(data) - position} bytes more than {count} records")


def _step_through(data: bytes, position: int, count: int, written: dict[bytes, bytes], removed: list[bytes]) -> int:
    end = len(data)
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
            key = data[position:key_end]
            written.pop(key, None)
            removed.append(key)
        else:
            written[data[position:key_end]] = data[value_at : value_at + value_size]
        position = record_end
    return position
