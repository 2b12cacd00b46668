"""Opening the log of a partition: what is on disk becomes segments, epochs and producers again.

- Below the recovery point nothing is read but the headers behind the last index entry, and those that the last
  producer snapshot has not seen. If the log is shorter than the recovery point, or a header met there is damaged,
  records that were safe are gone: LogDamaged, and the partition stays offline with all its files untouched.
- From the recovery point on every batch is read and checked. The first one that is torn or damaged ends the log; what
  follows it is cut off as Kafka does, and how much that was is logged.
  Whether that can have been acknowledged is told: after the death of the process alone nothing but a write that it cut
  short can be missing.
- What was read there is synced before anybody is served: a record that was once seen must not vanish (KAFKA-8812).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from raftlog.broker.core.log.checkpoint_text import CorruptCheckpoint, parse_epochs
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.epochs import LeaderEpochs
from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.core.log.results import LogDamaged
from raftlog.broker.core.log.snapshot import CorruptSnapshot, decode_snapshot
from raftlog.broker.core.log.transactions import AbortedTransaction
from raftlog.broker.store.files import read_exactly, read_whole
from raftlog.broker.store.names import LEADER_EPOCHS, SNAPSHOT_SUFFIX, offset_of, snapshot_name
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.segment import LOG_SUFFIX, OFFSET_INDEX_SUFFIX, SUFFIXES, TIME_INDEX_SUFFIX, Segment
from raftlog.broker.store.store import Store
from raftlog.broker.store.swapping import finish_swap
from raftlog.broker.store.truncation_plan import replay_batch
from raftlog.wire.batch import HEADER_SIZE, BatchHeader, CorruptRecord, check_crc, parse_header

logger = logging.getLogger("raftlog.recovery")

PAGE_BYTES: Final = 4096
"""The smallest that machines have."""

SCAN_BYTES: Final = 1 << 20
"""How much is read at once while every batch is checked."""


class Recovered(NamedTuple):
    """An opened log and its offsets. What is above `recovery_point` must be synced before anybody is served."""

    opened: OpenLog
    log_start_offset: int
    log_end_offset: int
    recovery_point: int


def recover(
    store: Store,
    directory: str,
    config: LogConfig,
    *,
    log_start_offset: int,
    recovery_point: int,
    clean: bool,
    new: bool = False,
) -> Recovered:
    """Open the log in `directory`.

    `clean` says that the broker stopped by itself: then indexes are complete; `new` that the directory was made just
    now, and nothing need be looked for in it. Raises OSError, LogDamaged.
    """
    recovery = _Recovery(
        store, directory, config, log_start_offset=log_start_offset, recovery_point=recovery_point, clean=clean
    )
    return recovery.begin() if new else recovery.run()


class _Recovery:
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
        self.clean = clean
        self.segments: list[Segment] = []
        self.snapshots: list[int] = []
        self.changed = False
        self.reached = 0

    def begin(self) -> Recovered:
        """The first segment of a log that has never been."""
        self.epochs = LeaderEpochs()
        return self._start_empty(new=True)

    def run(self) -> Recovered:
        names = set(finish_swap(self.store, self.directory))
        self._load_segments(names)
        self.epochs = self._load_epochs(names)
        self.snapshots = sorted(
            offset for name in names if name.endswith(SNAPSHOT_SUFFIX) and (offset := offset_of(name)) is not None
        )
        if not self.segments:
            return self._start_empty()
        number = self._segment_of_recovery_point()
        position = self._position_of_recovery_point(number)
        self.producers = self._load_producers(number, position)
        end_offset = self._check_the_rest(number, position)
        if end_offset < self.log_start_offset:
            # Only what DeleteRecords had removed anyway was lost.
            for segment in self.segments:
                segment.remove()
            self.segments.clear()
            return self._start_empty()
        return self._finish(number, end_offset)

    # Files -----------------------------------------------------------------------------------------------------

    def _load_segments(self, names: set[str]) -> None:
        for name in sorted(names):
            base_offset = offset_of(name)
            if base_offset is None:
                continue
            if name.endswith(LOG_SUFFIX):
                self.segments.append(Segment.load(self.store.files, self.directory, base_offset))
            elif name.endswith(SUFFIXES) and f"{base_offset:020d}{LOG_SUFFIX}" not in names:
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
        if LEADER_EPOCHS not in names:
            return LeaderEpochs()
        try:
            return LeaderEpochs(parse_epochs(read_whole(self.disk, f"{self.directory}/{LEADER_EPOCHS}").decode()))
        except (CorruptCheckpoint, UnicodeDecodeError) as error:
            logger.error("log=%s the leader epochs cannot be read and begin anew: %s", self.directory, error)
            return LeaderEpochs()

    def _start_empty(self, *, new: bool = False) -> Recovered:
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
        for offset in self.snapshots:
            self.disk.remove(f"{self.directory}/{snapshot_name(offset)}")
        self.epochs.clear()
        self.segments, self.snapshots, self.producers = [segment], [], ProducerStates(end_offset=start)
        opened = self._open_log()
        opened.names_are_new()
        return Recovered(opened, start, start, start)

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

    def _position_of_recovery_point(self, number: int) -> int:
        """Where checking begins; index entries are made for what lies between the last one and there."""
        segment = self.segments[number]
        relative = self.recovery_point - segment.base_offset
        if not self.clean:
            segment.offsets.keep_trusted(key_end=max(relative, 0), value_end=segment.size)
            segment.times.keep_trusted(key_end=1 << 63, value_end=max(relative, 0))
            segment.keep_transactions(self.recovery_point)
        last = segment.offsets.load().last
        position, reached = (last[1], segment.base_offset + last[0] + 1) if last else (0, segment.base_offset)
        self.reached = segment.base_offset
        if relative <= 0:
            return 0
        last_time = segment.times.load().last
        segment.largest_timestamp = last_time[0] if last_time else -1
        segment.largest_timestamp_offset = segment.base_offset + (last_time[1] if last_time else 0)
        for at, header in segment.headers(position):
            if header.base_offset >= self.recovery_point or at + header.size > segment.size:
                break
            # The batch of the last entry itself has its entry already.
            interval = self.config.index_interval_bytes if last is None or at > last[1] else 1 << 62
            segment.note(at, header.size, header.last_offset, header.max_timestamp, interval)
            position, reached = at + header.size, header.last_offset + 1
            if reached >= self.recovery_point:
                break
        if reached < self.recovery_point and number + 1 == len(self.segments):
            raise segment.damaged(
                position, f"the log ends at offset {reached}, but it was safe up to {self.recovery_point}"
            )
        self.reached = reached
        return position

    def _load_producers(self, number: int, position: int) -> ProducerStates:
        """The producers at the recovery point: the newest usable snapshot, and the headers of what follows it."""
        reached = self.recovery_point
        first = max(self.segments[0].base_offset, self.log_start_offset)
        while self.snapshots:
            offset = self.snapshots[-1]
            path = f"{self.directory}/{snapshot_name(offset)}"
            if first <= offset <= reached:
                try:
                    states = ProducerStates(decode_snapshot(read_whole(self.disk, path)), offset)
                    break
                except CorruptSnapshot as error:
                    logger.warning("log=%s passing over %s: %s", self.directory, path, error)
            elif offset < first:
                states = ProducerStates(end_offset=first)
                break
            self.disk.remove(path)
            self.snapshots.pop()
        else:
            states = ProducerStates(end_offset=first)
        states.expire(self.store.clock.now_ms(), self.store.producer_expiration_ms)
        for number_now, segment in enumerate(self.segments[: number + 1]):
            end = position if number_now == number else segment.size
            following = self.segments[number_now + 1] if number_now < number else None
            seen = following is not None and following.base_offset <= states.end_offset
            if seen or states.end_offset >= reached:
                continue
            for at, header in segment.headers(segment.position_of(states.end_offset), end):
                self._replay(states, segment, at, header, None)
        return states

    def _replay(
        self, states: ProducerStates, segment: Segment, at: int, header: BatchHeader, batch: memoryview | None
    ) -> None:
        """Bring the producers forward over one batch; with its bytes if they are at hand."""
        done = replay_batch(states, header, lambda: batch if batch is not None else segment.read_batch(at, header.size))
        if done is not None and done.aborted and batch is not None:
            segment.add_transaction(
                AbortedTransaction(done.producer_id, done.first_offset, done.last_offset, done.last_stable_offset)
            )

    # From the recovery point on --------------------------------------------------------------------------------

    def _check_the_rest(self, number: int, position: int) -> int:
        """Check every batch from there on, cut off what is damaged; the log end offset."""
        end_offset = max(self.reached, self.recovery_point) if position else self.reached
        for following in range(number, len(self.segments)):
            segment = self.segments[following]
            if following > number:
                position = 0
                segment.offsets.keep(0)
                segment.times.keep(0)
                segment.keep_transactions(0)
                segment.largest_timestamp, segment.first_timestamp = -1, -1
                if segment.base_offset != end_offset:
                    # Segments meet where they roll: the end of the one before never reached the disk.
                    self._cut(following - 1, self.segments[following - 1].size, end_offset)
                    break
            segment.sound_from = position
            for at, header, batch in self._checked_batches(segment, position, end_offset):
                position = at + len(batch)
                end_offset = header.base_offset + header.last_offset_delta + 1
                self.changed = True
                interval = self.config.index_interval_bytes
                segment.note(at, len(batch), header.last_offset, header.max_timestamp, interval)
                self.epochs.assign(max(header.partition_leader_epoch, self.epochs.latest), header.base_offset)
                self._replay(self.producers, segment, at, header, batch)
            later = self.segments[following + 1] if following + 1 < len(self.segments) else None
            if position < segment.size and later is not None and later.base_offset == end_offset:
                # No offset is missing: this was cut off, or never used, before the next segment began.
                self._give_back(segment, position)
            elif position < segment.size:
                self._cut(following, position, end_offset)
                break
            if segment is not self.segments[-1]:
                segment.add_time_entry()
        return end_offset

    def _checked_batches(
        self, segment: Segment, position: int, end_offset: int
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """The whole, sound batches from `position` on, with offsets that rise from `end_offset`."""
        fd = segment.descriptor().fd
        while segment.size - position >= HEADER_SIZE:
            data = memoryview(read_exactly(self.disk, fd, min(SCAN_BYTES, segment.size - position), position))
            at = 0
            header = None
            if len(data) < HEADER_SIZE:
                return
            while len(data) - at >= HEADER_SIZE:
                header = _sound_header(data, at, end_offset)
                if header is None or header.size > segment.size - position - at:
                    return
                if header.size > len(data) - at:
                    break
                if not check_crc(data, at, header.size):
                    return
                yield position + at, header, data[at : at + header.size]
                end_offset = header.last_offset + 1
                at += header.size
            if at == 0 and header is not None:
                # One batch that is larger than what is read at once.
                batch = memoryview(read_exactly(self.disk, fd, header.size, position))
                if len(batch) < header.size or not check_crc(batch, 0, header.size):
                    return
                yield position, header, batch
                end_offset = header.last_offset + 1
                at = header.size
            position += at

    def _cut(self, number: int, position: int, end_offset: int) -> None:
        segment = self.segments[number]
        doomed = self.segments[number + 1 :]
        following_bytes = sum(later.size for later in doomed)
        torn_bytes = segment.size - position
        if following_bytes or self._has_data(segment, position):
            lost = self._offsets_behind(segment, position, end_offset, doomed)
            logger.error(
                "log=%s CUT at offset %d: %s is damaged or torn at byte %d; %d bytes of it and %d bytes in %d later "
                "segments are dropped%s. Nothing of this had been synced before the broker stopped.",
                self.directory,
                end_offset,
                segment.log.path,
                position,
                torn_bytes,
                following_bytes,
                len(doomed),
                f", with whole batches up to offset {lost - 1}" if lost > end_offset else " (no whole batch)",
            )
            if following_bytes or not _may_be_cut_short(segment, position):
                self.store.before_loss()
        else:
            logger.info("log=%s giving back %d bytes of unused room", self.directory, torn_bytes)
        # The last first, so that a crash in the middle leaves a log without holes.
        for later in reversed(doomed):
            later.remove()
        del self.segments[number + 1 :]
        self._give_back(segment, position)

    def _give_back(self, segment: Segment, position: int) -> None:
        self.disk.truncate(segment.descriptor().fd, position)
        segment.size = position
        segment.sound_from = min(segment.sound_from, position)
        self.changed = True

    def _has_data(self, segment: Segment, position: int) -> bool:
        fd = segment.descriptor().fd
        while position < segment.size:
            data = self.disk.read_at(fd, SCAN_BYTES, position)
            if data.strip(b"\0"):
                return True
            position += max(len(data), 1)
        return False

    def _offsets_behind(self, segment: Segment, position: int, end_offset: int, doomed: list[Segment]) -> int:
        """The offset up to which sound batches follow the damage, as far as they can be found."""
        found = end_offset
        try:
            found = max(found, position and self._sound_end(segment, position + segment.batch_size_at(position)))
        except LogDamaged:
            logger.debug("log=%s what follows byte %d cannot be told apart", self.directory, position)
        for later in doomed:
            found = max(found, self._sound_end(later, 0))
        return found

    def _sound_end(self, segment: Segment, position: int) -> int:
        end = 0
        for _, header, _ in self._checked_batches(segment, position, segment.base_offset):
            end = header.last_offset + 1
        return end

    # Afterwards ------------------------------------------------------------------------------------------------

    def _finish(self, number: int, end_offset: int) -> Recovered:
        log_start_offset = max(self.log_start_offset, self.segments[0].base_offset)
        for offset in [offset for offset in self.snapshots if offset > end_offset]:
            self.snapshots.remove(offset)
            self.disk.remove(f"{self.directory}/{snapshot_name(offset)}")
        self.producers.end_offset = end_offset
        active = self.segments[-1]
        active.load_first_timestamp()
        active.load_largest_timestamp()
        self.epochs.truncate_from(end_offset)
        opened = self._open_log()
        opened.epochs.truncate_before(log_start_offset)
        if self.changed:
            # So that the next start need not read again what this one has read.
            opened.take_snapshot(end_offset)
            opened.names_are_new()
            for segment in self.segments[number:]:
                segment.offsets.complete()
                segment.times.complete()
                opened.sync_with_next(segment)
        return Recovered(opened, log_start_offset, end_offset, min(self.recovery_point, end_offset))


def _may_be_cut_short(segment: Segment, position: int) -> bool:
    """Whether a kill in the middle of the last write may have left this: the kernel looks for signals between pages,
    so the file then ends with one, and the batch does not end in it."""
    if segment.size % PAGE_BYTES:
        return False
    try:
        return segment.size - position < HEADER_SIZE or position + segment.batch_size_at(position) > segment.size
    except LogDamaged:
        return False


def _sound_header(data: memoryview, at: int, end_offset: int) -> BatchHeader | None:
    try:
        header = parse_header(data, at)
    except CorruptRecord:
        return None
    return header if header.base_offset >= end_offset and header.last_offset_delta >= 0 else None


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
