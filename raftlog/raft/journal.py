"""The journal: entries, votes and snapshots on the local disk, such that what was synced is never lost unnoticed.

On disk, in one directory: `<sequence>-<first index>.journal` segments of frames and one `<last index>.snapshot`. Each
call of `write` makes one frame and one fsync, so an intact frame can only follow frames that were synced. Hence, at
recovery, bad bytes with nothing intact behind them are a write that was cut short, and go; bad bytes with an intact
frame behind them are damage, and the journal refuses to open. Items in a frame (msgpack arrays, first the kind):

    [1, index, term, entry]   an entry            [2, term, voted_for]   a vote (-1: none yet in this term)
    [3, index, previous]      entries from index on are gone (a Raft follower found a conflict); the term before
    [4, format, first index, term of the entry before, term, voted_for]   the first frame of each segment, alone

Blocking; not safe for use from two threads at once.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import NoReturn

from raftlog.raft.core.entries import Entry
from raftlog.raft.core.ids import NodeId, Term
from raftlog.raft.disk import RESERVE_SUFFIX, Disk, append, read_file, replace_file, truncate_file
from raftlog.raft.frames import Damage, encode_frame
from raftlog.raft.journal_recovery import (
    ENTRY,
    FORMAT,
    SEGMENT,
    TRUNCATE,
    VOTE,
    JournalDamaged,
    Recovery,
    Segment,
    uncovered,
)
from raftlog.raft.snapshot_file import Snapshot, read_snapshot, snapshot_name, write_snapshot

DEFAULT_SEGMENT_BYTES = 8 * 1024 * 1024


class JournalLocked(Exception):
    """Another process has the journal's directory open."""

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} is in use by another process: two brokers must not share a directory")


class JournalOfQuorum(Exception):
    """A broker that was a member of a quorum was started without its peers."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"{directory} is the metadata of a member of a quorum: start the broker with --peers as before."
            " Alone it would decide for the others."
        )


class JournalFailed(Exception):
    """A write did not reach the disk. `on_disk_unknown`: whether a part of it may nevertheless be found at
    the next start.
    """

    def __init__(self, message: str, *, on_disk_unknown: bool) -> None:
        super().__init__(message)
        self.on_disk_unknown = on_disk_unknown


class Journal:
    """An open journal.

    Invariants: indexes in the segments have no gap; a segment is synced before the next one exists;
    segments are removed only after a snapshot that covers them is durable.
    """

    def __init__(self, directory: str, disk: Disk, segment_bytes: int = DEFAULT_SEGMENT_BYTES) -> None:
        """Open the journal, creating the directory when it is missing; see `recovered`.

        Raises JournalDamaged, JournalLocked, NewerVersion, OSError.
        """
        self.directory = directory
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._disk.make_directory(directory, durable=True)
        try:
            self._lock = self._disk.lock(f"{directory}/lock")
        except BlockingIOError as error:
            raise JournalLocked(directory) from error
        self._descriptor = -1
        self._failed: str | None = None
        self._closed = False
        try:
            recovery = Recovery(directory, self._disk)
            self.recovered = recovery.recover()
            self._segments, self._size = recovery.segments, recovery.size
            self._term = self.recovered.term
            self._voted_for = self.recovered.voted_for
            self._last_index = self.recovered.last_index
            self._last_term = self.recovered.last_term
            self._snapshot_index = self.recovered.snapshot.index if self.recovered.snapshot is not None else 0
            self._open_last_segment()
            if self.recovered.on_other_branch:
                self.replace_from(self._last_index + 1, self._last_term, ())
        except BaseException:
            self._disk.close(self._lock)
            raise

    # -- the last segment ----------------------------------------------------------------------------

    def _open_last_segment(self) -> None:
        if not self._segments:
            self._begin_segment()
            return
        path = self._path(self._segments[-1])
        with suppress(OSError):  # on a full disk the old file is as it was
            self._write_again(path)
        self._descriptor = self._disk.open(path, create=True)
        self._disk.sync(self._descriptor)

    def _write_again(self, path: str) -> None:
        """Make what was read from a segment safe before it is acted upon.

        A killed process may have left it in the page cache only; and after an fsync that failed the kernel shows it
        and takes it for clean, though it never reached the disk: another fsync would do nothing.
        """
        replace_file(self._disk, path, [read_file(self._disk, path)])

    # -- writing -----------------------------------------------------------------------------------

    @property
    def has_failed(self) -> bool:
        """Whether nothing can be written any more, until a restart has read what is on the disk."""
        return self._failed is not None

    @property
    def last_index(self) -> int:
        """The index of the last entry written, or 0."""
        return self._last_index

    @property
    def term(self) -> Term:
        """The term last voted in."""
        return self._term

    @property
    def voted_for(self) -> NodeId:
        """The node voted for in that term, or NO_NODE."""
        return self._voted_for

    def append(self, entries: Sequence[Entry]) -> None:
        """Make entries durable; they must follow the last one. Raises JournalFailed."""
        if entries:
            self.write([(ENTRY, entry.index, entry.term, entry.data) for entry in entries])
            self._last_index, self._last_term = entries[-1].index, entries[-1].term

    def vote(self, term: Term, voted_for: NodeId) -> None:
        """Make a term and a vote in it durable. Raises JournalFailed."""
        self.write([(VOTE, term, voted_for)])
        self._term, self._voted_for = term, voted_for

    def replace_from(self, index: int, previous_term: Term, entries: Sequence[Entry]) -> None:
        """Drop the entries from `index` on and append others in their place, in one frame. Raises
        JournalFailed.

        `previous_term`: the term of the entry before `index`.
        """
        self.write([(TRUNCATE, index, previous_term), *((ENTRY, *entry) for entry in entries)])
        self._last_index, self._last_term = (
            (entries[-1].index, entries[-1].term) if entries else (index - 1, previous_term)
        )

    def save(
        self, vote: tuple[Term, NodeId] | None, truncation: tuple[int, Term] | None, entries: Sequence[Entry]
    ) -> None:
        """Make (term, voted for), a truncation (index, term of the entry before it) and entries durable, in one frame
        and with one fsync. Raises JournalFailed.
        """
        items: list[Sequence[object]] = []
        if vote is not None:
            items.append((VOTE, *vote))
        if truncation is not None:
            items.append((TRUNCATE, *truncation))
        items.extend((ENTRY, entry.index, entry.term, entry.data) for entry in entries)
        self.write(items)
        if vote is not None:
            self._term, self._voted_for = vote
        if truncation is not None:
            self._last_index, self._last_term = truncation[0] - 1, truncation[1]
        if entries:
            self._last_index, self._last_term = entries[-1].index, entries[-1].term

    def write(self, items: Sequence[Sequence[object]]) -> None:
        """Make one frame durable. Raises JournalFailed."""
        self._refuse_when_failed()
        if self._size >= self._segment_bytes:
            self._begin_segment()
        frame = encode_frame(items)
        while True:
            try:
                append(self._disk, self._descriptor, frame)
                break
            except OSError as error:
                self._take_back(error)
        try:
            self._disk.sync(self._descriptor)
        except OSError as error:
            # After a failed fsync nobody can tell what is on the disk, and a second one may report success
            # for pages that the kernel has already dropped: only a restart, which reads the disk, can go
            # on.
            self._fail(error, on_disk_unknown=True)
        self._size += len(frame)

    def _take_back(self, error: OSError) -> None:
        """Cut off what a failed write (a full disk, most likely) left, so that later writes can succeed. Returns if
        there is room that was reserved for this: then it is to be tried again."""
        try:
            truncate_file(self._disk, self._path(self._segments[-1]), self._size)
        except OSError as second:
            self._fail(second, on_disk_unknown=True)
        if not self._take_from_reserve(error):
            raise JournalFailed(self._describe(error), on_disk_unknown=False) from error

    def _take_from_reserve(self, error: OSError) -> bool:
        """Whether the disk was full, and has a little room now."""
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return False
        try:
            kept = [name for name in self._disk.list_directory(self.directory) if name.endswith(RESERVE_SUFFIX)]
            if kept:
                self._disk.remove(f"{self.directory}/{kept[-1]}")
        except OSError:
            return False
        return bool(kept)

    def _fail(self, error: OSError, *, on_disk_unknown: bool) -> NoReturn:
        self._failed = self._describe(error)
        raise JournalFailed(self._failed, on_disk_unknown=on_disk_unknown) from error

    def _describe(self, error: OSError) -> str:
        return f"cluster metadata cannot be written to {self.directory}: {error.strerror or error}"

    def _refuse_when_failed(self) -> None:
        if self._closed:
            raise JournalFailed("the metadata journal is closed", on_disk_unknown=False)
        if self._failed is not None:
            raise JournalFailed(f"{self._failed} (restart the broker)", on_disk_unknown=False)

    def _begin_segment(self) -> None:
        sequence = self._segments[-1].sequence + 1 if self._segments else 1
        segment = Segment(sequence, self._last_index + 1)
        header = (SEGMENT, FORMAT, segment.first_index, self._last_term, self._term, self._voted_for)
        frame = encode_frame([header])
        path = self._path(segment)
        while True:
            descriptor = -1
            try:
                descriptor = self._disk.open(path, create=True)
                append(self._disk, descriptor, frame)
                self._disk.sync(descriptor)
                self._disk.sync_directory(self.directory)
                break
            except OSError as error:
                if descriptor >= 0:
                    self._disk.close(descriptor)
                self._remove_after(error, path)
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
        self._descriptor = descriptor
        self._size = len(frame)
        self._segments.append(segment)

    def _remove_after(self, error: OSError, path: str) -> None:
        """Take back a segment that could not be begun, so that it can be tried again: at once if this returns."""
        try:
            self._disk.remove(path)
        except OSError as second:
            self._fail(second, on_disk_unknown=False)
        if not self._take_from_reserve(error):
            raise JournalFailed(self._describe(error), on_disk_unknown=False) from error

    # -- snapshots ---------------------------------------------------------------------------------

    def load_snapshot(self) -> Snapshot | None:
        """The newest snapshot, read from the disk. Raises JournalDamaged, OSError."""
        names = [name for name in self._disk.list_directory(self.directory) if name.endswith(".snapshot")]
        if not names:
            return None
        path = f"{self.directory}/{names[-1]}"
        read = read_snapshot(read_file(self._disk, path), path)
        if isinstance(read, Damage):
            raise JournalDamaged(path, read.position, read.what)
        return read

    def save_snapshot(self, index: int, term: Term, chunks: Iterable[bytes], *, truncate_rest: bool = False) -> None:
        """Make a snapshot of the state after entry `index` durable, then drop what it covers; with `truncate_rest`
        also what follows it, which is of another branch. Raises JournalFailed.

        Nothing happens when a later one is there: it may have come from the leader while this one was being made.
        """
        self._refuse_when_failed()
        if index < self._snapshot_index:
            return
        try:
            write_snapshot(self._disk, self.directory, Snapshot(index, term, list(chunks)))
        except OSError as error:
            # The old snapshot and all segments are still there: nothing is lost and writing may go on.
            raise JournalFailed(self._describe(error), on_disk_unknown=False) from error
        self._snapshot_index = index
        if index <= self._last_index and (truncate_rest or (index == self._last_index and term != self._last_term)):
            # A crash before this is on the disk: recovery sees that the entry at `index` is not the snapshot's.
            self.replace_from(index + 1, term, ())
        if index > self._last_index:
            self._last_index, self._last_term = index, term
        if index >= self._last_index and self._segments[-1].first_index <= index:
            self._begin_segment()
        keep = uncovered(self._segments, index)
        covered = self._segments[: len(self._segments) - len(keep)]
        self._segments = keep
        try:
            self._remove_covered(covered, snapshot_name(index))
        except OSError as error:
            # The snapshot is in force, and what is left over goes with the next one or the next start.
            raise JournalFailed(self._describe(error), on_disk_unknown=False) from error

    def _remove_covered(self, segments: Iterable[Segment], newest_snapshot: str) -> None:
        for segment in segments:
            self._disk.remove(self._path(segment))
        for name in self._disk.list_directory(self.directory):
            if name.endswith(".snapshot") and name != newest_snapshot:
                self._disk.remove(f"{self.directory}/{name}")
        self._disk.sync_directory(self.directory)

    def close(self) -> None:
        """Let go of the files; everything written is already durable."""
        if not self._closed:
            self._closed = True
            self._disk.close(self._descriptor)
            self._disk.close(self._lock)

    def _path(self, segment: Segment) -> str:
        return f"{self.directory}/{segment.name}"
