"""What takes long before a log is truncated: its producers are made again as they were there, and the segment that is
truncated is synced.

What is read lies below the new end and does not change, so a thread may do this while the log is used: everything about
the log is looked up before, and files are opened anew.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import NamedTuple, TypeAlias

from raftlog.broker.core.log.producer_snapshot import CorruptSnapshot
from raftlog.broker.core.log.producers import ProducerStates
from raftlog.broker.store.files import OpenFiles
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.segment import Segment

OPEN_FILES = 4

logger = logging.getLogger("raftlog.recovery")


class _Piece(NamedTuple):
    """Batches of one segment, from one position up to another."""

    base_offset: int
    start: int
    end: int


Marks: TypeAlias = tuple[int, int, int]
"""Log start, recovery point, high watermark."""


class TruncationPlan:
    """`size` is how many bytes it is about: batches of which the headers are read, and what may have to be synced."""

    __slots__ = (
        "_first",
        "_generation",
        "_log_end_offset",
        "_opened",
        "_pieces",
        "_segments",
        "_snapshots",
        "_start_offset",
        "_truncated_path",
        "end_offset",
        "size",
    )

    def __init__(self, opened: OpenLog, marks: Marks, end_offset: int) -> None:
        """`end_offset` is where a batch of the log ends. Raises OSError, LogDamaged."""
        log_start_offset, recovery_point, high_watermark = marks
        self._opened = opened
        self._generation = opened.generation
        self._segments = list(opened.segments)
        self._log_end_offset = opened.end_offset
        truncated = opened.segments[opened.segments.number_of(end_offset)]
        self._truncated_path = truncated.log.path
        self.end_offset = end_offset
        first = max(opened.segments[0].base_offset, log_start_offset)
        usable = [offset for offset in opened.snapshots.offsets if first <= offset <= end_offset]
        # A snapshot does not tell of markers that it has seen and that are not committed yet. (A high watermark at the
        # very start of a log is one that is not known.)
        if first < high_watermark < self._segments[min(1, len(self._segments) - 1)].base_offset:
            usable = [offset for offset in usable if offset <= high_watermark]
        else:
            usable = [offset for offset in usable if offset <= high_watermark] or usable
        self._snapshots = usable
        self._first = first
        self._start_offset = usable[-1] if usable else first
        # A log without producers had none before, or they have expired.
        self._pieces = self._find_pieces() if opened.producers else []
        self.size = sum(piece.end - piece.start for piece in self._pieces)
        if recovery_point < end_offset:
            self.size += truncated.size

    @classmethod
    def of(cls, opened: OpenLog, marks: Marks, offset: int) -> TruncationPlan | None:
        """To drop every batch that does not end below `offset`; None if nothing would be left. Raises OSError,
        LogDamaged.
        """
        if offset <= opened.segments[0].base_offset:
            return None
        end_offset = opened.segments.end_below(offset)
        return None if end_offset < marks[0] else cls(opened, marks, end_offset)

    def _find_pieces(self) -> list[_Piece]:
        first, last = (self._opened.segments.number_of(offset) for offset in (self._start_offset, self.end_offset))
        pieces = []
        for number in range(first, last + 1):
            segment = self._segments[number]
            start = segment.position_of(self._start_offset) if number == first else 0
            end = segment.position_of(self.end_offset) if number == last else segment.size
            pieces.append(_Piece(segment.base_offset, start, max(start, end)))
        return pieces

    def run(self) -> ProducerStates:
        """Do it. Raises OSError, LogDamaged; they say nothing of the log if it does not hold any more."""
        self._sync()
        if not self._pieces:
            return ProducerStates(end_offset=self.end_offset)
        states = self._newest_snapshot()
        pieces = self._pieces if states.end_offset == self._start_offset else self._more_pieces(states.end_offset)
        files = OpenFiles(self._opened.store.disk, OPEN_FILES)
        for piece in pieces:
            segment = Segment.load(files, self._opened.directory, piece.base_offset)
            for at, header in segment.headers(piece.start, piece.end):
                if header.last_offset >= states.end_offset:
                    states.replay(header, partial(segment.read_sound_batch, at, header.size))
            segment.close()
        states.end_offset = self.end_offset
        return states

    def _newest_snapshot(self) -> ProducerStates:
        """The producers of the newest snapshot that can be read; a crash may have left one that cannot, and that
        nobody needed since.
        """
        for offset in reversed(self._snapshots):
            try:
                return self._opened.snapshots.read(offset)
            except CorruptSnapshot as error:
                path = self._opened.snapshots.path(offset)
                logger.warning("log=%s passing over %s: %s", self._opened.directory, path, error)
        return ProducerStates(end_offset=self._first)

    def _more_pieces(self, offset: int) -> list[_Piece]:
        """Those from an earlier offset on. No index is asked where it lies: the log may be writing it."""
        first = max(n for n, segment in enumerate(self._segments) if segment.base_offset <= offset)
        last = next(
            n for n, segment in enumerate(self._segments) if segment.base_offset == self._pieces[-1].base_offset
        )
        whole = [_Piece(segment.base_offset, 0, segment.size) for segment in self._segments[first:last]]
        return [*whole, self._pieces[-1]._replace(start=0)]

    def _sync(self) -> None:
        """So that little is left to sync when the log has been truncated."""
        disk = self._opened.store.disk
        fd = disk.open(self._truncated_path)
        try:
            disk.sync(fd)
        finally:
            disk.close(fd)

    @property
    def holds(self) -> bool:
        """Whether the log is still as it was: open, not truncated, nothing appended, no segment gone or cleaned."""
        opened = self._opened
        unchanged = opened.generation is self._generation and list(opened.segments) == self._segments
        return unchanged and opened.end_offset == self._log_end_offset
