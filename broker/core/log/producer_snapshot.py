"""The producer snapshot file: all producers of a partition at one offset, in Kafka's form (version 1).

    0  version  int16 = 1     2  checksum  uint32 (CRC-32C of all that follows)     6  count  int32
    then for each producer: producer id int64, epoch int16, last sequence int32, last offset int64, offset delta
    int32, timestamp int64, coordinator epoch int32, first offset of its open transaction int64 (-1: none)

Kafka's form has one batch a producer, so that a retry of an earlier one is refused after a restart. Behind the part
that Kafka reads (it ignores what follows, and the checksum covers it) we keep the other batches of the window:

    magic "rlb1", count int32, then for each batch: producer id int64, last sequence int32, last offset int64,
    offset delta int32, timestamp int64; the producers in the order in which they are above, oldest first

A log has to be opened at once, whoever waits for it, and may have a hundred thousand producers, of which few will write
again. So a file is read by columns, and a producer is made when it is first asked for.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterator
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
_LAST_OFFSET_AT, _TIMESTAMP_AT, _TRANSACTION_AT = 14, 26, 38
_NEGATIVE: Final = 0x80
"""From here on the first byte of a number is that of a negative one."""
_MORE: Final = b"rlb1"
_BATCH: Final = Struct(">qiqiq")
_BATCHES_MAX: Final = BATCHES_REMEMBERED - 1
_ID: Final = Struct(">q")


class CorruptSnapshot(ValueError):
    """The file is no whole producer snapshot; the message is the reason."""


def encode_snapshot(states: ProducerStates) -> bytes:
    """The snapshot file of all producers."""
    body = bytearray(_COUNT.size)
    earlier = bytearray()
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
        for batch in entry.batches[:-1]:
            earlier += _BATCH.pack(entry.producer_id, *batch)
    if states.unread is not None:
        states.unread.copy_to(body, earlier)
    _COUNT.pack_into(body, 0, (len(body) - _COUNT.size) // _ENTRY.size)
    if earlier:
        body += _MORE + _COUNT.pack(len(earlier) // _BATCH.size) + earlier
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes, end_offset: int = 0) -> ProducerStates:
    """The producers of a snapshot file, Kafka's or ours, which stands at that offset. Raises CorruptSnapshot."""
    unread = UnreadProducers(data)
    begun = [entry for producer_id in unread.in_transactions() if (entry := unread.take(producer_id)) is not None]
    return ProducerStates(begun, end_offset, unread)


class UnreadProducers:
    """The producers of a file of whom nobody has asked yet."""

    __slots__ = ("_batches", "_entries", "_is_gone", "_left", "_numbers", "_oldest")

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
        start = _PREFIX.size + _COUNT.size
        end = start + count * _ENTRY.size
        if count < 0 or end > len(data):
            raise CorruptSnapshot(f"{count} producers do not fit {len(data)} bytes")
        self._entries = data[start:end]
        self._batches = _earlier_batches(data, end)
        self._numbers: dict[Any, int] = dict(zip(self._field(0), range(count), strict=True))
        self._check_batches()
        self._is_gone = bytearray(count)
        self._left: int = count
        self._oldest = min(self._field(_TIMESTAMP_AT), default=0)

    def _check_batches(self) -> None:
        with_last: Collection[int] = self._numbers
        signs = self._entries[_LAST_OFFSET_AT :: _ENTRY.size]
        if max(signs, default=0) >= _NEGATIVE:
            with_last = {producer_id for producer_id, number in self._numbers.items() if signs[number] < _NEGATIVE}
        owners = _column(self._batches, 0, _BATCH.size)
        # One look-up each: a set of them all would take half as long again.
        if not all(map(with_last.__contains__, owners)):
            stranger = min(set(owners).difference(with_last))
            raise CorruptSnapshot(f"earlier batches of producer {stranger}, and no last one")

    def __len__(self) -> int:
        return self._left

    def __iter__(self) -> Iterator[ProducerEntry]:
        """All of them; they stay unread."""
        return (self._made(number) for number, gone in enumerate(self._is_gone) if not gone)

    def take(self, producer_id: ProducerId) -> ProducerEntry | None:
        """The producer, which is read from now on; None if it is not one of these."""
        number = self._numbers.get(producer_id)
        if number is None or self._is_gone[number]:
            return None
        self._drop(number)
        return self._made(number)

    def in_transactions(self) -> list[ProducerId]:
        """Those with a transaction open."""
        signs = self._entries[_TRANSACTION_AT :: _ENTRY.size]
        if not signs.strip(b"\xff"):
            return []
        ids = self._field(0)
        return [ProducerId(ids[number]) for number, sign in enumerate(signs) if sign < _NEGATIVE]

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

    def copy_to(self, entries: bytearray, batches: bytearray) -> None:
        """Add them as they are in the file."""
        end = batch = 0
        while (start := self._is_gone.find(0, end)) >= 0:
            first = self._first_batch(start, batch, batch + (start - end) * _BATCHES_MAX)
            end = self._is_gone.find(1, start)
            end = len(self._is_gone) if end < 0 else end
            batch = self._first_batch(end, first, first + (end - start) * _BATCHES_MAX)
            entries += self._entries[start * _ENTRY.size : end * _ENTRY.size]
            batches += self._batches[first * _BATCH.size : batch * _BATCH.size]

    def _field(self, at: int) -> array[int]:
        return _column(self._entries, at, _ENTRY.size)

    def _drop(self, number: int) -> None:
        self._is_gone[number] = 1
        self._left -= 1

    def _made(self, number: int) -> ProducerEntry:
        fields = _ENTRY.unpack_from(self._entries, number * _ENTRY.size)
        producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_start = fields
        entry = ProducerEntry(ProducerId(producer_id), ProducerEpoch(epoch))
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        entry.transaction_start = transaction_start
        start = self._first_batch(number, 0, number * _BATCHES_MAX) * _BATCH.size
        rows = memoryview(self._batches)[start : start + _BATCHES_MAX * _BATCH.size]
        for of_producer, *batch in _BATCH.iter_unpack(rows):
            if of_producer == producer_id:
                entry.batches.append(BatchRecord(*batch))
        if offset >= 0:
            entry.batches.append(BatchRecord(sequence, offset, delta, timestamp))
        return entry

    def _first_batch(self, number: int, low: int, high: int) -> int:
        """The first earlier batch of this producer, or of those behind it, which lies within these bounds."""
        batches, numbers = self._batches, self._numbers

        def number_of(batch: int) -> int:
            return numbers[_ID.unpack_from(batches, batch * _BATCH.size)[0]]

        count = len(batches) // _BATCH.size
        return bisect_left(range(count), number, low, min(high, count), key=number_of)


def _earlier_batches(data: bytes, start: int) -> bytes:
    begin = start + len(_MORE) + _COUNT.size
    if len(data) < begin or data[start : start + len(_MORE)] != _MORE:
        return b""
    (count,) = _COUNT.unpack_from(data, start + len(_MORE))
    end = begin + count * _BATCH.size
    if count < 0 or end > len(data):
        raise CorruptSnapshot(f"{count} batches do not fit {len(data)} bytes")
    return data[begin:end]


def _column(rows: bytes, at: int, size: int) -> array[int]:
    """One field of eight bytes of all rows of that size."""
    column = bytearray(len(rows) // size * 8)
    for byte in range(8):
        column[byte::8] = rows[at + byte :: size]
    values = array("q", column)
    if sys.byteorder == "little":
        values.byteswap()
    return values
