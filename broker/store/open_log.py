"""A partition log while it is open: its segments, leader epochs and producers, in memory and as files.

Whether it may be used, and what its offsets mean to leaders and followers, is told in `partition_log.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final
from zlib import crc32

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.index import RELATIVE_OFFSET_MAX
from raftlog.broker.core.log.leader_epochs import LeaderEpochs
from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.core.log.results import FileRange
from raftlog.broker.core.log.retention import Removal, SegmentFacts, segments_to_remove
from raftlog.broker.core.log.transactions import AbortedTransaction, collect
from raftlog.broker.ports import Buffer
from raftlog.broker.store.files import FULL_DISK_ERRORS, Descriptor
from raftlog.broker.store.leader_epoch_file import LeaderEpochFile
from raftlog.broker.store.log_segments import LogSegments
from raftlog.broker.store.names import DELETED_SUFFIX, PARTITION_METADATA, SWAP_SUFFIX
from raftlog.broker.store.pending_flush import PendingFlush
from raftlog.broker.store.producer_snapshots import ProducerSnapshots
from raftlog.broker.store.segment import Segment
from raftlog.broker.store.store import Store
from raftlog.broker.store.transaction_checks import check_transaction, sound_entries
from raftlog.wire.batch import BatchHeader
from raftlog.wire.errors import InvariantViolation
from raftlog.wire.ids import LeaderEpoch

logger = logging.getLogger("raftlog.log")

SNAPSHOT_INTERVAL_BYTES: Final = 4 << 20
"""A flush writes a producer snapshot if so much was appended since the last: a start reads the headers behind it."""
SMALL_LOG_BYTES: Final = 16 << 10
"""A log up to this size is closed without a producer snapshot when it knows no producers."""


class OpenLog:
    """Everything in it ends at `end_offset`, the log end.

    `generation` is another object once the log was truncated or closed: what was begun before says nothing any more.
    """

    __slots__ = (
        "_replacing",
        "_snapshot_size",
        "_syncing",
        "_syncing_directories",
        "_unsynced",
        "_unsynced_directories",
        "directory",
        "epoch_file",
        "epochs",
        "generation",
        "producers",
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
        snapshots: ProducerSnapshots,
    ) -> None:
        self.store = store
        self.directory = directory
        self.segments = LogSegments(segments)
        self.epochs = epochs
        self.epoch_file = LeaderEpochFile(store.disk, directory, epochs)
        self.producers = producers
        self.snapshots = snapshots
        self.generation = object()
        # Cleaned segments that a restart would put in the place of others.
        self._replacing: list[Segment] = []
        # Size of the active segment when the last snapshot was taken.
        self._snapshot_size = 0
        # Files beside the log files that were written and not synced since.
        self._unsynced: dict[str, None] = {}
        self._unsynced_directories: dict[str, None] = {}
        # Those that the last flush was given: it may be under way still.
        self._syncing: dict[str, None] = {}
        self._syncing_directories: dict[str, None] = {}

    @property
    def end_offset(self) -> int:
        return self.producers.end_offset

    def end_of(self, number: int) -> int:
        """The offset at which a segment ends, exclusive."""
        return self.segments.end_of(number, self.end_offset)

    def mark_names_new(self) -> None:
        """The directory itself may not be on stable storage: the first flush syncs it and the one above."""
        self._unsynced_directories[self.directory] = None
        self._unsynced_directories[self.directory.rpartition("/")[0]] = None
        self._unsynced[f"{self.directory}/{PARTITION_METADATA}"] = None

    # Appending ---------------------------------------------------------------------------------------

    def append(
        self, header: BatchHeader, batch: Buffer, base_offset: int, leader_epoch: LeaderEpoch, config: LogConfig
    ) -> None:
        """Append one batch whose offset and epoch are written in it (hot path). The caller has seen to the segment
        (`must_roll`), and brings the producers forward. Raises OSError; the log is as before then.
        """
        segments = self.segments
        active = segments.active
        position = active.size
        active.append(
            batch, len(batch), base_offset + header.last_offset_delta, header.max_timestamp, config.index_interval_bytes
        )
        if leader_epoch != self.epochs.latest:
            self.epochs.assign(leader_epoch, base_offset)
        segments.remember_batch(base_offset, position)

    def append_run(
        self, view: memoryview, batches: Sequence[tuple[int, BatchHeader]], now_ms: int, config: LogConfig
    ) -> None:
        """Append neighbouring batches, (position in `view`, header) each, that have their offsets and epochs, in one
        write to one segment; the caller brings the producers forward. Raises OSError; the log is as before then.
        """
        epochs = self.epochs
        if self.must_roll_for_run(batches, now_ms, config):
            # At the log end, so that segments meet even where offsets have gaps: recovery takes a gap between two
            # segments for the lost end of the first.
            fits = batches[-1][1].last_offset - self.end_offset <= RELATIVE_OFFSET_MAX
            self.roll(self.end_offset if fits else batches[0][1].base_offset, now_ms, config)
        active = self.segments.active
        position = active.size
        last_at, last = batches[-1]
        active.append_run(view[: last_at + last.size], batches, config.index_interval_bytes)
        for _, header in batches:
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, header.base_offset)
        self.segments.remember_batch(last.base_offset, position + last_at)

    def must_roll_for_run(self, batches: Sequence[tuple[int, BatchHeader]], now_ms: int, config: LogConfig) -> bool:
        """As `must_roll`, for batches that are to be appended together."""
        at, last = batches[-1]
        largest = last.max_timestamp if at == 0 else max([header.max_timestamp for _, header in batches])
        return self.must_roll(at + last.size, last.last_offset, largest, now_ms, config)

    def must_roll(self, size: int, last_offset: int, max_timestamp: int, now_ms: int, config: LogConfig) -> bool:
        """Whether `size` bytes more need a new segment: segment.bytes, segment.ms, segment.index.bytes, offsets."""
        segment = self.segments.active
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
        return crc32(self.segments.active.path.encode()) % min(config.segment_jitter_ms, config.segment_ms)

    def roll(self, base_offset: int, now_ms: int, config: LogConfig) -> None:
        """A new active segment that begins at `base_offset`, the log end. Raises OSError; then nothing changed."""
        active = self.segments.active
        if base_offset < active.base_offset or (base_offset == active.base_offset and active.size):
            raise InvariantViolation(f"{self.directory}: a segment from {base_offset} on is there already")
        active.finish()
        self.sync_with_next(active)
        self.take_snapshot(base_offset)
        self.segments.add_active(self._create_segment(base_offset, now_ms, config))
        self._snapshot_size = 0
        self._unsynced_directories[self.directory] = None
        logger.info("log=%s rolled to a segment from offset %d on", self.directory, base_offset)

    def _create_segment(self, base_offset: int, now_ms: int, config: LogConfig) -> Segment:
        """A new segment's files; none of them if there is no room for all. Raises OSError."""
        preallocate = config.segment_bytes if config.preallocate else 0
        return Segment.create(self.store.files, self.directory, base_offset, now_ms=now_ms, preallocate=preallocate)

    def replay(self, header: BatchHeader, batch: Buffer) -> None:
        """Bring the producers forward over a batch of a producer that was appended, with its offsets in the header.

        Readers of committed records must know of a transaction that was aborted. Raises OSError; a restart then makes
        the index entry from the marker.
        """
        completed = self.producers.replay(header, lambda: batch)
        if completed is not None and completed.aborted:
            index = self.segments.active.transactions
            index.add(AbortedTransaction.of(completed))
            self._unsynced[index.path] = None
            self._unsynced_directories[self.directory] = None

    def take_snapshot(self, offset: int) -> None:
        """Write the producers as they are at `offset`, the log end, unless that is done. Raises OSError."""
        if self.snapshots.latest >= offset:
            return
        path = self.snapshots.write(offset, self.producers)
        self._snapshot_size = self.segments.active.size
        self._unsynced[path] = None
        self._unsynced_directories[self.directory] = None

    def aborted_transactions(self, start: int, end: int, read: FileRange | None = None) -> list[AbortedTransaction]:
        """Aborted transactions that overlap [start, end), and not many that `read` does not hold, if that is what was
        read from `start` on. Raises OSError, LogDamaged.
        """
        found: list[AbortedTransaction] = []
        first = self.segments.number_of(start)
        entries = [sound_entries(each, self.end_of(at)) for at, each in enumerate(self.segments[first:], first)]
        if read is not None and any(entries):
            end = min(end, self.segments.bound_of(start, read))
        for segment, its_entries in zip(self.segments[first:], entries, strict=True):
            if collect(its_entries, start, end, found, partial(check_transaction, self.segments, segment)):
                break
        return found

    # Flushing ------------------------------------------------------------------------------------------

    def begin_flush(self, recovery_point: int, *, rolled_only: bool = False) -> PendingFlush:
        """What to sync so that the whole log is safe, or with `rolled_only` all below the active segment. Raises
        OSError.

        Of the active segment only the log is synced: its index entries can be made again from the batches.
        """
        end_offset, active = self.end_offset, self.segments.active
        segments = self.segments[self.segments.number_of(recovery_point) :]
        if rolled_only:
            del segments[-1]
            end_offset = active.base_offset
        elif active.size - self._snapshot_size >= SNAPSHOT_INTERVAL_BYTES:
            self.take_snapshot(end_offset)
            self._drop_orphan_snapshots()
        disk = self.store.disk
        descriptors = [segment.descriptor() for segment in segments]
        descriptors += [Descriptor(disk, disk.open(path)) for path in self._unsynced if disk.exists(path)]
        pending = PendingFlush(
            disk,
            self.generation,
            end_offset,
            descriptors=descriptors,
            directories=list(self._unsynced_directories),
            write_epochs=self.epoch_file.prepare_write(end_offset),
        )
        self._syncing, self._unsynced = self._unsynced, {}
        self._syncing_directories, self._unsynced_directories = self._unsynced_directories, {}
        return pending

    def _begin_generation(self) -> None:
        """A flush that is under way says nothing any more: the next one syncs what that one was given, too."""
        self.generation = object()
        self._unsynced |= self._syncing
        self._unsynced_directories |= self._syncing_directories

    def sync_with_next(self, segment: Segment) -> None:
        """The next flush covers the segment whole: its log, though it may end where the last flush did, because
        what was truncated must not come back; and its indexes."""
        for path in segment.paths:
            self._unsynced[path] = None

    def finish(self) -> None:
        """Before a clean close: everything into the files. A flush begun now covers the indexes too. Raises OSError."""
        end_offset = self.end_offset
        self.segments.active.write_out()
        if not self._is_read_quickly:
            self.take_snapshot(end_offset)
        self.snapshots.remove(lambda offset: offset != end_offset and not self.segments.starts_segment(offset))
        self.sync_with_next(self.segments.active)

    @property
    def _is_read_quickly(self) -> bool:
        """Whether a start learns as fast from the headers that there is no producer: a file less for a small log."""
        segments = self.segments
        return not self.producers and len(segments) == 1 and segments.active.size < SMALL_LOG_BYTES

    @property
    def is_settled(self) -> bool:
        """Whether a close has nothing to do: all is in the files, and synced, as at the last close.

        A log that was never written to may be without its files: the next start makes them.
        """
        if self.end_offset == 0:
            return True
        snapshot = self._is_read_quickly or self.snapshots.latest == self.end_offset
        written = not (self._unsynced or self._unsynced_directories)
        return snapshot and written and not self.epochs.differ_from_file(self.end_offset)

    # Truncating and removing -----------------------------------------------------------------------------

    def truncate_to(self, end_offset: int, producers: ProducerStates) -> None:
        """Drop all batches that do not end below `end_offset`, where the producers were `producers`. Raises OSError,
        LogDamaged.
        """
        self._begin_generation()
        self.cancel_replacement()
        segment = self.segments.truncate_to(end_offset)
        if (position := segment.position_of(end_offset)) < segment.size:
            segment.truncate(position, end_offset)
        # It may have been complete before, and nobody had asked for its times.
        segment.load_first_timestamp()
        segment.load_largest_timestamp()
        self.epochs.truncate_from(end_offset)
        self.epoch_file.write(end_offset)
        self.snapshots.remove(lambda offset: offset > end_offset)
        self.producers = producers
        self._snapshot_size = 0
        segment.sync()
        self.store.disk.sync_directory(self.directory)

    def restart_at(self, offset: int, now_ms: int, config: LogConfig) -> None:
        """Drop everything; the log is empty and begins at `offset`. Raises OSError."""
        self._begin_generation()
        self.cancel_replacement()
        self.segments.remove_all()
        self.snapshots.remove(lambda _: True)
        self.epochs.clear()
        self.epoch_file.write(offset)
        self.segments.add_active(self._create_segment(offset, now_ms, config))
        self.producers = ProducerStates(end_offset=offset)
        self._snapshot_size = 0
        # The log counts as safe up to `offset` now: so must the name that it has, and the topic.
        self._unsynced_directories[self.directory] = None
        self.begin_flush(offset).sync()

    def apply_retention(self, config: LogConfig, *, log_start_offset: int, high_watermark: int, now_ms: int) -> Removal:
        """Take out the oldest segments that retention.ms, retention.bytes or the log start let go; which they were.
        Their files go after file.delete.delay.ms. Raises OSError, LogDamaged.
        """
        removal = segments_to_remove(
            self._facts(with_times=config.retention_ms >= 0),
            config,
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
            now_ms=now_ms,
        )
        if removal.number == len(self.segments):
            try:
                self.roll(self.end_offset, now_ms, config)
            except OSError as error:
                if error.errno not in FULL_DISK_ERRORS:
                    raise
                # No room for a new segment: the last one stays for now, and the others make room.
                removal = removal._replace(number=removal.number - 1)
        if not removal.number:
            return removal
        # The names of those that stay are synced first: were they lost and the others gone, offsets would begin again.
        self.store.disk.sync_directory(self.directory)
        removed = self.segments.take_oldest(removal.number)
        first = self.segments[0].base_offset
        self.snapshots.remove(lambda offset: offset < first)
        self._retire(removed, config)
        logger.info(
            "log=%s removed %d segments below offset %d: %s", self.directory, removal.number, first, removal.reason
        )
        return removal

    def _facts(self, *, with_times: bool) -> list[SegmentFacts]:
        """What decides which segments go. Raises OSError, LogDamaged."""
        facts = []
        for number, segment in enumerate(self.segments):
            timestamp = segment.load_largest_timestamp() if with_times else -1
            largest = timestamp if timestamp >= 0 else segment.changed_ms
            facts.append(SegmentFacts(segment.base_offset, self.end_of(number), segment.size, largest))
        return facts

    def _retire(self, segments: Sequence[Segment], config: LogConfig) -> None:
        """Rename the files of segments that are no longer part of the log, and have them removed later."""
        for segment in segments:
            segment.rename(DELETED_SUFFIX)
            self.store.remove_later(segment.remove, config.file_delete_delay_ms)

    def _drop_orphan_snapshots(self) -> None:
        latest = self.snapshots.latest
        self.snapshots.remove(lambda offset: offset != latest and not self.segments.starts_segment(offset))

    # Compaction ----------------------------------------------------------------------------------------

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
        new, self._replacing = self._replacing, []
        self.segments.replace(old, new)
        self._retire(old, config)
        for segment in new:
            segment.rename("")
        self._unsynced_directories[self.directory] = None
        self._drop_orphan_snapshots()

    def cancel_replacement(self) -> None:
        """Undo the first half, so that a restart does not bring back what is truncated now. Raises OSError."""
        while self._replacing:
            self._replacing[-1].remove()
            self._replacing.pop()

    # Closing -------------------------------------------------------------------------------------------

    def close(self) -> None:
        """Let go of the descriptors. A flush that is under way no longer touches the directory, which may be gone."""
        self.generation = object()
        self.epoch_file.close()
        self.segments.close()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the parts promise does not hold."""
        self.segments.check_invariants()
        self.epochs.check_invariants()
        self.producers.check_invariants()
        if self.epochs.latest_start > self.end_offset:
            raise InvariantViolation(f"{self.directory}: epoch {self.epochs.latest} begins behind {self.end_offset}")
        if self.snapshots.latest > self.end_offset:
            raise InvariantViolation(f"{self.directory}: a producer snapshot is of offset {self.snapshots.latest}")
