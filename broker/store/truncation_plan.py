"""What takes long before the end of a log is cut off: its producers are made again as they were there, and the segment
that is cut is synced.

What is read lies below the cut and does not change, so a thread may do this while the log is used: everything about the
log is looked up before, and files are opened anew.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from raftlog.broker.core.log.producers import CompletedTransaction, ProducerStates
from raftlog.broker.core.log.snapshot import CorruptSnapshot, decode_snapshot
from raftlog.broker.store.files import OpenFiles, read_whole
from raftlog.broker.store.names import snapshot_name
from raftlog.broker.store.segment import Segment
from raftlog.wire.batch import BatchHeader
from raftlog.wire.control import decode_control_batch

if TYPE_CHECKING:
    from raftlog.broker.ports import Buffer
    from raftlog.broker.store.open_log import OpenLog

OPEN_FILES = 4


def replay_batch(
    states: ProducerStates, header: BatchHeader, read_batch: Callable[[], Buffer]
) -> CompletedTransaction | None:
    """Bring the producers forward over a batch that is in the log; the transaction that it ends, if it does."""
    states.end_offset = header.base_offset + header.last_offset_delta + 1
    if header.producer_id < 0:
        return None
    if not header.is_control:
        states.record(header, header.base_offset)
        return None
    marker = decode_control_batch(read_batch())
    return None if marker is None else states.record_marker(header, marker, header.base_offset)


class _Piece(NamedTuple):
    """Batches of one segment, from one position up to another."""

    base_offset: int
    start: int
    end: int


class TruncationPlan:
    """`size` is how many bytes it is about: batches of which the headers are read, and what may have to be synced."""

    __slots__ = (
        "_cut_path",
        "_generation",
        "_log_end_offset",
        "_opened",
        "_pieces",
        "_segments",
        "_snapshot",
        "_start_offset",
        "end_offset",
        "size",
    )

    def __init__(self, opened: OpenLog, log_start_offset: int, recovery_point: int, end_offset: int) -> None:
        """`end_offset` is where a batch of the log ends. Raises OSError, LogDamaged."""
        self._opened = opened
        self._generation = opened.generation
        self._segments = list(opened.segments)
        self._log_end_offset = opened.producers.end_offset
        cut = opened.segments[opened.number_of(end_offset)]
        self._cut_path = cut.log.path
        self.end_offset = end_offset
        first = max(opened.segments[0].base_offset, log_start_offset)
        usable = [offset for offset in opened.snapshots if first <= offset <= end_offset]
        self._snapshot = usable[-1] if usable else None
        self._start_offset = usable[-1] if usable else first
        # A log without producers had none before, or they have expired.
        self._pieces = self._find_pieces() if opened.producers.entries else []
        self.size = sum(piece.end - piece.start for piece in self._pieces)
        if recovery_point < end_offset:
            self.size += cut.size

    def _find_pieces(self) -> list[_Piece]:
        opened = self._opened
        first, last = opened.number_of(self._start_offset), opened.number_of(self.end_offset)
        pieces = []
        for number in range(first, last + 1):
            segment = opened.segments[number]
            start = segment.position_of(self._start_offset) if number == first else 0
            end = segment.position_of(self.end_offset) if number == last else segment.size
            pieces.append(_Piece(segment.base_offset, start, max(start, end)))
        return pieces

    def run(self) -> ProducerStates:
        """Do it. Raises OSError, LogDamaged; they say nothing of the log if it does not hold any more."""
        self._sync()
        states = ProducerStates(end_offset=self.end_offset)
        if not self._pieces:
            return states
        disk, directory = self._opened.store.disk, self._opened.directory
        if self._snapshot is not None:
            try:
                data = read_whole(disk, f"{directory}/{snapshot_name(self._snapshot)}")
                states = ProducerStates(decode_snapshot(data), self._snapshot)
            except CorruptSnapshot as error:
                raise OSError(f"{directory}/{snapshot_name(self._snapshot)}: {error}") from error
        files = OpenFiles(disk, OPEN_FILES)
        for piece in self._pieces:
            segment = Segment.load(files, directory, piece.base_offset)
            for at, header in segment.headers(piece.start, piece.end):
                replay_batch(states, header, partial(segment.read_batch, at, header.size))
            segment.close()
        states.end_offset = self.end_offset
        return states

    def _sync(self) -> None:
        """So that little is left to sync when the log has been cut."""
        disk = self._opened.store.disk
        fd = disk.open(self._cut_path)
        try:
            disk.sync(fd)
        finally:
            disk.close(fd)

    @property
    def holds(self) -> bool:
        """Whether the log is still as it was: open, not cut, nothing appended, no segment gone or cleaned."""
        opened = self._opened
        unchanged = opened.generation == self._generation and opened.segments == self._segments
        return unchanged and opened.producers.end_offset == self._log_end_offset
