"""Log compaction: rewriting the segments of a compacted log so that each key keeps only its newest value.

The order of the work: choose the dirtiest log, read its dirty part into a map of newest offsets, write what is left of
each group of segments into a new one (`cleaned_segments.py`), and put that in the place of the old ones.

A run is a generator of steps, driven by `drive`: it gives the event loop back every few milliseconds, and whatever
waits for the disk is done in a thread. The log is appended to, read, truncated and removed meanwhile; a run that finds
its segments gone gives up, and what it has finished stays.

Crash safety is Kafka's: a new segment is written as `.cleaned` and synced, becomes `.swap` when it is complete, and
takes its name when the old ones are gone (`OpenLog.replace_segments`); a start finishes or undoes that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Sequence
from functools import partial
from typing import Final
from weakref import WeakKeyDictionary

from raftlog.broker.core.log.cleaned_batches import (
    RECORDS_PER_STEP,
    CleaningRules,
    CleaningStats,
    LastRecord,
    Step,
    clean_batch,
    map_batch,
    offload,
)
from raftlog.broker.core.log.cleaned_transactions import CleanedTransactions
from raftlog.broker.core.log.compaction import (
    LONG_MAX,
    CleanableRange,
    CleanableSegment,
    cleanable_range,
    group_segments,
)
from raftlog.broker.core.log.offset_map import DEFAULT_MAP_BYTES, OffsetMap
from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.core.log.results import LogDamaged
from raftlog.broker.ports import Clock
from raftlog.broker.store.checksums import verify_batch, verify_offset
from raftlog.broker.store.cleaned_segments import CleanedSegments
from raftlog.broker.store.files import FULL_DISK_ERRORS, read_exactly
from raftlog.broker.store.io_rate import IoRate
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.segment import Segment
from raftlog.broker.store.store import Store
from raftlog.wire.batch import BatchHeader, CorruptRecord, iterate_batches, parse_header
from raftlog.wire.ids import ProducerId

logger = logging.getLogger("raftlog.cleaner")

READ_BYTES: Final = 64 * 1024
"""Read at once from a segment; a batch that is larger is read whole."""
BATCH_COST: Final = 16
"""A batch costs as much as so many records beside its own; a run can be interrupted after RECORDS_PER_STEP of both."""
SLICE_SECONDS: Final = 0.002
"""How long a run keeps the event loop before it gives it back: a few requests' worth. It then pauses for as long, so
that compaction takes at most half of a busy broker."""


class CleaningAborted(Exception):
    """The log has changed under the run: it was truncated, its oldest segments were removed, or it was closed."""


class LogCleaner:
    """Compacts the logs of a store, one at a time. `uncleanable` says which logs it has given up, and why. `rate` is
    told of what is read and written (log.cleaner.io.max.bytes.per.second); whoever drives the steps waits for it.

    `hash_key`: secret random bytes for the digests of keys. `map_bytes`: memory of a run
    (log.cleaner.dedupe.buffer.size).
    """

    def __init__(self, store: Store, hash_key: bytes, rate: IoRate, *, map_bytes: int = DEFAULT_MAP_BYTES) -> None:
        self._store = store
        self._hash_key = hash_key
        self.map_bytes = map_bytes
        self.rate = rate
        self.uncleanable: WeakKeyDictionary[PartitionLog, str] = WeakKeyDictionary()

    def choose(self, logs: Iterable[PartitionLog], now_ms: int) -> PartitionLog | None:
        """The dirtiest of the logs that are due; None if none is.

        A log that is not open has not grown since it was closed, and is not opened for this.
        """
        best: tuple[bool, float] | None = None
        chosen = None
        for log in logs:
            if not log.config.compact or not log.is_open or log.offline_reason is not None or log in self.uncleanable:
                continue
            try:
                found = range_of(log, now_ms, log.recovery_point)
            except (OSError, LogDamaged) as error:
                self._give_up(log, str(error))
                continue
            rank = (found.overdue, found.dirty_ratio)
            if found.is_due(log.config) and (best is None or rank > best):
                best, chosen = rank, log
        return chosen

    def clean(self, log: PartitionLog, safe_offset: int) -> Generator[Step, None, None]:
        """One run through one log; moves its `cleaned_offset`. Drive it with `drive`.

        Below `safe_offset` everything is on stable storage, and the recovery point on stable storage says so: an old
        value may only go when the newer one cannot be lost any more, and what a run leaves out would look like a loss
        to a recovery that came by.

        Raises OSError when the disk is full (what was there before is there still), LogUnavailable when the log is
        offline. A log that cannot be read or rewritten is given up until the broker starts again.
        """
        try:
            yield from _Run(self._store, log, self._hash_key, self.map_bytes, self.rate).steps(safe_offset)
        except CleaningAborted as aborted:
            logger.info("log=%s compaction ends early: %s", log.directory, aborted)
        except OSError as error:
            if error.errno in FULL_DISK_ERRORS:
                raise
            self._give_up(log, str(error))
        except LogDamaged as error:
            self._give_up(log, str(error))

    def _give_up(self, log: PartitionLog, reason: str) -> None:
        logger.error("log=%s is not compacted until the broker starts again: %s", log.directory, reason)
        self.uncleanable[log] = reason


async def drive(
    steps: Generator[Step, None, None],
    clock: Clock,
    in_thread: Callable[[Callable[[], None]], Awaitable[None]],
    rate: IoRate,
) -> None:
    """Carry out the steps without holding up the event loop, or exceeding the rate. Raises what the steps raise."""
    began = clock.monotonic()
    try:
        for step in steps:
            if await rate.wait():
                began = clock.monotonic()
            if step is not None:
                await in_thread(step)
                began = clock.monotonic()
            elif clock.monotonic() - began >= SLICE_SECONDS:
                await asyncio.sleep(SLICE_SECONDS)
                began = clock.monotonic()
    finally:
        steps.close()


def range_of(log: PartitionLog, now_ms: int, safe_offset: int) -> CleanableRange:
    """What is clean and dirty in an open log, below `safe_offset`. Raises OSError, LogDamaged."""
    config, opened = log.config, log.opened
    with_first = config.max_compaction_lag_ms < LONG_MAX
    facts = []
    for number, segment in enumerate(opened.segments):
        facts.append(
            CleanableSegment(
                base_offset=segment.base_offset,
                end_offset=opened.end_of(number),
                size=segment.size,
                first_timestamp=segment.load_first_timestamp() if with_first else -1,
                largest_timestamp=segment.load_largest_timestamp() if config.min_compaction_lag_ms > 0 else -1,
            )
        )
    return cleanable_range(
        facts,
        config,
        cleaned_offset=log.cleaned_offset,
        log_start_offset=log.log_start_offset,
        decided_offset=min(log.last_stable_offset, safe_offset),
        now_ms=now_ms,
    )


class _Run:
    """One run through one log, from the map of its dirty part to the last group of segments."""

    def __init__(self, store: Store, log: PartitionLog, hash_key: bytes, map_bytes: int, rate: IoRate) -> None:
        self._store = store
        self._disk = store.disk
        self._log = log
        self._opened: OpenLog = log.opened
        self._generation = self._opened.generation
        self._hash_key = hash_key
        self._map_bytes = map_bytes
        self._rate = rate
        self._now_ms = store.clock.now_ms()
        self._stats = CleaningStats()

    def steps(self, safe_offset: int) -> Generator[Step, None, None]:
        log, opened = self._log, self._opened
        started = self._store.clock.monotonic()
        found = range_of(log, self._now_ms, safe_offset)
        if found.dirty_bytes == 0:
            return
        offsets = OffsetMap(self._hash_key, found.end_offset - found.first_dirty_offset, self._map_bytes)
        yield from self._fill(offsets, found)
        end_offset = offsets.latest_offset + 1
        if end_offset <= found.first_dirty_offset:
            raise LogDamaged(f"{log.directory}: the keys of one batch do not fit in {self._map_bytes} bytes")
        segments = [segment for segment in opened.segments[:-1] if segment.base_offset < end_offset]
        before = sum(segment.size for segment in segments)
        transactions = CleanedTransactions()
        for group in self._groups(segments):
            rules = CleaningRules(
                offsets=offsets,
                last_records=LastRecordsOf(opened.producers),
                end_offset=found.end_offset,
                now_ms=self._now_ms,
                delete_retention_ms=log.config.delete_retention_ms,
            )
            yield from self._clean_group(group, rules, transactions)
        self._check_unchanged(())
        log.cleaned_offset = end_offset
        stats = self._stats
        logger.info(
            "log=%s compacted up to offset %d: %d of %d records kept, %d of %d bytes, in %.1f s",
            log.directory, end_offset, stats.records_kept, stats.records_read, stats.bytes_written, before,
            self._store.clock.monotonic() - started,
        )  # fmt: skip
        if stats.unreadable_batches:
            logger.error("log=%s %d batches cannot be read and stay", log.directory, stats.unreadable_batches)

    # The map -----------------------------------------------------------------------------------------

    def _fill(self, offsets: OffsetMap, found: CleanableRange) -> Generator[Step, None, None]:
        """Take the keys of the dirty part into the map, until it is full."""
        start = found.first_dirty_offset
        transactions = CleanedTransactions()
        transactions.add_aborted(self._opened.aborted_transactions(start, found.end_offset))
        # Retention may take segments away while this goes on; where each one ends does not change.
        segments = [(segment, self._opened.end_of(number)) for number, segment in enumerate(self._opened.segments)]
        for segment, end in segments:
            if end <= start or segment.base_offset >= found.end_offset:
                continue
            has_room = yield from self._map_segment(segment, end, offsets, transactions, start)
            if not has_room:
                return
            # Compaction may have taken what was at the end of the segment.
            offsets.latest_offset = max(offsets.latest_offset, end - 1)

    def _map_segment(
        self, segment: Segment, end: int, offsets: OffsetMap, transactions: CleanedTransactions, start: int
    ) -> Generator[Step, None, bool]:
        """Take the keys of one segment, which ends at `end`, from `start` on into the map; False if it is full."""
        position = segment.position_of(start) if segment.base_offset < start else 0
        expected = segment.base_offset
        while position < segment.size:
            batches, position = yield from self._read(segment, position, expected, end)
            expected = batches[-1][0].next_offset
            cost = 0
            for header, batch in batches:
                has_room = yield from map_batch(batch, header, offsets, transactions, start)
                if not has_room:
                    return False
                cost += header.records_count + BATCH_COST
                if cost >= RECORDS_PER_STEP:
                    cost = 0
                    yield None
            self._check_unchanged((segment,))
        return True

    # The new segments --------------------------------------------------------------------------------

    def _groups(self, segments: Sequence[Segment]) -> list[list[Segment]]:
        facts = [
            CleanableSegment(
                base_offset=segment.base_offset,
                end_offset=self._opened.end_of(number),
                size=segment.size,
                offset_index_size=segment.offsets.size,
                time_index_size=segment.times.size,
            )
            for number, segment in enumerate(segments)
        ]
        return [[segments[number] for number in group] for group in group_segments(facts, self._log.config)]

    def _clean_group(
        self, group: list[Segment], rules: CleaningRules, transactions: CleanedTransactions
    ) -> Generator[Step, None, None]:
        """Write what is left of the segments into new ones and put these in their place."""
        self._check_unchanged(group)
        writer = CleanedSegments(self._opened, self._log, group[0].base_offset, self._now_ms)
        transactions.keep_aborted = writer.add_transaction
        try:
            for segment in group:
                number = self._opened.segments.index(segment)
                end = self._opened.end_of(number)
                transactions.add_aborted(self._opened.aborted_transactions(segment.base_offset, end))
                yield from self._copy(segment, end, writer, rules, transactions)
                self._check_unchanged(group)
            yield from writer.finish(max(segment.changed_ms for segment in group))
            self._check_unchanged(group)
            yield from self._replace(group, writer)
        finally:
            writer.discard()

    def _copy(
        self,
        segment: Segment,
        end: int,
        writer: CleanedSegments,
        rules: CleaningRules,
        transactions: CleanedTransactions,
    ) -> Generator[Step, None, None]:
        """Write what is left of one segment, which ends at `end`."""
        position, expected = 0, segment.base_offset
        while position < segment.size:
            batches, position = yield from self._read(segment, position, expected, end)
            expected = batches[-1][0].next_offset
            cost = 0
            for header, batch in batches:
                kept = yield from clean_batch(batch, header, rules, transactions, self._stats)
                if kept is not None:
                    writer.add(kept.header, kept.batch)
                    self._rate.used(kept.header.size)
                cost += header.records_count + BATCH_COST
                if cost >= RECORDS_PER_STEP:
                    cost = 0
                    yield None
            self._check_unchanged((segment,))

    def _replace(self, group: list[Segment], writer: CleanedSegments) -> Generator[Step, None, None]:
        opened = self._opened
        decided = False
        try:
            opened.prepare_replacement(writer.segments)
            yield from offload(partial(self._disk.sync_directory, opened.directory), OSError)
            self._check_unchanged(group)
            # From here on the new files are not the writer's to remove: they may be all that is left.
            writer.segments, decided = [], True
            opened.replace_segments(group, self._log.config)
        except OSError as error:
            if decided:
                # Some of the files may have their new names and some not: a start will finish it or undo it.
                raise self._log.fail(error) from error
            raise
        finally:
            if not decided:
                self._undo()

    def _undo(self) -> None:
        try:
            self._opened.cancel_replacement()
        except OSError as error:
            # A start would bring back what may be truncated by then.
            raise self._log.fail(error) from error

    def _check_unchanged(self, segments: Iterable[Segment]) -> None:
        """Raises CleaningAborted unless the log is as it was and still has these segments."""
        log, opened = self._log, self._opened
        gone = log.offline_reason is not None or not log.is_open or log.opened is not opened
        if gone or opened.generation is not self._generation:
            raise CleaningAborted("the log was closed or truncated")
        if any(segment not in opened.segments for segment in segments):
            raise CleaningAborted("segments were removed")

    # Reading -----------------------------------------------------------------------------------------

    def _read(
        self, segment: Segment, position: int, expected: int, end_offset: int
    ) -> Generator[Step, None, tuple[list[tuple[BatchHeader, memoryview]], int]]:
        """The whole batches of the next stretch of a segment, with offsets from `expected` up to `end_offset`, and the
        position behind them. Raises LogDamaged.
        """
        size = min(READ_BYTES, segment.size - position)
        data = yield from self._read_bytes(segment, position, size)
        try:
            found = list(iterate_batches(data))
            if not found:
                size = parse_header(data).size
                data = yield from self._read_bytes(segment, position, size)
                found = list(iterate_batches(data))
        except CorruptRecord as error:
            raise segment.damaged(position, str(error)) from error
        if not found:
            raise segment.damaged(position, "the file ends within a batch")
        view = memoryview(data)
        for at, header in found:
            # A damaged record would get a checksum that is right, or let others go that it is no successor of.
            verify_batch(segment, view, at, position + at, header)
            verify_offset(segment, position + at, header, expected, end_offset)
            expected = header.next_offset
        end = found[-1][0] + found[-1][1].size
        return [(header, view[at : at + header.size]) for at, header in found], position + end

    def _read_bytes(self, segment: Segment, position: int, size: int) -> Generator[Step, None, bytes]:
        # Opened here, because the cache of open files belongs to the event loop; kept open by the reference.
        descriptor = segment.descriptor()
        self._rate.used(size)
        return (yield from offload(partial(read_exactly, self._disk, descriptor.fd, size, position), OSError))


class LastRecordsOf:
    """What must stay of each producer of a log. One is looked at when a batch of it is met: there may be very many."""

    __slots__ = ("_producers",)

    def __init__(self, producers: ProducerStates) -> None:
        self._producers = producers

    def get(self, producer_id: ProducerId, /) -> LastRecord | None:
        """See LastRecords."""
        entry = self._producers.get(producer_id)
        if entry is None:
            return None
        return LastRecord(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
