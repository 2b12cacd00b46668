"""The producer snapshot file: all producers of a partition at one offset, in Kafka's form (version 1).

    0  version  int16 = 1     2  checksum  uint32 (CRC-32C of all that follows)     6  count  int32
    then for each producer: producer id int64, epoch int16, last sequence int32, last offset int64, offset delta
    int32, timestamp int64, coordinator epoch int32, first offset of its open transaction int64 (-1: none)

Kafka's form has one batch a producer, so that a retry of an earlier one is refused after a restart. Behind the part
that Kafka reads (it ignores what follows, and the checksum covers it) we keep the other batches of the window:

    magic "rlb1", count int32, then for each batch: producer id int64, last sequence int32, last offset int64,
    offset delta int32, timestamp int64; oldest first
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from struct import Struct
from struct import error as StructError
from typing import Final

from raftlog.broker.core.log.producers import BatchRecord, ProducerEntry
from raftlog.wire.checksum import crc32c
from raftlog.wire.ids import ProducerEpoch, ProducerId

VERSION: Final = 1
_PREFIX: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_MORE: Final = b"rlb1"
_BATCH: Final = Struct(">qiqiq")


class CorruptSnapshot(ValueError):
    """The file is no whole producer snapshot; the message is the reason."""


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The snapshot file of these producers."""
    body = bytearray(_COUNT.size)
    earlier = bytearray()
    count = 0
    for entry in entries:
        count += 1
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
    _COUNT.pack_into(body, 0, count)
    if earlier:
        body += _MORE + _COUNT.pack(len(earlier) // _BATCH.size) + earlier
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[ProducerEntry]:
    """The producers of a snapshot file, Kafka's or ours. Raises CorruptSnapshot."""
    try:
        version, checksum = _PREFIX.unpack_from(data)
        (count,) = _COUNT.unpack_from(data, _PREFIX.size)
    except StructError:
        raise CorruptSnapshot(f"only {len(data)} bytes") from None
    if version != VERSION:
        raise CorruptSnapshot(f"version {version} is not known")
    if crc32c(memoryview(data)[_PREFIX.size :]) != checksum:
        raise CorruptSnapshot("the checksum does not match")
    position = _PREFIX.size + _COUNT.size
    end = position + count * _ENTRY.size
    if count < 0 or end > len(data):
        raise CorruptSnapshot(f"{count} producers do not fit {len(data)} bytes")
    entries = {}
    for fields in _ENTRY.iter_unpack(memoryview(data)[position:end]):
        entry = _entry(fields)
        entries[entry.producer_id] = entry
    _add_earlier_batches(entries, memoryview(data)[end:])
    return list(entries.values())


def _entry(fields: tuple[int, ...]) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, transaction_start = fields
    entry = ProducerEntry(ProducerId(producer_id), ProducerEpoch(epoch))
    entry.coordinator_epoch = coordinator_epoch
    entry.last_timestamp = timestamp
    entry.transaction_start = transaction_start
    if offset >= 0:
        entry.batches.append(BatchRecord(sequence, offset, delta, timestamp))
    return entry


def _add_earlier_batches(entries: Mapping[ProducerId, ProducerEntry], data: memoryview) -> None:
    start = len(_MORE) + _COUNT.size
    if len(data) < start or bytes(data[: len(_MORE)]) != _MORE:
        return
    (count,) = _COUNT.unpack_from(data, len(_MORE))
    end = start + count * _BATCH.size
    if count < 0 or end > len(data):
        raise CorruptSnapshot(f"{count} batches do not fit {len(data)} bytes")
    for producer_id, *batch in _BATCH.iter_unpack(data[start:end]):
        entry = entries.get(ProducerId(producer_id))
        if entry is None or not entry.batches:
            raise CorruptSnapshot(f"earlier batches of producer {producer_id}, and no last one")
        entry.batches.insert(len(entry.batches) - 1, BatchRecord(*batch))
