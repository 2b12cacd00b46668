"""What can go wrong inside the consensus core: a peer that breaks Raft, a bug of ours, and a log of the future."""

from __future__ import annotations


class PeerViolation(Exception):
    """A peer sent what no correct node sends; its connection is to be closed."""


class RaftViolation(Exception):
    """An invariant of Raft is broken in this node. It must stop before it answers anybody."""


class NewerVersion(RaftViolation):
    """The log or a file holds what this version does not know, intact: a newer version of this software wrote it. The
    text says what; `path`: the file, if it is known here.
    """

    def __init__(self, what: str, path: str = "") -> None:
        super().__init__(what)
        self.path = path
