"""What a journal holds when it is opened: its segments and its snapshot, read, checked and put together.

See `journal` for what lies on the disk, and why bad bytes at the end are a write that was cut short.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from raftlog.raft.core.entries import Entry
from raftlog.raft.core.errors import NewerVersion
from raftlog.raft.core.ids import NO_NODE, NO_TERM, NodeId, Term
from raftlog.raft.disk import TEMPORARY_SUFFIX, Disk, read_file, truncate_file
from raftlog.raft.frames import Damage, Frame, read_frames
from raftlog.raft.snapshot_file import Snapshot, read_snapshot

FORMAT = 1
ENTRY, VOTE, TRUNCATE, SEGMENT = 1, 2, 3, 4
"""The kinds of items."""
_SUFFIX = ".journal"


class Segment(NamedTuple):
    """A file of the journal. Indexes may go back from one to the next (see CUT), sequence numbers never do."""

    sequence: int
    first_index: int

    @property
    def name(self) -> str:
        """The file's name."""
        return f"{self.sequence:010d}-{self.first_index:020d}{_SUFFIX}"

    @classmethod
    def of_name(cls, name: str) -> Segment:
        """The segment that has this file name."""
        sequence, _, first_index = name[: -len(_SUFFIX)].partition("-")
        return cls(int(sequence), int(first_index))


class JournalDamaged(Exception):
    """What the disk holds is not what was written. Names the file, the byte and what an operator can do."""

    def __init__(self, path: str, position: int, what: str) -> None:
        super().__init__(
            f"{path}: {what} at byte {position}, and this is not merely a write that was cut short."
            " The broker does not start, because cluster metadata that was acknowledged may be missing."
            " What to do: stop it, copy the directory away, and restore the file from a backup;"
            " in a quorum of several brokers, empty the directory of this one, so that it copies the metadata"
            " from the others."
        )
        self.path = path
        self.position = position


@dataclass(slots=True)
class Recovered:
    """What a journal held when it was opened. `entries` follow `snapshot`, without a gap."""

    term: Term = NO_TERM
    voted_for: NodeId = NO_NODE
    snapshot: Snapshot | None = None
    entries: list[Entry] = field(default_factory=list)
    truncated_bytes: int = 0
    on_other_branch: bool = False
    """Whether what follows the snapshot on the disk follows another entry than the snapshot's last one."""

    @property
    def last_index(self) -> int:
        """The index of the last entry, or of the snapshot, or 0."""
        if self.entries:
            return self.entries[-1].index
        return self.snapshot.index if self.snapshot else 0

    @property
    def last_term(self) -> Term:
        """The term of the entry at `last_index`, or 0."""
        if self.entries:
            return self.entries[-1].term
        return self.snapshot.term if self.snapshot else NO_TERM


class Recovery:
    """Reads one journal. `recovered` grows with each frame; `size`: of the last of `segments`, in bytes."""

    def __init__(self, directory: str, disk: Disk) -> None:
        self.directory = directory
        self.disk = disk
        self.segments: list[Segment] = []
        self.size = 0

    def recover(self) -> Recovered:
        """All of it. Bytes behind the last intact frame are cut off. Raises JournalDamaged, NewerVersion, OSError."""
        names = self.disk.list_directory(self.directory)
        for name in names:
            if name.endswith(TEMPORARY_SUFFIX):
                self.disk.remove(f"{self.directory}/{name}")
        recovered = Recovered()
        snapshots = [name for name in names if name.endswith(".snapshot")]
        if snapshots:
            # An older snapshot beside it is a removal that a crash undid.
            path = f"{self.directory}/{snapshots[-1]}"
            read = read_snapshot(read_file(self.disk, path), path)
            if isinstance(read, Damage):
                raise JournalDamaged(path, read.position, read.what)
            recovered.snapshot = read
            recovered.term = read.term
        base = recovered.snapshot.index if recovered.snapshot else 0
        found = sorted(Segment.of_name(name) for name in names if name.endswith(_SUFFIX))
        if found:
            self._drop_unborn_segment(found, recovered)
        self.segments = uncovered(found, base)
        for covered in found[: len(found) - len(self.segments)]:
            self.disk.remove(self._path(covered))  # its removal was under way when the process ended
        self._refuse_gaps(base)
        for segment in self.segments:
            self._recover_segment(segment, recovered, base)
        return recovered

    def _refuse_gaps(self, base: int) -> None:
        for segment, expected in zip(self.segments, itertools.count(self.segments[0].sequence if self.segments else 0)):
            if segment.sequence != expected:
                raise JournalDamaged(self._path(segment), 0, f"the segment before this one ({expected}) is missing")
        if self.segments and self.segments[0].first_index > base + 1:
            missing = f"entries {base + 1} to {self.segments[0].first_index - 1} are missing before the one"
            raise JournalDamaged(self._path(self.segments[0]), 0, missing)

    def _recover_segment(self, segment: Segment, recovered: Recovered, base: int) -> None:
        data = read_file(self.disk, path := self._path(segment))
        is_last = segment == self.segments[-1]
        intact_end = 0
        for found in read_frames(data):
            if isinstance(found, Damage):
                if not is_last or found.next_intact is not None:
                    raise JournalDamaged(path, found.position, found.what)
                break
            self._recover_frame(path, found, recovered, base)
            intact_end = found.end
        if is_last and intact_end < len(data):
            recovered.truncated_bytes = len(data) - intact_end
            truncate_file(self.disk, path, intact_end)
        self.size = intact_end

    def _drop_unborn_segment(self, found: list[Segment], recovered: Recovered) -> None:
        """Forget the last segment when a crash came before its first frame was on the disk: it was never used.

        Older segments go only after that, so one that stands alone after a snapshot has lost what it held.
        """
        path = self._path(found[-1])
        data = read_file(self.disk, path)
        first = next(read_frames(data), None)
        if isinstance(first, Frame) or (first is not None and first.next_intact is not None):
            return
        if len(found) == 1 and recovered.snapshot is not None:
            raise JournalDamaged(path, 0, "no segment begins")
        recovered.truncated_bytes = len(data)
        self.disk.remove(path)
        self.disk.sync_directory(self.directory)
        found.pop()

    def _recover_frame(self, path: str, frame: Frame, recovered: Recovered, base: int) -> None:
        for item in frame.items:
            kind = item[0]
            if kind == ENTRY:
                self._recover_entry(path, frame, Entry(item[1], item[2], item[3]), recovered, base)
            elif kind == VOTE:
                recovered.term, recovered.voted_for = item[1], item[2]
            elif kind == TRUNCATE:
                self._recover_truncation(item[1], item[2], recovered, base)
                recovered.entries = [entry for entry in recovered.entries if entry.index < item[1]]
            elif kind == SEGMENT:
                if item[1] > FORMAT:
                    raise NewerVersion(f"a journal of format {item[1]}", path)
                recovered.term, recovered.voted_for = item[4], item[5]
                if recovered.snapshot is not None and item[2] == base + 1:
                    recovered.on_other_branch = item[3] != recovered.snapshot.term
            else:
                # Its checksum is right: it was written so.
                raise NewerVersion(f"an item of kind {kind} in the journal", path)

    def _recover_truncation(self, index: int, previous_term: Term, recovered: Recovered, base: int) -> None:
        if index <= base:
            recovered.on_other_branch = False  # until the entry at `base` comes again and tells
        elif index == base + 1 and recovered.snapshot is not None:
            recovered.on_other_branch = previous_term != recovered.snapshot.term

    def _recover_entry(self, path: str, frame: Frame, entry: Entry, recovered: Recovered, base: int) -> None:
        if recovered.snapshot is not None and entry.index == base:
            recovered.on_other_branch = entry.term != recovered.snapshot.term
        if entry.index <= base or recovered.on_other_branch:
            return
        if entry.index != recovered.last_index + 1:
            what = f"entry {entry.index} where entry {recovered.last_index + 1} is due"
            raise JournalDamaged(path, frame.position, what)
        recovered.entries.append(entry)

    def _path(self, segment: Segment) -> str:
        return f"{self.directory}/{segment.name}"


def uncovered(segments: Sequence[Segment], snapshot_index: int) -> list[Segment]:
    """The segments that a snapshot does not cover: the last one that begins within it, and those after that.

    An entry in an earlier segment is either in the snapshot or was truncated before that segment began.
    """
    starts = [place for place, segment in enumerate(segments) if segment.first_index <= snapshot_index + 1]
    return list(segments[starts[-1] :] if starts else segments)
