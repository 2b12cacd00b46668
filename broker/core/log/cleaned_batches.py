"""What compaction makes of one batch: nothing, the same bytes, fewer records, or an empty batch.

Knows which records stay (the newest of each key), how long tombstones and transaction markers do (KIP-534, KIP-98), and
what a producer's last batch is kept for. Refuses to know segments and files: it is given the batches of a log in order.

Everything that takes long is a generator of steps, so that whoever drives it can do other things in between.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from heapq import heappop, heappush
from typing import Final, NamedTuple, TypeAlias, TypeVar

from raftlog.broker.core.log.offset_map import OffsetMap
from raftlog.broker.core.log.transactions import AbortedTransaction
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
from raftlog.wire.control import ControlType, control_type
from raftlog.wire.records import RecordScan, RecordSpan, decode_records, rebase_records, scan_records

RECORDS_PER_STEP: Final = 256
"""After so many records a generator yields: about a millisecond."""

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
    producer_epoch: int


class CleanedTransactions:
    """The transactions that a walk through the log is in, all of them decided: they lie below the last stable offset.

    Feed it every batch in order, once. `keep_aborted` is called for each aborted transaction whose marker stays.
    """

    def __init__(self, keep_aborted: Callable[[AbortedTransaction], None] | None = None) -> None:
        self.keep_aborted = keep_aborted
        self._coming: list[tuple[int, AbortedTransaction]] = []
        # By producer id; the second is whether one of its batches was met on this walk.
        self._aborted: dict[int, tuple[AbortedTransaction, bool]] = {}
        self._committed: set[int] = set()

    def add_aborted(self, transactions: Iterable[AbortedTransaction]) -> None:
        """Aborted transactions that overlap what is walked next; those that are known already do no harm."""
        for transaction in transactions:
            heappush(self._coming, (transaction.first_offset, transaction))

    def on_data(self, header: BatchHeader) -> bool:
        """Whether the batch belongs to an aborted transaction, and so can go at once."""
        self._begin_up_to(header.last_offset)
        if not header.is_transactional:
            return False
        aborted = self._aborted.get(header.producer_id)
        if aborted is None:
            self._committed.add(header.producer_id)
            return False
        self._aborted[header.producer_id] = (aborted[0], True)
        return True

    def on_control(self, header: BatchHeader, kind: int | None) -> bool:
        """Whether a control batch has nothing left to say: no batch of its transaction was met on this walk.

        `kind` is the ControlType of its record, None if compaction has emptied it.
        """
        self._begin_up_to(header.last_offset)
        if kind is None:
            return True
        if kind == ControlType.COMMIT:
            met = header.producer_id in self._committed
            self._committed.discard(header.producer_id)
            return not met
        if kind != ControlType.ABORT:
            return False
        aborted, met = self._aborted.pop(header.producer_id, (None, False))
        if aborted is None or not met:
            return True
        if self.keep_aborted is not None:
            self.keep_aborted(aborted)
        return False

    def _begin_up_to(self, offset: int) -> None:
        while self._coming and self._coming[0][0] <= offset:
            _, transaction = heappop(self._coming)
            self._aborted.setdefault(transaction.producer_id, (transaction, False))


class CleaningStats:
    """What a run read and kept, for the log line and for metrics."""

    __slots__ = ("bytes_read", "bytes_written", "records_kept", "records_read", "unreadable_batches")

    def __init__(self) -> None:
        self.bytes_read = self.bytes_written = 0
        self.records_read = self.records_kept = 0
        self.unreadable_batches = 0


class CleaningRules(NamedTuple):
    """What holds for one run through one log."""

    offsets: OffsetMap
    last_records: Mapping[int, LastRecord]
    """By producer id, for all producers that are not expired."""
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
        base_offset = header.base_offset
        try:
            _, spans = yield from _unpack(batch, header)
        except CorruptRecord:
            spans = []
        for number, (delta, _, key, *_) in enumerate(spans, 1):
            if number % RECORDS_PER_STEP == 0:
                yield None
            offset = base_offset + delta
            if key is not None and offset >= first_dirty_offset and not offsets.put(key, offset):
                return False
    if header.last_offset >= first_dirty_offset:
        offsets.latest_offset = header.last_offset
    return True


def clean_batch(
    batch: Buffer, header: BatchHeader, rules: CleaningRules, transactions: CleanedTransactions, stats: CleaningStats
) -> Generator[Step, None, Kept | None]:
    """What is left of one batch; None if nothing is."""
    stats.bytes_read += header.size
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


def _unpack(batch: Buffer, header: BatchHeader) -> Generator[Step, None, tuple[bytes, list[RecordSpan]]]:
    """The unpacked records and where each lies. Raises CorruptRecord."""
    if header.attributes & CODEC_MASK and header.size >= OFFLOAD_BYTES:
        payload = yield from offload(partial(unpack_payload, batch, header, MAX_DECOMPRESSED_BYTES), CorruptRecord)
    else:
        payload = unpack_payload(batch, header, MAX_DECOMPRESSED_BYTES)
    scan = RecordScan(payload, header.records_count)
    spans = scan.take(RECORDS_PER_STEP)
    while scan.remaining:
        yield None
        spans += scan.take(RECORDS_PER_STEP)
    return payload, spans


def _is_sound(batch: Buffer, header: BatchHeader) -> bool:
    return crc32c(memoryview(batch)[ATTRIBUTES_OFFSET : header.size]) == header.crc


def _kind_of(batch: Buffer, header: BatchHeader) -> int | None:
    """The ControlType of a control batch; None if it is empty. One that cannot be read is of no known type."""
    if header.records_count == 0:
        return None
    try:
        payload = unpack_payload(batch, header, MAX_DECOMPRESSED_BYTES)
        records = decode_records(payload, count=header.records_count, base_offset=0, base_timestamp=0)
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
    changed = _with_horizon(header, spans, rules.now_ms + rules.delete_retention_ms)
    return _assembled(changed, rebase_records(payload, spans, header.base_timestamp - changed.base_timestamp))


def _clean_data(
    batch: Buffer, header: BatchHeader, rules: CleaningRules, stats: CleaningStats
) -> Generator[Step, None, Kept | None]:
    try:
        payload, spans = yield from _unpack(batch, header)
    except CorruptRecord:
        # Whatever it holds, it is not ours to throw away.
        stats.unreadable_batches += 1
        return Kept(header, batch)
    horizon = header.delete_horizon_ms
    expired = horizon is not None and horizon <= rules.now_ms
    kept: list[RecordSpan] = []
    has_tombstones = False
    base_offset, latest, newest_of = header.base_offset, rules.offsets.latest_offset, rules.offsets.get
    for number, span in enumerate(spans, 1):
        if number % RECORDS_PER_STEP == 0:
            yield None
        delta, _, key, value_start, *_ = span
        offset = base_offset + delta
        if offset > latest:
            # Not in the map: nothing is known of it yet, nor of when it may go if it is a tombstone.
            kept.append(span)
        elif key is not None and offset >= newest_of(key) and not (value_start < 0 and expired):
            kept.append(span)
            has_tombstones |= value_start < 0
    if not kept:
        return _empty_or_nothing(header, rules)
    set_horizon = has_tombstones and horizon is None
    if len(kept) == len(spans) and not set_horizon:
        return Kept(header, batch)
    horizon = rules.now_ms + rules.delete_retention_ms if set_horizon else None
    return (yield from _rewrite(header, payload, kept, horizon))


def _rewrite(
    header: BatchHeader, payload: bytes, spans: list[RecordSpan], horizon: int | None
) -> Generator[Step, None, Kept]:
    """A batch of the records at `spans`, at the same offsets; with a new delete horizon if one is given.

    First and last offset and sequence stay as they are: the producer's state is read from them (KIP-98).
    """
    changed = _with_horizon(header, spans, horizon)
    payload = rebase_records(payload, spans, header.base_timestamp - changed.base_timestamp)
    if not header.attributes & CODEC_MASK:
        return _assembled(changed, payload)
    pack = partial(compress, header.codec, payload)
    packed = (yield from offload(pack)) if len(payload) >= OFFLOAD_BYTES else pack()
    return _assembled(changed, packed)


def _with_horizon(header: BatchHeader, spans: list[RecordSpan], horizon: int | None) -> BatchHeader:
    """The header for the records at `spans`. A horizon takes the place of the base timestamp (KIP-534)."""
    attributes, base_timestamp, max_timestamp = header.attributes, header.base_timestamp, header.max_timestamp
    if not attributes & LOG_APPEND_TIME_BIT:
        max_timestamp = base_timestamp + max(timestamp_delta for _, timestamp_delta, *_ in spans)
    if horizon is not None:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon
    return header._replace(
        attributes=attributes, base_timestamp=base_timestamp, max_timestamp=max_timestamp, records_count=len(spans)
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
