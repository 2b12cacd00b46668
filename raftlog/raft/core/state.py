"""The words of a node's state: its role, its timing, what it must not forget, and what it wants written."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from raftlog.raft.core.entries import Entry
from raftlog.raft.core.ids import NO_TERM, NodeId, Term
from raftlog.raft.core.messages import Message
from raftlog.raft.core.snapshot import SnapshotContent

FOREVER = float("inf")


class Role(Enum):
    """What a node does in its term."""

    FOLLOWER = "follower"
    PRE_CANDIDATE = "pre-candidate"
    CANDIDATE = "candidate"
    LEADER = "leader"


@dataclass(frozen=True, slots=True)
class Timing:
    """In seconds. A follower stands for election after `election_min` to `election_max` without its leader, and after
    `fast_election_min` to `fast_election_max` when the connection says that the leader's process is gone. The former
    must be longer than a leader may be busy with something else; only a leader that is stopped or cut off is noticed by
    it.
    """

    heartbeat: float = 0.1
    election_min: float = 1.3
    election_max: float = 1.8
    fast_election_min: float = 0.005
    fast_election_max: float = 0.05


class HardState(NamedTuple):
    """What a node must not forget besides its entries."""

    term: Term
    voted_for: NodeId


@dataclass(slots=True)
class Writes:
    """What is to be written, in this order and in one go, before `messages_after_sync` may be sent."""

    snapshot: SnapshotContent | None = None
    """Replaces the log up to its index; `truncate_rest`: also what follows it."""
    truncate_rest: bool = False
    hard_state: HardState | None = None
    truncate_from: int = 0
    previous_term: Term = NO_TERM
    entries: list[Entry] = field(default_factory=list)
    messages_after_sync: list[tuple[NodeId, Message]] = field(default_factory=list)
    term: Term = NO_TERM

    @property
    def must_sync(self) -> bool:
        """Whether there is anything for the disk."""
        return bool(self.snapshot or self.hard_state or self.truncate_from or self.entries)
