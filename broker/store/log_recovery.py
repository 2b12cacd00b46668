"""Recovering a log from its recovery point on, after a crash (Kafka's recoverLog): every batch is read and checked.

The first one that is torn or damaged ends the log; what follows it is dropped as Kafka does, and how much that was is
logged. Whether that can have been acknowledged is told: after the death of the process alone nothing but a write that
it cut short can be missing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.leader_epochs import UNDEFINED, LeaderEpochs
from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.core.log.results import LogDamaged
from raftlog.broker.core.log.transactions import AbortedTransaction
from raftlog.broker.store.files import read_exactly, write_all
from raftlog.broker.store.segment import Segment
from raftlog.broker.store.store import Store
from raftlog.wire.batch import EPOCH_AT, HEADER_SIZE, BatchHeader, CorruptRecord, check_crc, parse_header
from raftlog.wire.ids import LeaderEpoch

logger = logging.getLogger("raftlog.recovery")

PAGE_BYTES: Final = 4096
"""The smallest that machines have."""

SCAN_BYTES: Final = 1 << 20
"""How much is read at once while every batch is checked."""
SEGMENT_OFFSETS_MAX: Final = 1 << 31
"""Index entries have 4 bytes for what an offset is above the segment's first one."""


class LogRecovery:
    """One run over the `segments` of a log in `directory`; brings `epochs` and `producers` forward.

    `changed` says whether there was anything behind the recovery point.
    """

    def __init__(
        self,
        store: Store,
        directory: str,
        config: LogConfig,
        *,
        segments: list[Segment],
        epochs: LeaderEpochs,
        producers: ProducerStates,
        gaps_are_losses: bool,
    ) -> None:
        self._store = store
        self._disk = store.disk
        self._directory = directory
        self._interval = config.index_interval_bytes
        self._segments = segments
        self._epochs = epochs
        self._producers = producers
        self._gaps_are_losses = gaps_are_losses
        self.changed = False
        self._epoch = UNDEFINED

    def run(self, number: int, position: int, end_offset: int) -> int:
        """Check every batch from a position in a segment on, where the log has reached `end_offset`, and drop what is
        damaged; the log end offset. Raises OSError.
        """
        self._epoch = self._epochs.epoch_of(end_offset - 1)
        for following in range(number, len(self._segments)):
            segment = self._segments[following]
            if following > number:
                position = 0
                segment.offsets.keep(0)
                segment.times.keep(0)
                segment.transactions.truncate_to(0)
                segment.largest_timestamp, segment.first_timestamp = -1, -1
                if not self._gaps_are_losses:
                    end_offset = max(end_offset, segment.base_offset)
                if segment.base_offset != end_offset:
                    # Segments meet where they roll: the end of the one before never reached the disk.
                    self._truncate(following - 1, self._segments[following - 1].size, end_offset)
                    break
            later = self._segments[following + 1] if following + 1 < len(self._segments) else None
            position, end_offset = self._check(segment, position, end_offset, later)
            if position < segment.size and later is not None and later.base_offset == end_offset:
                # No offset is missing: this was truncated, or never used, before the next segment began.
                self._give_back(segment, position)
            elif position < segment.size:
                self._truncate(following, position, end_offset)
                break
            if segment is not self._segments[-1]:
                segment.add_time_entry()
        return end_offset

    def _check(self, segment: Segment, position: int, end_offset: int, later: Segment | None) -> tuple[int, int]:
        """Take up the sound batches of one segment below `later`; where they end, position and offset."""
        limit = later.base_offset if later is not None else segment.base_offset + SEGMENT_OFFSETS_MAX
        segment.verified_from = position
        for at, header, batch in self._checked_batches(segment, position, end_offset):
            if header.next_offset > limit:
                break
            if header.base_offset > end_offset and _leaps(header, _behind(segment, at, header, later), end_offset):
                break
            position, end_offset = at + len(batch), header.next_offset
            self.changed = True
            segment.note(at, len(batch), header.last_offset, header.max_timestamp, self._interval)
            if header.partition_leader_epoch != self._epoch:
                self._epoch = self._epoch_of(segment, at, header, later)
            if self._epoch > self._epochs.latest:
                self._epochs.assign(self._epoch, header.base_offset)
            self._replay(segment, header, batch)
        return position, end_offset

    def _epoch_of(self, segment: Segment, at: int, header: BatchHeader, later: Segment | None) -> LeaderEpoch:
        """The leader epoch of the batch at a position. No checksum is over it, and a replica that took up one that has
        rotted would ask its leader for ever about an epoch that nobody knows. One that is not between those of its
        neighbours is written anew: it is the following one's then, or an earlier epoch seems to end too early by one
        batch, which costs no more than that this batch is sent again.
        """
        epoch, behind = header.partition_leader_epoch, _behind(segment, at, header, later)
        if behind is None:
            return epoch
        following = behind.partition_leader_epoch
        if self._epoch < 0 or following < self._epoch or self._epoch <= epoch <= following:
            return epoch
        logger.error(
            "log=%s the batch of offset %d at byte %d of %s has leader epoch %d, but lies between %d and %d: damage",
            self._directory,
            header.base_offset,
            at,
            segment.log.path,
            epoch,
            self._epoch,
            following,
        )
        write_all(self._disk, segment.descriptor().fd, following.to_bytes(4, "big", signed=True), at + EPOCH_AT)
        return following

    def _replay(self, segment: Segment, header: BatchHeader, batch: memoryview) -> None:
        completed = self._producers.replay(header, lambda: batch)
        if completed is not None and completed.aborted:
            segment.transactions.add(AbortedTransaction.of(completed))

    def _checked_batches(
        self, segment: Segment, position: int, end_offset: int
    ) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """The whole, sound batches from `position` on, with offsets that rise from `end_offset`."""
        fd = segment.descriptor().fd
        while segment.size - position >= HEADER_SIZE:
            data = memoryview(read_exactly(self._disk, fd, min(SCAN_BYTES, segment.size - position), position))
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
                batch = memoryview(read_exactly(self._disk, fd, header.size, position))
                if len(batch) < header.size or not check_crc(batch, 0, header.size):
                    return
                yield position, header, batch
                end_offset = header.last_offset + 1
                at = header.size
            position += at

    def _truncate(self, number: int, position: int, end_offset: int) -> None:
        segment = self._segments[number]
        doomed = self._segments[number + 1 :]
        following_bytes = sum(later.size for later in doomed)
        torn_bytes = segment.size - position
        if following_bytes or self._has_data(segment, position):
            lost = self._offsets_behind(segment, position, end_offset, doomed)
            logger.error(
                "log=%s CUT at offset %d: %s is damaged or torn at byte %d; %d bytes of it and %d bytes in %d later "
                "segments are dropped%s. Nothing of this had been synced before the broker stopped.",
                self._directory,
                end_offset,
                segment.log.path,
                position,
                torn_bytes,
                following_bytes,
                len(doomed),
                f", with whole batches up to offset {lost - 1}" if lost > end_offset else " (no whole batch)",
            )
            if following_bytes or not _may_be_cut_short(segment, position):
                self._store.before_loss()
        else:
            logger.info("log=%s giving back %d bytes of unused room", self._directory, torn_bytes)
        # The last first, so that a crash in the middle leaves a log without holes.
        for later in reversed(doomed):
            later.remove()
        del self._segments[number + 1 :]
        self._give_back(segment, position)

    def _give_back(self, segment: Segment, position: int) -> None:
        self._disk.truncate(segment.descriptor().fd, position)
        segment.size = position
        segment.verified_from = min(segment.verified_from, position)
        self.changed = True

    def _has_data(self, segment: Segment, position: int) -> bool:
        fd = segment.descriptor().fd
        while position < segment.size:
            data = self._disk.read_at(fd, SCAN_BYTES, position)
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
            logger.debug("log=%s what follows byte %d cannot be told apart", self._directory, position)
        for later in doomed:
            found = max(found, self._sound_end(later, 0))
        return found

    def _sound_end(self, segment: Segment, position: int) -> int:
        end = 0
        for _, header, _ in self._checked_batches(segment, position, segment.base_offset):
            end = header.last_offset + 1
        return end


def _may_be_cut_short(segment: Segment, position: int) -> bool:
    """Whether a kill in the middle of the last write may have left this: the kernel looks for signals between pages,
    so the file then ends with one, and the batch does not end in it."""
    if segment.size % PAGE_BYTES:
        return False
    try:
        return segment.size - position < HEADER_SIZE or position + segment.batch_size_at(position) > segment.size
    except LogDamaged:
        return False


def _leaps(header: BatchHeader, behind: BatchHeader | None, end_offset: int) -> bool:
    """Whether the offset of a batch is damaged: no checksum is over it. Compaction leaves out offsets, but what follows
    goes on `behind`.
    """
    return behind is not None and end_offset <= behind.base_offset < header.next_offset


def _behind(segment: Segment, at: int, header: BatchHeader, later: Segment | None) -> BatchHeader | None:
    """Of what follows the batch at a position, in its segment or in the next one; None if that is no batch."""
    position = at + header.size
    if position >= segment.size and later is not None:
        segment, position = later, 0
    try:
        return parse_header(segment.read(position, HEADER_SIZE))
    except CorruptRecord:
        return None


def _sound_header(data: memoryview, at: int, end_offset: int) -> BatchHeader | None:
    try:
        header = parse_header(data, at)
    except CorruptRecord:
        return None
    return header if header.base_offset >= end_offset and header.last_offset_delta >= 0 else None
