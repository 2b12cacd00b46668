"""The opened part of a partition log: its segments, leader epochs and producers, in memory and as files."""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from threading import Lock
from typing import Final
from zlib import crc32

from raftlog.broker.core.log.checkpoint_text import format_epochs
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.epochs import LeaderEpochs
from raftlog.broker.core.log.index import RELATIVE_OFFSET_MAX
from raftlog.broker.core.log.producers import CompletedTransaction, ProducerStates
from raftlog.broker.core.log.retention import SegmentFacts
from raftlog.broker.core.log.snapshot import encode_snapshot
from raftlog.broker.core.log.transactions import AbortedTransaction
from raftlog.broker.store.files import STAGED_SUFFIX, Descriptor, replace_whole, write_new
from raftlog.broker.store.names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCHS,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    snapshot_name,
)
from raftlog.broker.store.pending_flush import PendingFlush
from raftlog.broker.store.segment import Segment
from raftlog.broker.store.store import Store
from raftlog.wire.errors import InvariantViolation

logger = logging.getLogger("raftlog.log")

RECENT_BATCHES: Final = 64
"""Positions of the latest batches that are remembered: a consumer that keeps up needs no search."""
SNAPSHOT_INTERVAL_BYTES: Final = 4 << 20
"""A flush writes a producer snapshot if so much was appended since the last: a start reads the headers behind it."""
SMALL_LOG_BYTES: Final = 16 << 10
"""A log up to this size is closed without a producer snapshot when it knows no producers."""
READ_ENDS: Final = 32
"""Positions where the latest reads ended that are remembered: each is where its reader goes on."""


class OpenLog:
    """Segments in order of base offset, the last one active.

    Invariants: there is at least one segment; base offsets rise strictly; `_bases` are those of `segments`; `recent`
    points to batches of the active segment.
    """

    __slots__ = (
        "_bases",
        "_epochs_lock",
        "_read_ends",
        "_replacing",
        "_snapshot_size",
        "_unsynced",
        "_unsynced_directories",
        "active",
        "directory",
        "epochs",
        "generation",
        "producers",
        "recent",
        "segments",
        "snapshots",
        "store",
    )

    def __init__(
        self,
        store: Store,
        directory: str,
        segments: list[Segment],
        *,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        snapshots: Iterable[int],
    ) -> None:
        self.store = store
        self.directory = directory
        self.segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.epochs = epochs
        self.producers = producers
        self.snapshots = sorted(snapshots)
        self.recent: dict[int, int] = {}
        self._read_ends: dict[int, tuple[Segment, int]] = {}
        # Cleaned segments that a restart would put in the place of others.
        self._replacing: list[Segment] = []
        # Size of the active segment when the last snapshot was taken.
        self._snapshot_size = 0
        # Files beside the log files that were written and not synced since.
        self._unsynced: dict[str, None] = {}
        self._unsynced_directories: dict[str, None] = {}
        # Grows when the log is cut: a flush begun before says nothing of what was written after.
        self.generation = 0
        self._epochs_lock = Lock()

    def names_are_new(self) -> None:
        """The directory itself may not be on stable storage: the first flush syncs it and the one above."""
        self._unsynced_directories[self.directory] = None
        self._unsynced_directories[self.directory.rpartition("/")[0]] = None
        self._unsynced[f"{self.directory}/{PARTITION_METADATA}"] = None

    # Finding -----------------------------------------------------------------------------------------

    def number_of(self, offset: int) -> int:
        """Number of the segment that holds `offset`: the last one that begins at or below it, else the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The offset at which a segment ends, exclusive."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def find(self, offset: int) -> tuple[int, int]:
        """(segment number, position) of the first batch that ends at `offset` or later.

        At the very end: the active segment and its size. Raises OSError, LogDamaged.
        """
        number = self.number_of(offset)
        while True:
            segment = self.segments[number]
            position = self.position_in(segment, offset)
            if position < segment.size or number + 1 == len(self.segments):
                return number, position
            # Compaction has taken the rest of the segment.
            number += 1

    def end_below(self, offset: int) -> int:
        """Where the log ends once all batches that do not end below `offset` are gone. Raises OSError, LogDamaged."""
        segment = self.segments[self.number_of(offset)]
        entry = segment.offsets.load().floor(offset - 1 - segment.base_offset)
        end = segment.base_offset
        for _, header in segment.headers(entry[1] if entry else 0):
            if header.last_offset >= offset:
                break
            end = header.last_offset + 1
        return end

    def position_in(self, segment: Segment, offset: int) -> int:
        """As Segment.position_of, but remembered positions first."""
        if segment is self.active:
            position = self.recent.get(offset)
            if position is not None:
                return position
        ended = self._read_ends.get(offset)
        if ended is not None and ended[0] is segment:
            return ended[1]
        return segment.position_of(offset)

    def remember_end(self, offset: int, segment: Segment, position: int) -> None:
        """A read ended before `offset`, which begins at `position`."""
        ends = self._read_ends
        if offset not in ends:
            if len(ends) >= READ_ENDS:
                del ends[next(iter(ends))]
            ends[offset] = (segment, position)

    def remember_batch(self, base_offset: int, position: int) -> None:
        """A batch was appended to the active segment."""
        recent = self.recent
        if len(recent) >= RECENT_BATCHES:
            for offset in list(recent)[: RECENT_BATCHES // 2]:
                del recent[offset]
        recent[base_offset] = position

    def forget_positions(self) -> None:
        self.recent.clear()
        self._read_ends.clear()

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self.segments)

    # Growing -----------------------------------------------------------------------------------------

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig) -> bool:
        """Whether `size` bytes more need a new segment: segment.bytes, segment.ms, segment.index.bytes, offsets."""
        segment = self.active
        present = segment.size
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        if present == 0:
            return False
        if present > config.segment_bytes - size or segment.is_full(config.segment_index_bytes):
            return True
        first = segment.first_timestamp
        waited = max_timestamp - first if first >= 0 else now_ms - segment.created_ms
        if not config.segment_jitter_ms:
            return waited > config.segment_ms
        return waited > config.segment_ms - self._jitter(config)

    def _jitter(self, config: LogConfig) -> int:
        """Between 0 and segment.jitter.ms, the same for a segment whenever it is asked, as different as names are."""
        return crc32(self.active.path.encode()) % min(config.segment_jitter_ms, config.segment_ms)

    def roll(self, base_offset: int, now_ms: int, config: LogConfig) -> Segment:
        """A new active segment that begins at `base_offset`, the log end. Raises OSError; then nothing changed."""
        if base_offset < self.active.base_offset or (base_offset == self.active.base_offset and self.active.size):
            raise InvariantViolation(f"{self.directory}: a segment from {base_offset} on is there already")
        self.active.finish()
        self.sync_with_next(self.active)
        self.take_snapshot(base_offset)
        segment = self._create_segment(base_offset, now_ms, config)
        if base_offset == self.active.base_offset:
            self.segments.pop()
            self._bases.pop()
        self.segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        self._snapshot_size = 0
        self.recent.clear()
        self._unsynced_directories[self.directory] = None
        logger.info("log=%s rolled to a segment from offset %d on", self.directory, base_offset)
        return segment

    def _create_segment(self, base_offset: int, now_ms: int, config: LogConfig) -> Segment:
        """A new segment's files; none of them if there is no room for all. Raises OSError."""
        files, directory = self.store.files, self.directory
        preallocate = config.segment_bytes if config.preallocate else 0
        return Segment.create(files, directory, base_offset, now_ms=now_ms, preallocate=preallocate)

    def add_completed(self, completed: CompletedTransaction) -> None:
        """A transaction has ended in the active segment: readers of committed records must know if it was aborted."""
        if completed.aborted:
            self.active.add_transaction(
                AbortedTransaction(
                    completed.producer_id,
                    completed.first_offset,
                    completed.last_offset,
                    completed.last_stable_offset,
                )
            )
            self._unsynced[self.active.transactions_path] = None
            self._unsynced_directories[self.directory] = None

    # Producers and epochs ------------------------------------------------------------------------------

    def take_snapshot(self, offset: int) -> None:
        """Write the producers as they are at `offset`, the log end, unless that is done. Raises OSError."""
        if self.snapshots and self.snapshots[-1] >= offset:
            return
        path = f"{self.directory}/{snapshot_name(offset)}"
        write_new(self.store.disk, path, encode_snapshot(self.producers.entries.values()), sync=False)
        self.snapshots.append(offset)
        self._snapshot_size = self.active.size
        self._unsynced[path] = None
        self._unsynced_directories[self.directory] = None

    def _write_epochs(self, log_end_offset: int) -> None:
        """Bring the leader epochs to stable storage, if they have changed. Raises OSError."""
        if (data := self._changed_epochs(log_end_offset)) is not None:
            self.replace_epochs(data, self.generation)

    def _changed_epochs(self, log_end_offset: int) -> bytes | None:
        if not self.epochs.differ_from_file(log_end_offset):
            return None
        return format_epochs(self.epochs.save(log_end_offset)).encode()

    def replace_epochs(self, data: bytes, generation: int) -> None:
        """Replace the file, from a thread perhaps, unless the log was cut since. Raises OSError."""
        with self._epochs_lock:
            if generation == self.generation:
                replace_whole(self.store.disk, f"{self.directory}/{LEADER_EPOCHS}", data, sync=True)

    def stage_epochs(self, log_end_offset: int) -> bool:
        """Write the leader epochs beside their file, if they have changed; whether they have. Raises OSError."""
        differ = self.epochs.differ_from_file(log_end_offset)
        if differ:
            data = format_epochs(self.epochs.with_records(log_end_offset)).encode()
            write_new(self.store.disk, f"{self.directory}/{LEADER_EPOCHS}{STAGED_SUFFIX}", data, sync=False)
        return differ

    def take_staged_epochs(self, log_end_offset: int) -> None:
        """Put what was staged, and synced since, in the place of the file. Raises OSError."""
        self.store.disk.rename(f"{self.directory}/{LEADER_EPOCHS}{STAGED_SUFFIX}", f"{self.directory}/{LEADER_EPOCHS}")
        self.epochs.save(log_end_offset)

    # Flushing ------------------------------------------------------------------------------------------

    def pending_flush(self, recovery_point: int, log_end_offset: int, *, rolled_only: bool = False) -> PendingFlush:
        """What to sync so that everything below `log_end_offset` is safe; with `rolled_only`, below the active
        segment. Raises OSError.

        Of the active segment only the log is synced: its index entries can be made again from the batches.
        """
        segments = self.segments[self.number_of(recovery_point) :]
        if rolled_only:
            segments.pop()
            log_end_offset = self.active.base_offset
        elif self.active.size - self._snapshot_size >= SNAPSHOT_INTERVAL_BYTES:
            self.take_snapshot(log_end_offset)
            self._drop_orphan_snapshots()
        disk = self.store.disk
        descriptors = [segment.descriptor() for segment in segments]
        for path in self._unsynced:
            if disk.exists(path):
                descriptors.append(Descriptor(disk, disk.open(path)))
        ticket = PendingFlush(
            self, log_end_offset, descriptors, list(self._unsynced_directories), self._changed_epochs(log_end_offset)
        )
        self._unsynced.clear()
        self._unsynced_directories.clear()
        return ticket

    def finish(self, log_end_offset: int) -> None:
        """Before a clean close: everything into the files. A flush ticket taken now covers the indexes too."""
        self.active.write_out()
        if not self._is_read_quickly:
            self.take_snapshot(log_end_offset)
        self._drop_snapshots(lambda offset: offset not in self._bases and offset != log_end_offset)
        self.sync_with_next(self.active)

    @property
    def _is_read_quickly(self) -> bool:
        """Whether a start learns as fast from the headers that there is no producer: a file less for a small log."""
        return not self.producers.entries and len(self.segments) == 1 and self.active.size < SMALL_LOG_BYTES

    def is_settled(self, log_end_offset: int) -> bool:
        """Whether a close has nothing to do: all is in the files, and synced, as at the last close.

        A log that was never written to may be without its files: the next start makes them.
        """
        if log_end_offset == 0:
            return True
        snapshot = self._is_read_quickly or (bool(self.snapshots) and self.snapshots[-1] == log_end_offset)
        written = not (self._unsynced or self._unsynced_directories)
        return snapshot and written and not self.epochs.differ_from_file(log_end_offset)

    def sync_with_next(self, segment: Segment) -> None:
        """The next flush covers the segment whole: its log, though it may end where the last flush did, because
        what was cut off its end must not come back; and its indexes."""
        for file in (segment.log, segment.offsets.file, segment.times.file):
            self._unsynced[file.path] = None
        self._unsynced[segment.transactions_path] = None

    # Shrinking -----------------------------------------------------------------------------------------

    def cut(self, end_offset: int, producers: ProducerStates) -> None:
        """Drop all batches that do not end below `end_offset`, where the producers were `producers`. Whole segments go
        at once, the last first, so that a crash leaves a log without holes. Raises OSError, LogDamaged.
        """
        self.generation += 1
        self.cancel_replacement()
        self.forget_positions()
        number = self.number_of(end_offset)
        while len(self.segments) - 1 > number:
            self._pop_segment().remove()
        segment = self.segments[number]
        if (position := segment.position_of(end_offset)) < segment.size:
            segment.cut(position, end_offset)
        self.active = segment
        self.epochs.truncate_from(end_offset)
        self._write_epochs(end_offset)
        self._drop_snapshots(lambda offset: offset > end_offset)
        self.producers = producers
        self._snapshot_size = 0
        segment.sync()
        self.store.disk.sync_directory(self.directory)

    def restart_at(self, offset: int, now_ms: int, config: LogConfig) -> None:
        """Drop everything; the log is empty and begins at `offset`. Raises OSError."""
        self.generation += 1
        self.cancel_replacement()
        self.forget_positions()
        while self.segments:
            self._pop_segment().remove()
        self._drop_snapshots(lambda _: True)
        self.epochs.clear()
        self._write_epochs(offset)
        self.active = self._create_segment(offset, now_ms, config)
        self.segments.append(self.active)
        self._bases.append(offset)
        self.producers = ProducerStates(end_offset=offset)
        self._snapshot_size = 0
        self.store.disk.sync_directory(self.directory)

    def _pop_segment(self) -> Segment:
        self._bases.pop()
        return self.segments.pop()

    def facts(self, log_end_offset: int, *, with_times: bool) -> list[SegmentFacts]:
        """What decides which segments go. Raises OSError, LogDamaged."""
        facts = []
        for number, segment in enumerate(self.segments):
            timestamp = segment.load_largest_timestamp() if with_times else -1
            end = self.end_of(number, log_end_offset)
            largest = timestamp if timestamp >= 0 else segment.changed_ms
            facts.append(SegmentFacts(segment.base_offset, end, segment.size, largest))
        return facts

    def remove_oldest(self, count: int, config: LogConfig) -> None:
        """Take the oldest segments out; their files go after file.delete.delay.ms. Raises OSError.

        The names of those that stay are synced first: were they lost and the others gone, offsets would begin again.
        """
        self.store.disk.sync_directory(self.directory)
        removed = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        self._read_ends.clear()
        first = self._bases[0]
        self._drop_snapshots(lambda offset: offset < first)
        self.retire(removed, config)

    def retire(self, segments: Sequence[Segment], config: LogConfig) -> None:
        """Rename the files of segments that are no longer part of the log, and have them removed later."""
        for segment in segments:
            segment.rename(DELETED_SUFFIX)
            self.store.remove_later(segment.remove, config.file_delete_delay_ms)

    def _drop_snapshots(self, doomed: Callable[[int], bool]) -> None:
        kept = []
        for offset in self.snapshots:
            if doomed(offset):
                self.store.disk.remove(f"{self.directory}/{snapshot_name(offset)}")
            else:
                kept.append(offset)
        self.snapshots = kept

    # Compaction ----------------------------------------------------------------------------------------

    def new_cleaned_segment(self, base_offset: int, now_ms: int) -> Segment:
        """An empty segment under a name that a restart removes (`.cleaned`), for the cleaner to fill."""
        return Segment.create(self.store.files, self.directory, base_offset, now_ms=now_ms, suffix=CLEANED_SUFFIX)

    def prepare_replacement(self, new: Sequence[Segment]) -> None:
        """First half of putting cleaned, synced segments in the place of others: they become `.swap`, the last first.

        Once the first of them is `.swap` a restart finishes the work (no `.cleaned` with a lower offset is left),
        before that it undoes it. The directory is to be synced, in a thread perhaps, before the second half. Raises
        OSError.
        """
        self._replacing = list(new)
        for segment in reversed(new):
            segment.rename(SWAP_SUFFIX)

    def replace_segments(self, old: Sequence[Segment], config: LogConfig) -> None:
        """Second half: `old`, neighbours below the active one, go and the new ones take their names. Raises OSError."""
        first = self.segments.index(old[0])
        if list(old) != self.segments[first : first + len(old)] or self.active in old:
            raise InvariantViolation(f"{self.directory}: the segments to replace are not neighbours below the active")
        new, self._replacing = self._replacing, []
        self._read_ends.clear()
        self.segments[first : first + len(old)] = new
        self._bases[first : first + len(old)] = [segment.base_offset for segment in new]
        self.retire(old, config)
        for segment in new:
            segment.rename("")
        self._unsynced_directories[self.directory] = None
        self._drop_orphan_snapshots()

    def cancel_replacement(self) -> None:
        """Undo the first half, so that a restart does not bring back what is cut now. Raises OSError."""
        while self._replacing:
            self._replacing[-1].remove()
            self._replacing.pop()

    def _drop_orphan_snapshots(self) -> None:
        bases = set(self._bases)
        last = self.snapshots[-1] if self.snapshots else 0
        self._drop_snapshots(lambda offset: offset not in bases and offset != last)

    # Closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the descriptors. A flush that is under way no longer touches the directory, which may be gone."""
        with self._epochs_lock:
            self.generation += 1
        for segment in self.segments:
            segment.close()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        if not self.segments or self.active is not self.segments[-1]:
            raise InvariantViolation(f"{self.directory}: the active segment is not the last")
        if self._bases != [segment.base_offset for segment in self.segments]:
            raise InvariantViolation(f"{self.directory}: base offsets {self._bases} are not those of the segments")
        if any(later <= earlier for earlier, later in pairwise(self._bases)):
            raise InvariantViolation(f"{self.directory}: base offsets do not rise: {self._bases}")
        self.epochs.check_invariants()
        self.producers.check_invariants()

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.segments)
