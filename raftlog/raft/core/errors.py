"""What can go wrong inside the consensus core: a peer that breaks Raft, and a bug of ours.

Knows the two kinds. Refuses to decide what follows from them: the shell closes a connection for the one and stops the
node for the other.
"""

from __future__ import annotations


class PeerViolation(Exception):
    """A peer sent what no correct node sends; its connection is to be closed."""


class RaftViolation(Exception):
    """An invariant of Raft is broken in this node. It must stop before it answers anybody."""
