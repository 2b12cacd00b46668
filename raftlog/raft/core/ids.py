"""Numbers that must not be mixed up. Indexes of the log are plain ints: they are computed with at every step."""

from __future__ import annotations

from typing import NewType

NodeId = NewType("NodeId", int)
"""A node of the quorum."""
NO_NODE = NodeId(-1)
"""Nobody leads, or was voted for."""
Term = NewType("Term", int)
"""A term of Raft."""
NO_TERM = Term(0)
"""Before the first."""
