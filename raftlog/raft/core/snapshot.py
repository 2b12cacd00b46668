"""A snapshot on its way between nodes: what it holds besides the application's chunks; the pieces it travels in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import msgpack

from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.entries import MARK
from raftlog.raft.core.errors import NewerVersion, PeerViolation
from raftlog.raft.core.ids import Term
from raftlog.raft.core.log import Base
from raftlog.raft.core.messages import InstallSnapshot

FORMAT = 1
SNAPSHOT_BYTES_MAX = 1024 * 1024 * 1024
"""What a node takes into memory at the word of its leader. A million partitions take about 100 MB."""
_HEADER = bytes((MARK,))


@dataclass(frozen=True, slots=True)
class SnapshotContent:
    """The state up to `base.index`: members, ids of commands seen (opaque here), the application's chunks."""

    base: Base
    seen: bytes
    chunks: list[bytes]

    def header(self) -> bytes:
        """The chunk that goes before the application's."""
        base = self.base
        values = [FORMAT, base.configuration.encode(), base.configuration_index, base.internal, self.seen]
        return _HEADER + cast(bytes, msgpack.packb(values))

    def all_chunks(self) -> list[bytes]:
        """Everything, as it lies in a snapshot file."""
        return [self.header(), *self.chunks]

    def encode(self) -> bytes:
        """Everything as one piece, to be sent in pieces."""
        return cast(bytes, msgpack.packb(self.all_chunks()))

    @classmethod
    def of_chunks(cls, index: int, term: Term, chunks: list[bytes]) -> SnapshotContent:
        """What lies in a snapshot file; one of a broker that ran without peers has no header.

        Raises NewerVersion.
        """
        if not chunks or chunks[0][:1] != _HEADER:
            return cls(Base(index, term), b"", chunks)
        values = msgpack.unpackb(chunks[0][1:], use_list=False)
        if values[0] != FORMAT:
            raise NewerVersion(f"a snapshot with a header of format {values[0]}")
        _, configuration, configuration_index, internal, seen = values
        base = Base(index, term, Configuration.decode(configuration), configuration_index, internal)
        return cls(base, seen, chunks[1:])

    @classmethod
    def decode(cls, index: int, term: Term, data: bytes) -> SnapshotContent:
        """What `encode` made. Raises PeerViolation, NewerVersion."""
        try:
            chunks = msgpack.unpackb(data)
        except ValueError as error:
            raise PeerViolation("a snapshot that cannot be read") from error
        if type(chunks) is not list or not chunks or any(type(chunk) is not bytes for chunk in chunks):
            raise PeerViolation("a snapshot that holds something else than chunks")
        return cls.of_chunks(index, term, chunks)


class IncomingSnapshot:
    """A snapshot of which pieces arrive, in order; what is late or twice is passed over."""

    __slots__ = ("_identity", "data")

    def __init__(self, first: InstallSnapshot) -> None:
        if first.total > SNAPSHOT_BYTES_MAX:
            raise PeerViolation(f"a snapshot of {first.total} bytes, and at most {SNAPSHOT_BYTES_MAX} are taken")
        self._identity = (first.term, first.index, first.index_term, first.total)
        self.data = bytearray()

    def is_of(self, message: InstallSnapshot) -> bool:
        """Whether the piece belongs to this snapshot, from the same leader."""
        return self._identity == (message.term, message.index, message.index_term, message.total)

    def add(self, message: InstallSnapshot) -> bool:
        """Take a piece; whether the snapshot is complete with it."""
        if message.offset != len(self.data):
            return False
        self.data += message.data
        if len(self.data) > message.total:
            raise PeerViolation("a snapshot longer than was said")
        return len(self.data) == message.total
