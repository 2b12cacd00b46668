"""Opening the log of a partition (Kafka's LogLoader): what is on disk becomes segments, epochs and producers again.

- Below the recovery point nothing is read but the headers behind the last index entry, and those that the last
  producer snapshot has not seen. If the log is shorter than the recovery point, or a header met there is damaged,
  records that were safe are gone: LogDamaged, and the partition stays offline with all its files untouched.
- From the recovery point on every batch is read and checked (`log_recovery.py`).
- What was read there is synced before anybody is served: a record that was once seen must not vanish (KAFKA-8812).
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple

from raftlog.broker.core.log.checkpoint_text import CorruptCheckpoint, parse_epochs
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.leader_epochs import LeaderEpochs
from raftlog.broker.core.log.producer_snapshot import CorruptSnapshot
from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.core.log.results import LogDamaged
from raftlog.broker.store.files import read_whole
from raftlog.broker.store.log_recovery import LogRecovery
from raftlog.broker.store.names import LEADER_EPOCHS, SNAPSHOT_SUFFIX, offset_of
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.producer_snapshots import ProducerSnapshots
from raftlog.broker.store.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, SUFFIXES, TIME_INDEX_SUFFIX, Segment
from raftlog.broker.store.store import Store
from raftlog.broker.store.swap_files import complete_swaps

logger = logging.getLogger("raftlog.recovery")


class LoadedLog(NamedTuple):
    """An opened log. What is above `recovery_point` must be synced before anybody is served."""

    opened: OpenLog
    log_start_offset: int
    recovery_point: int


def load_log(
    store: Store,
    directory: str,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    high_watermark: int = 0,
    clean: bool,
    new: bool = False,
    gaps_are_losses: bool = True,
) -> LoadedLog:
    """Open the log in `directory`.

    `clean` says that the broker stopped by itself: then indexes are complete; `new` that the directory was made just
    now, and nothing need be looked for in it; `gaps_are_losses` that what is missing between two segments behind the
    recovery point was not compacted away. Raises OSError, LogDamaged.
    """
    loader = _Loader(
        store, directory, config, log_start_offset=log_start_offset, recovery_point=recovery_point, clean=clean
    )
    loader.high_watermark, loader.gaps_are_losses = high_watermark, gaps_are_losses
    return loader.begin() if new else loader.run()


class _Loader:
    """One run. The steps are in the order in which `run` calls them."""

    def __init__(
        self,
        store: Store,
        directory: str,
        config: LogConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        clean: bool,
    ) -> None:
        self.store = store
        self.disk = store.disk
        self.directory = directory
        self.config = config
        self.log_start_offset = log_start_offset
        self.recovery_point = recovery_point
        self.high_watermark = 0
        self.gaps_are_losses = True
        self.clean = clean
        self.segments: list[Segment] = []
        self.epochs_are_lost = False
        self.snapshots = ProducerSnapshots(self.disk, directory)

    def begin(self) -> LoadedLog:
        """The first segment of a log that has never been."""
        self.epochs = LeaderEpochs()
        return self._start_empty(new=True)

    def run(self) -> LoadedLog:
        names = set(complete_swaps(self.store, self.directory))
        self._load_segments(names)
        self.epochs = self._load_epochs(names)
        offsets = [offset_of(name) for name in names if name.endswith(SNAPSHOT_SUFFIX)]
        self.snapshots = ProducerSnapshots(
            self.disk, self.directory, [offset for offset in offsets if offset is not None]
        )
        if not self.segments:
            return self._start_empty()
        number = self._segment_of_recovery_point()
        position, reached = self._position_of_recovery_point(number)
        if self.epochs_are_lost:
            self._learn_epochs(number, position)
        self.producers = self._load_producers(number, position)
        recovery = LogRecovery(
            self.store,
            self.directory,
            self.config,
            segments=self.segments,
            epochs=self.epochs,
            producers=self.producers,
            gaps_are_losses=self.gaps_are_losses,
        )
        end_offset = recovery.run(number, position, max(reached, self.recovery_point))
        if end_offset < self.log_start_offset:
            # Only what DeleteRecords had removed anyway was lost.
            for segment in self.segments:
                segment.remove()
            self.segments.clear()
            return self._start_empty()
        return self._finish(number, end_offset, changed=recovery.changed)

    # Files -----------------------------------------------------------------------------------------------------

    def _load_segments(self, names: set[str]) -> None:
        for name in sorted(names):
            base_offset = offset_of(name)
            if base_offset is None:
                continue
            if name.endswith(LOG_SUFFIX):
                self.segments.append(Segment.load(self.store.files, self.directory, base_offset))
            elif name.endswith(SUFFIXES) and f"{base_offset:020d}{LOG_SUFFIX}" not in names:
                if self.clean:
                    # A stop leaves none behind. A crash may, while a segment is being removed.
                    raise LogDamaged(
                        f"{self.directory}: {name} has no log file, and a clean stop left one: the records from offset "
                        f"{base_offset} on are missing, which were safe. Restore it from a replica or a backup, or "
                        "stop the broker and move the partition's directory away to go on without its records."
                    )
                logger.warning("log=%s removing %s, which has no log file", self.directory, name)
                self.disk.remove(f"{self.directory}/{name}")
        for segment, following in zip(self.segments, self.segments[1:], strict=False):
            if following.base_offset > self.recovery_point:
                # What is not known to be whole is checked, and indexed, later.
                break
            # One may be missing if a crash came while a cleaned segment was taking its names.
            indexes = {f"{segment.base_offset:020d}{suffix}" for suffix in (OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX)}
            if not indexes <= names:
                logger.warning("log=%s an index of %s is missing: made again", self.directory, segment.log.path)
                rebuild_indexes(segment, self.config)

    def _load_epochs(self, names: set[str]) -> LeaderEpochs:
        why = "there is no file"
        if LEADER_EPOCHS in names:
            try:
                return LeaderEpochs(parse_epochs(read_whole(self.disk, f"{self.directory}/{LEADER_EPOCHS}").decode()))
            except (CorruptCheckpoint, UnicodeDecodeError) as error:
                why = str(error)
        if self.segments and self.segments[0].base_offset < self.recovery_point:
            # Without them a replica that has parted from its leader would not be found out.
            logger.error("log=%s the leader epochs are made again from the batches: %s", self.directory, why)
            self.epochs_are_lost = True
        return LeaderEpochs()

    def _start_empty(self, *, new: bool = False) -> LoadedLog:
        if self.recovery_point > self.log_start_offset:
            raise LogDamaged(
                f"{self.directory}: the log files are missing, and with them the records from offset "
                f"{self.log_start_offset} to {self.recovery_point}, which were safe. Restore them from a replica or a "
                "backup, or stop the broker and remove the directory to go on without its records."
            )
        preallocate = self.config.segment_bytes if self.config.preallocate else 0
        start = self.log_start_offset
        files, now_ms = self.store.files, self.store.clock.now_ms()
        segment = Segment.create(
            files, self.directory, start, now_ms=now_ms, preallocate=preallocate, replacing=not new
        )
        self.snapshots.remove(lambda _: True)
        self.epochs.clear()
        self.segments, self.producers = [segment], ProducerStates(end_offset=start)
        opened = self._open_log()
        opened.mark_names_new()
        return LoadedLog(opened, start, start)

    def _open_log(self) -> OpenLog:
        return OpenLog(
            self.store,
            self.directory,
            self.segments,
            epochs=self.epochs,
            producers=self.producers,
            snapshots=self.snapshots,
        )

    # Below the recovery point ----------------------------------------------------------------------------------

    def _segment_of_recovery_point(self) -> int:
        """The segment of the last offset below it: what follows its last batch there may not be in order."""
        numbers = [n for n, segment in enumerate(self.segments) if segment.base_offset < self.recovery_point]
        if not numbers and self.segments[0].base_offset > self.log_start_offset:
            logger.warning(
                "log=%s begins at offset %d, behind its recovery point %d: retention removed what was before",
                self.directory,
                self.segments[0].base_offset,
                self.recovery_point,
            )
        return numbers[-1] if numbers else 0

    def _position_of_recovery_point(self, number: int) -> tuple[int, int]:
        """Where checking begins, and the offset there; index entries are made for what lies between the last one and
        there.
        """
        segment = self.segments[number]
        relative = self.recovery_point - segment.base_offset
        if not self.clean:
            segment.offsets.keep_trusted(key_end=max(relative, 0), value_end=segment.size)
            segment.times.keep_trusted(key_end=1 << 63, value_end=max(relative, 0))
            segment.transactions.truncate_to(self.recovery_point)
        last = segment.offsets.load().last
        position, reached = last[1] if last else 0, segment.base_offset
        if relative <= 0:
            return 0, segment.base_offset
        last_time = segment.times.load().last
        if not self.clean:
            # More may be lost of the times than of the offsets: the greatest of all may lie behind the last one.
            entry = segment.offsets.floor(last_time[1]) if last_time else None
            position = entry[1] if entry else 0
        segment.largest_timestamp = last_time[0] if last_time else -1
        segment.largest_timestamp_offset = segment.base_offset + (last_time[1] if last_time else 0)
        for at, header in segment.headers(position):
            in_order = reached <= header.base_offset and header.last_offset < self.recovery_point
            if not in_order or at + header.size > segment.size:
                break
            # The batch of the last entry itself has its entry already.
            interval = self.config.index_interval_bytes if last is None or at > last[1] else 1 << 62
            segment.note(at, header.size, header.last_offset, header.max_timestamp, interval)
            position, reached = at + header.size, header.last_offset + 1
            if reached >= self.recovery_point:
                break
        following = self.segments[number + 1].base_offset if number + 1 < len(self.segments) else -1
        # Compaction may have taken the end of a segment, or all of it, if the whole segment is below.
        compacted = position == segment.size and following == self.recovery_point
        if reached < self.recovery_point and not compacted:
            raise segment.damaged(
                position, f"the log ends at offset {reached}, but it was safe up to {self.recovery_point}"
            )
        return position, reached

    def _learn_epochs(self, number: int, position: int) -> None:
        """From the headers of all batches below the recovery point."""
        for each, segment in enumerate(self.segments[: number + 1]):
            for _, header in segment.headers(0, position if each == number else segment.size):
                if header.partition_leader_epoch > self.epochs.latest:
                    self.epochs.assign(header.partition_leader_epoch, header.base_offset)

    def _load_producers(self, number: int, position: int) -> ProducerStates:
        """The producers at the recovery point: the newest usable snapshot, and the headers of what follows it."""
        states = self._newest_snapshot(number, position)
        states.expire(self.store.clock.now_ms(), self.store.producer_expiration_ms)
        for each, segment in enumerate(self.segments[: number + 1]):
            end = position if each == number else segment.size
            seen = each < number and self.segments[each + 1].base_offset <= states.end_offset
            if seen or states.end_offset >= self.recovery_point:
                continue
            for at, header in segment.headers(segment.position_of(states.end_offset), end):
                states.replay(header, partial(segment.read_sound_batch, at, header.size))
        return states

    def _newest_snapshot(self, number: int, position: int) -> ProducerStates:
        """The producers of the newest snapshot that can be read and is of the log below the recovery point; those that
        are not go.
        """
        first = max(self.segments[0].base_offset, self.log_start_offset)
        for offset in self.snapshots.offsets[::-1]:
            if offset < first:
                break
            if offset <= self.recovery_point:
                if offset > self.high_watermark and self._hides_a_marker(offset, number, position):
                    continue
                try:
                    return self.snapshots.read(offset)
                except CorruptSnapshot as error:
                    logger.warning("log=%s passing over %s: %s", self.directory, self.snapshots.path(offset), error)
            self.snapshots.remove(offset.__eq__)
        return ProducerStates(end_offset=first)

    def _hides_a_marker(self, offset: int, number: int, position: int) -> bool:
        """Whether a snapshot has seen a transaction marker that is not known to be committed: the transaction must not
        be stable before that, and the snapshot does not tell of it. Looked for in one segment.
        """
        before = [n for n in range(number + 1) if self.segments[n].base_offset < offset]
        if not before:
            return False
        each = before[-1]
        segment = self.segments[each]
        start = segment.position_of(max(self.high_watermark, segment.base_offset))
        # Behind the recovery point nothing is known to be whole.
        headers = segment.headers(start, position if each == number else segment.size)
        return any(
            header.is_control and header.producer_id >= 0 and header.base_offset < offset for _, header in headers
        )

    # Afterwards ------------------------------------------------------------------------------------------------

    def _finish(self, number: int, end_offset: int, *, changed: bool) -> LoadedLog:
        log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        self.snapshots.remove(lambda offset: offset > end_offset)
        self.producers.end_offset = end_offset
        active = self.segments[-1]
        active.load_first_timestamp()
        active.load_largest_timestamp()
        self.epochs.truncate_from(end_offset)
        opened = self._open_log()
        opened.epochs.truncate_before(log_start_offset)
        if changed:
            # So that the next start need not read again what this one has read.
            opened.take_snapshot(end_offset)
            for segment in self.segments[number:]:
                segment.offsets.complete()
                segment.times.complete()
                opened.sync_with_next(segment)
        never_flushed = self.recovery_point <= log_start_offset
        if changed or never_flushed or self.snapshots.removed:
            # A snapshot that was removed tells of records that others take the place of: it must not come back.
            opened.mark_names_new()
        return LoadedLog(opened, log_start_offset, min(self.recovery_point, end_offset))


def rebuild_indexes(segment: Segment, config: LogConfig) -> None:
    """Make the indexes of a segment anew from the headers of its batches. Raises OSError, LogDamaged."""
    segment.offsets.keep(0)
    segment.times.keep(0)
    segment.bytes_since_index = 0
    segment.largest_timestamp = -1
    for position, header in segment.headers():
        segment.note(position, header.size, header.last_offset, header.max_timestamp, config.index_interval_bytes)
    segment.add_time_entry()
    segment.offsets.sync()
    segment.times.sync()
