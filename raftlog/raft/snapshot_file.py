"""One snapshot in one file: `[5, format, index, term]`, `[6, chunk]` for each chunk, `[7, number of
chunks]`, each in a frame.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.raft.core.errors import NewerVersion
from raftlog.raft.core.ids import NO_TERM, Term
from raftlog.raft.files import Files, join
from raftlog.raft.frames import Damage, encode_frame, read_frames

FORMAT = 1
BEGIN, CHUNK, END = 5, 6, 7


class Snapshot(NamedTuple):
    """The state after entry `index`, which was of `term`, in chunks."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: Term
    chunks: list[bytes]


def snapshot_path(directory: str, index: int) -> str:
    """Where the snapshot lies that reaches to `index`."""
    return join(directory, f"{index:020d}.snapshot")


def write_snapshot(files: Files, directory: str, snapshot: Snapshot) -> None:
    """Write to a temporary file, sync, rename, sync the directory. Raises OSError and leaves the old one in
    force.
    """
    path = snapshot_path(directory, snapshot.index)
    descriptor = files.open_append(path + ".tmp")
    try:
        files.write(descriptor, encode_frame([(BEGIN, FORMAT, snapshot.index, snapshot.term)]))
        for chunk in snapshot.chunks:
            files.write(descriptor, encode_frame([(CHUNK, chunk)]))
        files.write(descriptor, encode_frame([(END, len(snapshot.chunks))]))
        files.sync(descriptor)
    finally:
        files.close(descriptor)
    files.rename(path + ".tmp", path)
    files.sync_directory(directory)


def read_snapshot(data: bytes, path: str = "") -> Snapshot | Damage:
    """The snapshot in the bytes of the file at `path`, or what is wrong with it. Raises NewerVersion."""
    index, term = -1, NO_TERM
    chunks: list[bytes] = []
    position = 0
    for frame in read_frames(data):
        if isinstance(frame, Damage):
            return frame
        kind, *rest = frame.items[0]
        if kind == BEGIN:
            if rest[0] > FORMAT:
                raise NewerVersion(f"a snapshot of format {rest[0]}", path)
            index, term = rest[1], rest[2]
        elif kind == CHUNK and index >= 0:
            chunks.append(rest[0])
        elif kind == END and index >= 0 and rest[0] == len(chunks):
            return Snapshot(index, term, chunks)
        else:
            return Damage(frame.position, "a frame out of its place", None)
        position = frame.end
    return Damage(position, "no end of the snapshot", None)
