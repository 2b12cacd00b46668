"""One snapshot in one file: `[5, format, index, term]`, `[6, chunk]` for each chunk, `[7, number of
chunks]`, each in a frame.
"""

from __future__ import annotations

import itertools
from typing import NamedTuple

from raftlog.raft.core.errors import NewerVersion
from raftlog.raft.core.ids import NO_TERM, Term
from raftlog.raft.disk import Disk, replace_file
from raftlog.raft.frames import Damage, encode_frame, read_frames

FORMAT = 1
BEGIN, CHUNK, END = 5, 6, 7


class Snapshot(NamedTuple):
    """The state after entry `index`, which was of `term`, in chunks."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: Term
    chunks: list[bytes]


def snapshot_name(index: int) -> str:
    """The name of the snapshot that reaches to `index`."""
    return f"{index:020d}.snapshot"


def write_snapshot(disk: Disk, directory: str, snapshot: Snapshot) -> None:
    """Make a snapshot durable. Raises OSError and leaves the old one in force."""
    index, term, chunks = snapshot
    begin, end = (BEGIN, FORMAT, index, term), (END, len(chunks))
    items = itertools.chain([begin], ((CHUNK, chunk) for chunk in chunks), [end])
    replace_file(disk, f"{directory}/{snapshot_name(index)}", (encode_frame([item]) for item in items))


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
