"""What compaction makes of one batch: nothing, the same bytes, fewer records, or an empty batch.

Of each key the newest record stays; tombstones and transaction markers stay for a time (KIP-534, KIP-98), and a
producer's last batch as long as the producer may come back.

Everything that takes long is a generator of steps, so that whoever drives it can do other things in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar

from raftlog.broker.core.log.cleaned_transactions import CleanedTransactions
from raftlog.broker.core.log.offset_map import OffsetMap
from raftlog.wire.batch import (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    MAX_DECOMPRESSED_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptRecord,
    assemble_batch,
    unpack_payload,
)
from raftlog.wire.checksum import Buffer, crc32c
from raftlog.wire.compression import compress
from raftlog.wire.control import control_type
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.records import RecordBase, RecordScan, RecordSpan, decode_records, rebase_records, scan_records

RECORDS_PER_STEP: Final = 256
"""After so many records a generator yields: about a millisecond."""

RECORDS_IN_MEMORY_MAX: Final = 16384
"""A batch of more records is gone through twice, instead of remembering where each of them lies: a megabyte can unfold
to a hundred, with a record in every seven bytes."""

OFFLOAD_BYTES: Final = 16 * 1024
"""From this size on (de)compressing is yielded as a step of its own: it takes milliseconds, and the libraries do it
without holding Python's lock."""

Step: TypeAlias = Callable[[], None] | None
"""What a generator yields: None where it can be interrupted, or work to be done before it goes on, in any thread."""

T = TypeVar("T")


def offload(work: Callable[[], T], *expected: type[Exception]) -> Generator[Step, None, T]:
    """Have `work` done as a step, in whatever thread; its result, or one of the `expected` exceptions, comes out
    here."""
    results: list[T] = []
    errors: list[Exception] = []

    def step() -> None:
        try:
            results.append(work())
        except expected as error:
            errors.append(error)

    yield step
    if errors:
        raise errors[0]
    return results[0]


class LastRecord(NamedTuple):
    """What the log must keep of a producer that may come back. `last_data_offset` is -1 if only a marker is left."""

    last_data_offset: int
    producer_epoch: ProducerEpoch


class LastRecords(Protocol):
    """Of all producers that are not expired."""

    def get(self, producer_id: ProducerId, /) -> LastRecord | None:
        """What must stay of a producer."""


class CleaningStats:
    """What a run read and kept, for the log line."""

    __slots__ = ("bytes_written", "records_kept", "records_read", "unreadable_batches")

    def __init__(self) -> None:
        self.bytes_written = 0
        self.records_read = self.records_kept = 0
        self.unreadable_batches = 0


class CleaningRules(NamedTuple):
    """What holds for one run through one log."""

    offsets: OffsetMap
    last_records: LastRecords
    end_offset: int
    """Where the run ends; the batch before it stays, if only empty, so that the end of the log is not forgotten."""
    now_ms: int
    delete_retention_ms: int


class Kept(NamedTuple):
    """What is left of a batch: `batch` may be the bytes that came."""

    header: BatchHeader
    batch: Buffer


def map_batch(
    batch: Buffer, header: BatchHeader, offsets: OffsetMap, transactions: CleanedTransactions, first_dirty_offset: int
) -> Generator[Step, None, bool]:
    """Take the keys of one batch into the map; False if it is full, and then some of them are missing.

    A batch that cannot be unpacked gives no keys: older values of its keys stay, and it stays itself.
    """
    if not _is_sound(batch, header):
        # Nothing of it can be believed; cleaning keeps it as it is.
        pass
    elif header.is_control:
        transactions.on_control(header, _kind_of(batch, header))
    elif not transactions.on_data(header) and header.records_count:
        try:
            payload = yield from _unpack(batch, header)
            has_room = yield from _map_keys(payload, header, offsets, first_dirty_offset)
        except CorruptRecord:
            has_room = True
        if not has_room:
            return False
    if header.last_offset >= first_dirty_offset:
        offsets.latest_offset = header.last_offset
    return True


def _map_keys(
    payload: bytes, header: BatchHeader, offsets: OffsetMap, first_dirty_offset: int
) -> Generator[Step, None, bool]:
    """Take the keys of the records into the map, once all of them are known to be records. Raises CorruptRecord."""
    base_offset, count = header.base_offset, header.records_count
    pieces: Iterable[list[RecordSpan]] = _pieces(payload, count)
    if count <= RECORDS_IN_MEMORY_MAX:
        pieces = yield from _collect(pieces)
    else:
        for _ in pieces:
            yield None
        pieces = _pieces(payload, count)
    for spans in pieces:
        for delta, _, key, *_ in spans:
            offset = base_offset + delta
            if key is not None and offset >= first_dirty_offset and not offsets.put(key, offset):
                return False
        if len(spans) == RECORDS_PER_STEP:
            yield None
    return True


def _pieces(payload: bytes, count: int) -> Iterator[list[RecordSpan]]:
    """The records of a payload, one step's worth at a time. Raises CorruptRecord."""
    scan = RecordScan(payload, count)
    yield scan.take(RECORDS_PER_STEP)
    while scan.remaining:
        yield scan.take(RECORDS_PER_STEP)


def _collect(pieces: Iterable[list[RecordSpan]]) -> Generator[Step, None, list[list[RecordSpan]]]:
    collected = []
    for spans in pieces:
        collected.append(spans)
        if len(spans) == RECORDS_PER_STEP:
            yield None
    return collected


def clean_batch(
    batch: Buffer, header: BatchHeader, rules: CleaningRules, transactions: CleanedTransactions, stats: CleaningStats
) -> Generator[Step, None, Kept | None]:
    """What is left of one batch; None if nothing is."""
    stats.records_read += header.records_count
    kept: Kept | None
    if not _is_sound(batch, header):
        # A new checksum would hide the damage from every reader.
        stats.unreadable_batches += 1
        kept = Kept(header, batch)
    elif header.is_control:
        kept = _clean_control(batch, header, rules, transactions)
    elif transactions.on_data(header) or header.records_count == 0:
        kept = _empty_or_nothing(header, rules)
    else:
        kept = yield from _clean_data(batch, header, rules, stats)
    if kept is not None:
        stats.bytes_written += kept.header.size
        stats.records_kept += kept.header.records_count
    return kept


def _unpack(batch: Buffer, header: BatchHeader) -> Generator[Step, None, bytes]:
    """The unpacked records. Raises CorruptRecord."""
    unpack = partial(unpack_payload, batch, header, MAX_DECOMPRESSED_BYTES)
    if header.attributes & CODEC_MASK and header.size >= OFFLOAD_BYTES:
        return (yield from offload(unpack, CorruptRecord))
    return unpack()


def _is_sound(batch: Buffer, header: BatchHeader) -> bool:
    return crc32c(memoryview(batch)[ATTRIBUTES_OFFSET : header.size]) == header.crc


def _kind_of(batch: Buffer, header: BatchHeader) -> int | None:
    """The ControlType of a control batch; None if it is empty. One that cannot be read is of no known type."""
    if header.records_count == 0:
        return None
    try:
        payload = unpack_payload(batch, header, MAX_DECOMPRESSED_BYTES)
        records = decode_records(payload, RecordBase(header.records_count, 0, 0))
        return control_type(records[0].key)
    except CorruptRecord:
        return -1


def _clean_control(
    batch: Buffer, header: BatchHeader, rules: CleaningRules, transactions: CleanedTransactions
) -> Kept | None:
    """A marker stays until its transaction has no batches left, and then as long as a tombstone does.

    A reader that is in the middle of the transaction must still meet its end. And it stays as long as it is all that
    is left of its producer: its epoch is what fences an older instance of the producer.
    """
    superfluous = transactions.on_control(header, _kind_of(batch, header))
    horizon = header.delete_horizon_ms
    if header.records_count == 0:
        return _empty_or_nothing(header, rules)
    if not superfluous or _is_last_of_producer(header, rules):
        return Kept(header, batch)
    if horizon is not None:
        return Kept(header, batch) if horizon > rules.now_ms else _empty_or_nothing(header, rules)
    try:
        payload = unpack_payload(batch, header, MAX_DECOMPRESSED_BYTES)
        spans = scan_records(payload, header.records_count)
    except CorruptRecord:
        return Kept(header, batch)
    largest = max(timestamp_delta for _, timestamp_delta, *_ in spans)
    changed = _with_horizon(header, len(spans), largest, rules.now_ms + rules.delete_retention_ms)
    return _assembled(changed, rebase_records(payload, spans, header.base_timestamp - changed.base_timestamp))


class _Survivors:
    """The records of one batch that stay: where they lie or, if they are very many, a flag for each record."""

    __slots__ = ("_count", "_flags", "_spans", "has_tombstones", "kept", "largest_delta")

    def __init__(self, count: int) -> None:
        self._count = count
        self._spans: list[list[RecordSpan]] = []
        self._flags = bytearray()
        self.kept = 0
        self.has_tombstones = False
        """Whether one of them is a tombstone that the map knows: one that may go some day."""
        self.largest_delta = -(1 << 63)

    def choose(self, spans: list[RecordSpan], header: BatchHeader, rules: CleaningRules) -> None:
        """Look at the next records."""
        horizon = header.delete_horizon_ms
        expired = horizon is not None and horizon <= rules.now_ms
        base_offset, latest, newest_of = header.base_offset, rules.offsets.latest_offset, rules.offsets.get
        chosen: list[RecordSpan] = []
        in_memory = self._count <= RECORDS_IN_MEMORY_MAX
        for span in spans:
            delta, timestamp_delta, key, value_start, *_ = span
            offset = base_offset + delta
            # Beyond the map nothing is known of a record yet, nor of when it may go if it is a tombstone.
            stays = offset > latest
            if not stays and key is not None and offset >= newest_of(key) and not (value_start < 0 and expired):
                stays = True
                self.has_tombstones |= value_start < 0
            if not in_memory:
                self._flags.append(stays)
            if stays:
                chosen.append(span)
                if timestamp_delta > self.largest_delta:
                    self.largest_delta = timestamp_delta
        self.kept += len(chosen)
        if in_memory:
            self._spans.append(chosen)

    def pieces(self, payload: bytes) -> Iterator[list[RecordSpan]]:
        """Where they lie, one step's worth at a time."""
        if self._count <= RECORDS_IN_MEMORY_MAX:
            yield from self._spans
            return
        position = 0
        for spans in _pieces(payload, self._count):
            flags = self._flags[position : position + len(spans)]
            yield [span for span, stays in zip(spans, flags, strict=True) if stays]
            position += len(spans)


def _clean_data(
    batch: Buffer, header: BatchHeader, rules: CleaningRules, stats: CleaningStats
) -> Generator[Step, None, Kept | None]:
    survivors = _Survivors(header.records_count)
    try:
        payload = yield from _unpack(batch, header)
        for spans in _pieces(payload, header.records_count):
            survivors.choose(spans, header, rules)
            if len(spans) == RECORDS_PER_STEP:
                yield None
    except CorruptRecord:
        # Whatever it holds, it is not ours to throw away.
        stats.unreadable_batches += 1
        return Kept(header, batch)
    if survivors.kept == 0:
        return _empty_or_nothing(header, rules)
    horizon = None
    if survivors.has_tombstones and header.delete_horizon_ms is None:
        horizon = rules.now_ms + rules.delete_retention_ms
    elif survivors.kept == header.records_count:
        return Kept(header, batch)
    return (yield from _rewrite(header, payload, survivors, horizon))


def _rewrite(
    header: BatchHeader, payload: bytes, survivors: _Survivors, horizon: int | None
) -> Generator[Step, None, Kept]:
    """A batch of the survivors, at the same offsets; with a new delete horizon if one is given.

    First and last offset and sequence stay as they are: the producer's state is read from them (KIP-98).
    """
    changed = _with_horizon(header, survivors.kept, survivors.largest_delta, horizon)
    shift = header.base_timestamp - changed.base_timestamp
    parts = []
    for spans in survivors.pieces(payload):
        parts.append(rebase_records(payload, spans, shift))
        if len(spans) > RECORDS_PER_STEP // 2:
            yield None
    payload = b"".join(parts)
    if not header.attributes & CODEC_MASK:
        return _assembled(changed, payload)
    pack = partial(compress, header.codec, payload)
    packed = (yield from offload(pack)) if len(payload) >= OFFLOAD_BYTES else pack()
    return _assembled(changed, packed)


def _with_horizon(header: BatchHeader, count: int, largest_delta: int, horizon: int | None) -> BatchHeader:
    """The header for `count` records. A horizon takes the place of the base timestamp (KIP-534)."""
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if not attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = base_timestamp + largest_delta
    if horizon is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon
    return header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, records_count=count
    )


def _empty_or_nothing(header: BatchHeader, rules: CleaningRules) -> Kept | None:
    """An empty batch where the log must remember it, else None."""
    if header.next_offset != rules.end_offset and not _is_last_of_producer(header, rules):
        return None
    # The delete horizon goes, and so does the codec: nothing is packed in it.
    attributes = header.attributes & ~(CODEC_MASK | DELETE_HORIZON_BIT)
    return _assembled(header._replace(attributes=attributes, base_timestamp=NO_TIMESTAMP, records_count=0), b"")


def _is_last_of_producer(header: BatchHeader, rules: CleaningRules) -> bool:
    """Whether the producer's last sequence, or its last epoch, would be forgotten with this batch."""
    if header.producer_id < 0:
        return False
    last = rules.last_records.get(header.producer_id)
    if last is None:
        return False
    if last.last_data_offset >= 0:
        return header.last_offset == last.last_data_offset
    return header.is_control and header.producer_epoch == last.producer_epoch


def _assembled(header: BatchHeader, packed: bytes) -> Kept:
    batch = assemble_batch(header, packed)
    return Kept(header._replace(batch_length=len(batch) - 12, crc=int.from_bytes(batch[17:21], "big")), batch)
