"""The segments of one partition log in order, and where in them an offset lies (Kafka's LogSegments).

`read` is a hot path: no system call but one or two when the position is not remembered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, overload

from raftlog.broker.core.log.results import FileRange
from raftlog.broker.store.checksums import verified_bytes
from raftlog.broker.store.segment import Segment
from raftlog.wire.errors import InvariantViolation

RECENT_BATCHES: Final = 64
"""Positions of the latest batches that are remembered: a consumer that keeps up needs no search."""
# FileRange(...) without the function that NamedTuple puts around this: a tenth of a read.
_new: Final = tuple.__new__

OFFSET_MAX: Final = 2**63 - 1

READ_ENDS: Final = 32
"""Positions where the latest reads ended that are remembered: each is where its reader goes on."""


class LogSegments(Sequence[Segment]):
    """Segments in order of base offset; `active` is the last one, the only one that is appended to.

    Invariants: there is at least one segment; base offsets rise strictly; `_bases` are those of the segments; `recent`
    (base offset → position) points to batches of the active segment.
    """

    __slots__ = ("_bases", "_read_ends", "_segments", "active", "recent")

    def __init__(self, segments: list[Segment]) -> None:
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.recent: dict[int, int] = {}
        self._read_ends: dict[int, tuple[Segment, int]] = {}

    @overload
    def __getitem__(self, number: int) -> Segment: ...
    @overload
    def __getitem__(self, number: slice) -> list[Segment]: ...
    def __getitem__(self, number: int | slice) -> Segment | list[Segment]:
        return self._segments[number]

    def __len__(self) -> int:
        return len(self._segments)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(segment.size for segment in self._segments)

    # Finding -----------------------------------------------------------------------------------------

    def number_of(self, offset: int) -> int:
        """Number of the segment that holds `offset`: the last one that begins at or below it, else the first."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def end_of(self, number: int, log_end_offset: int) -> int:
        """The offset at which a segment ends, exclusive."""
        return self._bases[number + 1] if number + 1 < len(self._bases) else log_end_offset

    def starts_segment(self, offset: int) -> bool:
        """Whether a segment begins at `offset`."""
        return self._bases[self.number_of(offset)] == offset

    def find(self, offset: int) -> tuple[int, int]:
        """(segment number, position) of the first batch that ends at `offset` or later.

        At the very end: the active segment and its size. Raises OSError, LogDamaged.
        """
        number = self.number_of(offset)
        while True:
            segment = self._segments[number]
            position = self._position_in(segment, offset)
            if position < segment.size or number + 1 == len(self._segments):
                return number, position
            # Compaction has taken the rest of the segment.
            number += 1

    def _position_in(self, segment: Segment, offset: int) -> int:
        """As Segment.position_of, but remembered positions first."""
        if segment is self.active:
            position = self.recent.get(offset)
            if position is not None:
                return position
        ended = self._read_ends.get(offset)
        if ended is not None and ended[0] is segment:
            return ended[1]
        return segment.position_of(offset)

    def timestamp_at(self, offset: int) -> int:
        """The largest timestamp of the first batch with records that ends at `offset` or later; -1 without one.

        Raises OSError, LogDamaged.
        """
        number, position = self.find(offset)
        for segment in self._segments[number:]:
            for _, header in segment.headers(position):
                if header.records_count and not header.is_control:
                    return header.max_timestamp
            position = 0
        return -1

    def end_below(self, offset: int) -> int:
        """Where the log ends once all batches that do not end below `offset` are gone. Raises OSError, LogDamaged."""
        segment = self._segments[self.number_of(offset)]
        entry = segment.offsets.load().floor(offset - 1 - segment.base_offset)
        end = segment.base_offset
        for _, header in segment.headers(entry[1] if entry else 0):
            if header.last_offset >= offset:
                break
            end = header.last_offset + 1
        return end

    def read(
        self, offset: int, max_bytes: int, end_offset: int, log_end_offset: int, min_one: bool
    ) -> FileRange | None:
        """See PartitionLog.read; the offsets lie within the log. Raises OSError, LogDamaged."""
        segment = self.active
        position = self.recent.get(offset, -1)
        if position < 0:
            number, position = self.find(offset)
            segment = self._segments[number]
            end = self.end_of(number, log_end_offset)
        else:
            end = log_end_offset
        limit = segment.size if end_offset >= end else self._position_in(segment, end_offset)
        available = limit - position
        if available <= 0:
            return None
        if available > max_bytes:
            available = min(available, max(max_bytes, segment.batch_size_at(position)))
            if available > max_bytes and not min_one:
                return None
        elif end_offset <= end:
            self._remember_end(end_offset, segment, limit)
        if position < segment.verified_from:
            available = verified_bytes(segment, position, available, end)
        log = segment.log
        file = log.descriptor or log.open()
        log.used = True
        if file.failure is not None:
            raise file.failure
        return _new(FileRange, (file, position, available))

    def bound_of(self, offset: int, read: FileRange) -> int:
        """An offset that is not below what was read from `offset` on ends, by the offset index: not far above it.

        Raises OSError.
        """
        number = self.number_of(offset)
        while number + 1 < len(self._segments) and self._segments[number].log.descriptor is not read.file:
            number += 1
        segment = self._segments[number]
        entry = segment.offsets.first_reaching(read.position + read.length)
        if entry is not None:
            return segment.base_offset + entry[0] + 1
        return self._bases[number + 1] if number + 1 < len(self._bases) else OFFSET_MAX

    def _remember_end(self, offset: int, segment: Segment, position: int) -> None:
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

    # Changing ----------------------------------------------------------------------------------------

    def add_active(self, segment: Segment) -> None:
        """The log goes on in a new segment, which takes the place of an empty one with its base offset."""
        if self._bases and self._bases[-1] == segment.base_offset:
            self._segments.pop()
            self._bases.pop()
        self._segments.append(segment)
        self._bases.append(segment.base_offset)
        self.active = segment
        self.recent.clear()

    def truncate_to(self, offset: int) -> Segment:
        """Remove the segments behind the one that holds `offset`, files too, the last first, so that a crash leaves a
        log without holes; the one that is active now. Raises OSError.
        """
        self.forget_positions()
        number = self.number_of(offset)
        while len(self._segments) - 1 > number:
            self._pop().remove()
        self.active = self._segments[number]
        return self.active

    def remove_all(self) -> None:
        """Remove all segments and their files, the last first; one is to be added then. Raises OSError."""
        self.forget_positions()
        while self._segments:
            self._pop().remove()

    def _pop(self) -> Segment:
        self._bases.pop()
        return self._segments.pop()

    def take_oldest(self, count: int) -> list[Segment]:
        """The oldest segments, which are no longer part of the log."""
        taken = self._segments[:count]
        del self._segments[:count], self._bases[:count]
        self._read_ends.clear()
        return taken

    def replace(self, old: Sequence[Segment], new: Sequence[Segment]) -> None:
        """Put `new` in the place of `old`, which are neighbours below the active one."""
        first = self._segments.index(old[0])
        if list(old) != self._segments[first : first + len(old)] or self.active in old:
            raise self._violated("the segments to replace are not neighbours below the active one")
        self._read_ends.clear()
        self._segments[first : first + len(old)] = new
        self._bases[first : first + len(old)] = [segment.base_offset for segment in new]

    def close(self) -> None:
        """Let go of the descriptors."""
        for segment in self._segments:
            segment.close()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        if not self._segments or self.active is not self._segments[-1]:
            raise self._violated("the active segment is not the last")
        if self._bases != [segment.base_offset for segment in self._segments]:
            raise self._violated(f"base offsets {self._bases} are not those of the segments")
        if any(later <= earlier for earlier, later in pairwise(self._bases)):
            raise self._violated(f"base offsets do not rise: {self._bases}")
        if any(position >= self.active.size for position in self.recent.values()):
            raise self._violated("a remembered batch lies behind the end of the active segment")
        for segment in self._segments:
            segment.check_invariants()

    def _violated(self, what: str) -> InvariantViolation:
        return InvariantViolation(f"{self.active.log.path}: {what}")
