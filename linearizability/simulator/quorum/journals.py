"""What the journals of all nodes hold, as bytes on their disks say it: the ground that invariants stand on.

A mirror follows every frame that a node writes and every sync, and is read anew from the disk when a process begins.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.disk import read_file
from raftlog.raft.frames import Frame, read_frames
from raftlog.raft.journal_recovery import ENTRY, SEGMENT, TRUNCATE, VOTE
from raftlog.raft.snapshot_file import Snapshot, read_snapshot


class Held(NamedTuple):
    """An entry in a journal."""

    term: int
    data: bytes


class Mirror:
    """One node's journal: `entries` by index, behind a snapshot that ends at `base`."""

    __slots__ = ("base", "base_term", "entries", "last", "term", "voted_for")

    def __init__(self) -> None:
        self.base = 0
        self.base_term = 0
        self.entries: dict[int, Held] = {}
        self.last = 0
        self.term = 0
        self.voted_for = NO_NODE

    def term_at(self, index: int) -> int | None:
        """The term of the entry at `index`; None when it is not there (or only in the snapshot)."""
        if index == self.base:
            return self.base_term
        held = self.entries.get(index)
        return None if held is None else held.term

    def has(self, index: int, term: int) -> bool:
        """Whether this entry is there, itself or in the snapshot."""
        return index <= self.base or self.term_at(index) == term

    def apply(self, items: Sequence[Any]) -> None:
        """Take one frame."""
        for item in items:
            kind = item[0]
            if kind == ENTRY:
                self.entries[item[1]] = Held(item[2], item[3])
                self.last = item[1]
            elif kind == VOTE:
                self.term, self.voted_for = item[1], item[2]
            elif kind == TRUNCATE:
                self._cut(item[1])
            elif kind == SEGMENT:
                self._cut(item[2])
                self.term, self.voted_for = item[4], item[5]

    def _cut(self, index: int) -> None:
        for gone in range(index, self.last + 1):
            self.entries.pop(gone, None)
        self.last = min(self.last, max(index - 1, self.base))

    def snapshot(self, index: int, term: int) -> None:
        """A snapshot is in force."""
        if index > self.base:
            for covered in range(self.base, index + 1):
                self.entries.pop(covered, None)
            self.base, self.base_term = index, term
            self.last = max(self.last, index)


def read_mirror(disk: FaultyDisk, directory: str, *, durable: bool) -> Mirror:
    """What is in the journal, on the platter alone or also in the cache. Damage ends it early."""
    mirror = Mirror()
    prefix = directory + "/"
    files = {path: file for path, file in disk.names.items() if path.startswith(prefix)}
    for path in sorted(path for path in files if path.endswith(".snapshot")):
        read = read_snapshot(bytes(files[path].durable if durable else files[path].content))
        if isinstance(read, Snapshot):
            mirror.snapshot(read.index, read.term)
    for path in sorted(path for path in files if path.endswith(".journal")):
        for frame in read_frames(bytes(files[path].durable if durable else files[path].content)):
            if not isinstance(frame, Frame):
                break
            mirror.apply([item for item in frame.items if item[0] != ENTRY or item[1] > mirror.base])
    return mirror


def bytes_that_may_rot(disk: FaultyDisk, path: str) -> int:
    """How many bytes of a file may rot without leaving what nobody can tell from a write that was cut short: all of
    them, but in the last segment only those before the last frame.
    """
    data = bytes(disk.names[path].durable)
    segments = [name for name in disk.names if name.endswith(".journal")]
    if path != max(segments, default=""):
        return len(data)
    starts = [frame.position for frame in read_frames(data) if isinstance(frame, Frame)]
    return starts[-1] if starts else 0


class WatchedDisk:
    """A disk as the journal sees it (raftlog/raft/disk.py), with a mirror of what was synced.

    `on_frame(items)` is called with each write, `on_synced(items)` when it is safe, `on_snapshot(index, term)` with
    each snapshot that comes into force.
    """

    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk
        self.open, self.close, self.lock, self.remove = disk.open, disk.close, disk.lock, disk.remove
        self.read_at, self.size, self.truncate = disk.read_at, disk.size, disk.truncate
        self.list_directory, self.make_directory = disk.list_directory, disk.make_directory
        self.sync_directory = disk.sync_directory
        self.mirror = Mirror()
        self.on_frame: Callable[[Sequence[Any]], None] = _ignore
        self.on_synced: Callable[[Sequence[Any]], None] = _ignore
        self.on_snapshot: Callable[[int, int], None] = _ignore
        self._unsynced: dict[int, list[Sequence[Any]]] = {}

    def begin(self, directory: str) -> None:
        """A process starts: what the disk shows it is what it will make safe before it acts."""
        self._unsynced.clear()
        self.mirror = read_mirror(self._disk, directory, durable=False)

    def write_at(self, descriptor: int, data: bytes | memoryview, position: int, /) -> int:
        """See Disk. A frame is written at once."""
        written = self._disk.write_at(descriptor, data, position)
        if self._disk.path_of(descriptor).endswith(".journal"):
            for frame in read_frames(bytes(data)):
                assert isinstance(frame, Frame)
                self._unsynced.setdefault(descriptor, []).append(frame.items)
                self.on_frame(frame.items)
        return written

    def sync(self, descriptor: int, /) -> None:
        """See Disk."""
        self._disk.sync(descriptor)
        for items in self._unsynced.pop(descriptor, ()):
            self.mirror.apply(items)
            self.on_synced(items)

    def rename(self, old: str, new: str) -> None:
        """See Disk."""
        self._disk.rename(old, new)
        if new.endswith(".snapshot"):
            read = read_snapshot(read_file(self._disk, new))
            assert isinstance(read, Snapshot)
            self.mirror.snapshot(read.index, read.term)
            self.on_snapshot(read.index, read.term)


def _ignore(*_: object) -> None:
    pass
