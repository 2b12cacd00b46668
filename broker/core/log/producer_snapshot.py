"""The producer snapshot file: all producers of a partition at one offset, in Kafka's form (version 1).

    0  version  int16 = 1     2  checksum  uint32 (CRC-32C of all that follows)     6  count  int32
    then for each producer: producer id int64, epoch int16, last sequence int32, last offset int64, offset delta
    int32, timestamp int64, coordinator epoch int32, first offset of its open transaction int64 (-1: none)

Kafka's form has one batch a producer, so that a retry of an earlier one is refused after a restart. Behind the part
that Kafka reads (it ignores what follows, and the checksum covers it) we keep the other batches of the window:

    magic "rlb2", for each producer, in the order above, how many earlier batches it has: int8; then for each of these,
    oldest first: last sequence int32, last offset int64, offset delta int32, timestamp int64

A log has to be opened at once, whoever waits for it, and may have a hundred thousand producers, of which few will write
again. So a file is read by columns, no column is of all batches, and a producer is made when it is first asked for.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from itertools import accumulate, chain, compress
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from raftlog.broker.core.log.producers import BATCHES_REMEMBERED, BatchRecord, ProducerEntry, ProducerStates
from raftlog.wire.checksum import crc32c
from raftlog.wire.ids import ProducerEpoch, ProducerId

VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_ENTRIES_AT: Final = _PREFIX.size + _COUNT.size
_LAST_OFFSET_AT, _TIMESTAMP_AT, _TRANSACTION_AT = 14, 26, 38
_NEGATIVE: Final = 0x80
"""From here on the first byte of a number is that of a negative one."""
_MORE: Final = b"rlb2"
_BATCH: Final = Struct(">iqiq")
_EARLIER_MAX: Final = BATCHES_REMEMBERED - 1
_EARLIER: Final = [Struct(">" + "iqiq" * count) for count in range(BATCHES_REMEMBERED)]
_BLOCK: Final = 256
"""Of so many producers the earlier batches are counted together."""


class CorruptSnapshot(ValueError):
    """The file is no whole producer snapshot; the message is the reason."""


def encode_snapshot(states: ProducerStates) -> bytes:
    """The snapshot file of all producers."""
    body = bytearray(_COUNT.size)
    counts, earlier = bytearray(), bytearray()
    for entry in states.entries.values():
        last = entry.batches[-1] if entry.batches else BatchRecord(-1, -1, 0, entry.last_timestamp)
        body += _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            last.last_sequence,
            last.last_offset,
            last.offset_delta,
            entry.last_timestamp,
            entry.coordinator_epoch,
            entry.transaction_start,
        )
        batches = entry.batches[:-1]
        counts.append(len(batches))
        if batches:
            earlier += _EARLIER[len(batches)].pack(*chain.from_iterable(batches))
    if states.unread is not None:
        states.unread.copy_to(body, counts, earlier)
    _COUNT.pack_into(body, 0, len(counts))
    if earlier:
        body += _MORE + counts + earlier
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, end_offset: int = 0) -> ProducerStates:
    """The producers of a snapshot file, Kafka's or ours, which stands at that offset. Raises CorruptSnapshot."""
    unread = UnreadProducers(data)
    return ProducerStates(unread.take_in_transactions(), end_offset, unread)


class UnreadProducers:
    """The producers of a file of whom nobody has asked yet."""

    __slots__ = (
        "_counts", "_data", "_earlier_at", "_earlier_before", "_end", "_is_gone", "_left", "_numbers", "_oldest",
    )  # fmt: skip

    def __init__(self, data: bytes) -> None:
        """Raises CorruptSnapshot."""
        try:
            version, checksum = _PREFIX.unpack_from(data)
            (count,) = _COUNT.unpack_from(data, _PREFIX.size)
        except StructError:
            raise CorruptSnapshot(f"only {len(data)} bytes") from None
        if version != VERSION:
            raise CorruptSnapshot(f"version {version} is not known")
        if crc32c(memoryview(data)[_PREFIX.size :]) != checksum:
            raise CorruptSnapshot("the checksum does not match")
        self._end: int = _ENTRIES_AT + count * _ENTRY.size
        if count < 0 or self._end > len(data):
            raise CorruptSnapshot(f"{count} producers do not fit {len(data)} bytes")
        self._data = data
        self._earlier_at: int = self._end
        self._counts = bytes(count)
        if data.startswith(_MORE, self._end):
            counts_at = self._end + len(_MORE)
            self._earlier_at = counts_at + count
            self._counts = data[counts_at : self._earlier_at]
        # How many lie before each block.
        sums = [sum(self._counts[first : first + _BLOCK]) for first in range(0, count, _BLOCK)]
        self._earlier_before = [0, *accumulate(sums)]
        self._check_earlier()
        self._is_gone = bytearray(count)
        self._left: int = count
        self._numbers: dict[Any, int] | None = None
        self._oldest = min(self._field(_TIMESTAMP_AT), default=0)

    def _check_earlier(self) -> None:
        counts, total = self._counts, self._earlier_before[-1]
        size = self._earlier_at + total * _BATCH.size
        if size > len(self._data):
            raise CorruptSnapshot(f"{total} earlier batches do not fit {len(self._data)} bytes")
        if max(counts, default=0) > _EARLIER_MAX:
            raise CorruptSnapshot(f"a producer with {max(counts)} earlier batches")
        signs = self._signs(_LAST_OFFSET_AT)
        if not signs.isascii() and any(compress(counts, map(_NEGATIVE.__and__, signs))):
            raise CorruptSnapshot("a producer with earlier batches, and no last one")

    def __len__(self) -> int:
        return self._left

    def __iter__(self) -> Iterator[ProducerEntry]:
        """All of them; they stay unread."""
        return (self._made(number) for number, gone in enumerate(self._is_gone) if not gone)

    def take(self, producer_id: ProducerId) -> ProducerEntry | None:
        """The producer, which is read from now on; None if it is not one of these."""
        if self._numbers is None:
            self._numbers = dict(zip(self._field(0), range(len(self._is_gone)), strict=True))
        number = self._numbers.get(producer_id)
        if number is None or self._is_gone[number]:
            return None
        self._drop(number)
        return self._made(number)

    def take_in_transactions(self) -> list[ProducerEntry]:
        """Those with a transaction open, which are read from now on."""
        signs = self._signs(_TRANSACTION_AT)
        if not signs.strip(b"\xff"):
            return []
        begun = [number for number, sign in enumerate(signs) if sign < _NEGATIVE]
        for number in begun:
            self._drop(number)
        return [self._made(number) for number in begun]

    def expire(self, now_ms: int, expiration_ms: int) -> list[ProducerId]:
        """Forget those that have been idle for so long."""
        if not self._left or now_ms - self._oldest < expiration_ms:
            return []
        timestamps, ids, gone = self._field(_TIMESTAMP_AT), self._field(0), self._is_gone
        idle = [
            number
            for number, timestamp in enumerate(timestamps)
            if not gone[number] and now_ms - timestamp >= expiration_ms
        ]
        for number in idle:
            self._drop(number)
        self._oldest = min((timestamp for timestamp, left in zip(timestamps, gone, strict=True) if not left), default=0)
        return [ProducerId(ids[number]) for number in idle]

    def copy_to(self, entries: bytearray, counts: bytearray, earlier: bytearray) -> None:
        """Add them as they are in the file."""
        end = 0
        while (start := self._is_gone.find(0, end)) >= 0:
            end = self._is_gone.find(1, start)
            end = len(self._is_gone) if end < 0 else end
            entries += self._data[_entry_at(start) : _entry_at(end)]
            counts += self._counts[start:end]
            earlier += self._data[self._earlier_batch_at(start) : self._earlier_batch_at(end)]

    def _field(self, at: int) -> array[int]:
        """A field of eight bytes of all producers."""
        column = bytearray(len(self._counts) * 8)
        for byte in range(8):
            column[byte::8] = self._data[_ENTRIES_AT + at + byte : self._end : _ENTRY.size]
        values = array("q", column)
        if sys.byteorder == "little":
            values.byteswap()
        return values

    def _signs(self, at: int) -> bytes:
        """The first byte of a field of all producers."""
        return self._data[_ENTRIES_AT + at : self._end : _ENTRY.size]

    def _drop(self, number: int) -> None:
        self._is_gone[number] = 1
        self._left -= 1

    def _made(self, number: int) -> ProducerEntry:
        fields = _ENTRY.unpack_from(self._data, _entry_at(number))
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_start = fields
        entry = ProducerEntry(ProducerId(producer_id), ProducerEpoch(epoch))
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.transaction_start = transaction_start
        start = self._earlier_batch_at(number)
        earlier = memoryview(self._data)[start : start + self._counts[number] * _BATCH.size]
        entry.batches += map(BatchRecord._make, _BATCH.iter_unpack(earlier))
        if offset >= 0:
            entry.batches.append(BatchRecord(sequence, offset, delta, timestamp))
        return entry

    def _earlier_batch_at(self, number: int) -> int:
        """Where the first earlier batch of this producer, or of those behind it, begins."""
        block = number // _BLOCK
        before = self._earlier_before[block] + sum(self._counts[block * _BLOCK : number])
        return self._earlier_at + before * _BATCH.size


def _entry_at(number: int) -> int:
    return _ENTRIES_AT + number * _ENTRY.size
