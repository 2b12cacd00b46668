"""What must hold in every Raft quorum at every step (Ongaro & Ousterhout, figure 3), checked as it happens.

Each check is made where its subject changes and costs no more than the change: election safety and leader completeness
when somebody leads, log matching when an entry is written, commitment when a commit index moves, state-machine safety
when an entry is replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol
from zlib import crc32

from raftlog.linearizability.simulator.quorum.journals import Mirror
from raftlog.linearizability.simulator.violation import Violation
from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.core.messages import Message, RequestVote, RequestVoteReply
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.state import Role
from raftlog.raft.journal_recovery import ENTRY, SEGMENT, TRUNCATE, VOTE


class Watched(Protocol):
    """A node as the invariants see it."""

    node: int

    @property
    def raft(self) -> Raft | None:
        """None while it is down."""

    @property
    def mirror(self) -> Mirror:
        """What is safe on its disk."""


class _Seen:
    """What was seen of a node in its present life."""

    __slots__ = ("committed", "leads", "log_ends", "raft", "term")

    def __init__(self, raft: Raft) -> None:
        self.raft = raft
        self.term = 0
        self.committed = raft.committed
        self.leads = False
        self.log_ends = (0, 0, 0)


class RaftInvariants:
    """All nodes of one quorum.

    `leaders`: who led each term; `committed`: the term of each committed entry; `replayed`: what was replayed at each
    index; `lost_disks`: nodes whose disk was damaged or wiped, and what was committed until then: that much it may
    have lost.
    """

    def __init__(self, nodes: Sequence[Watched], failed: Callable[[Violation], None]) -> None:
        self.nodes = nodes
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, int] = {}
        self.last_committed = 0
        self.replayed: dict[int, int] = {}
        self.lost_disks: dict[int, int] = {}
        self.elections = 0
        self._failed = failed
        self._seen: dict[int, _Seen] = {}
        self._entries: dict[tuple[int, int], tuple[int, int | None]] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._written: dict[int, Mirror] = {}
        self._configuration = Configuration()
        self._commit_term = 0

    def _fail(self, invariant: str, text: str) -> None:
        self._failed(Violation(invariant, text))

    # Steps ---------------------------------------------------------------------------------------------------

    def check(self, watched: Watched) -> None:
        """After anything happened in a node."""
        raft = watched.raft
        if raft is None:
            return
        seen = self._seen.get(watched.node)
        if seen is None or seen.raft is not raft:
            seen = self._seen[watched.node] = _Seen(raft)
        if raft.term < seen.term:
            self._fail("term", f"node {watched.node} went back from term {seen.term} to {raft.term}")
        leads = raft.role is Role.LEADER
        if leads and (not seen.leads or raft.term != seen.term):
            self._leads(watched.node, raft)
        seen.term, seen.leads = raft.term, leads
        if raft.committed != seen.committed:
            self._committed(watched.node, raft, seen)
        log_ends = (raft.log.base.index, raft.log.last_index, raft.log.last_term)
        try:
            raft.check_invariants()
            if log_ends != seen.log_ends:
                raft.log.check_invariants()
        except RaftViolation as error:
            self._fail("core", f"node {watched.node}: {error}")
        seen.log_ends = log_ends

    def _leads(self, node: int, raft: Raft) -> None:
        other = self.leaders.setdefault(raft.term, node)
        if other != node:
            self._fail("election safety", f"nodes {other} and {node} both lead term {raft.term}")
        self.elections += 1
        log, last = raft.log, self.last_committed
        # Late votes may still elect somebody in a term that is over.
        later = raft.term > self._commit_term
        if later and last > log.base.index and log.term_at(last) != self.committed[last]:
            self._fail(
                "leader completeness",
                f"node {node} leads term {raft.term} without the committed entry {last} of term {self.committed[last]}",
            )

    def _committed(self, node: int, raft: Raft, seen: _Seen) -> None:
        first, last = seen.committed + 1, raft.committed
        if last < seen.committed:
            self._fail("monotonic commit", f"node {node} went back from {seen.committed} to {last}")
        seen.committed = last
        for index in range(max(first, raft.log.base.index), last + 1):
            term = raft.log.term_at(index)
            if term is None:
                self._fail("log", f"node {node} committed entry {index}, which it does not have")
                return
            known = self.committed.get(index)
            if known is None:
                self.committed[index] = term
            elif known != term:
                self._fail("commit", f"entry {index} is committed with terms {known} and {term}")
        if last > self.last_committed:
            # §5.4.2: copies of an entry of an earlier term prove nothing, it may still be overwritten.
            if raft.role is Role.LEADER and raft.log.term_at(last) != raft.term:
                self._fail("commit", f"node {node} leads term {raft.term} and commits entry {last} of an earlier one")
            self.last_committed = last
            self._configuration = raft.log.configuration
            self._commit_term = raft.term
            self.check_held()

    def check_held(self) -> None:
        """The last committed entry must be on the disks of a majority of those who voted when it was committed.

        That is the newest configuration that its leader knew then, committed or not: each overlaps with the one before.
        """
        last, configuration = self.last_committed, self._configuration
        term = self.committed.get(last)
        if term is None or not configuration.voters:
            return
        holders = [
            watched.node
            for watched in self.nodes
            if last <= self.lost_disks.get(watched.node, 0) or watched.mirror.has(last, term)
        ]
        if not configuration.is_majority(holders):
            self._fail(
                "durability",
                f"entry {last} of term {term} is committed, and on the disks of {holders} of {configuration.ids}",
            )

    def replay(self, node: int, index: int, data: bytes) -> None:
        """A node replays an entry."""
        checksum = crc32(data)
        known = self.replayed.setdefault(index, checksum)
        if known != checksum:
            self._fail("state machine safety", f"node {node} replays another entry {index} than others: {data[:40]!r}")

    # Disks ---------------------------------------------------------------------------------------------------

    def wrote(self, node: int, items: Sequence[Any]) -> None:
        """A node writes a frame to its journal."""
        mirror = self._written.get(node)
        if mirror is None:
            return
        for item in items:
            kind = item[0]
            if kind == ENTRY:
                self._entry(node, mirror, item)
            elif kind == TRUNCATE and item[1] <= self.last_committed and self._covers(mirror, item[1]):
                self._fail("durability", f"node {node} cuts its log at {item[1]}, below the committed entry")
            mirror.apply((item,))

    def said(self, node: int, to: int, message: Message) -> None:
        """A node sends a message: a vote that is out cannot be taken back."""
        if isinstance(message, RequestVoteReply) and message.granted and not message.pre:
            self._vote(node, message.for_term, to)
        elif isinstance(message, RequestVote) and not message.pre:
            self._vote(node, message.term, node)

    def synced(self, node: int, items: Sequence[Any]) -> None:
        """What a node wrote is safe, and from now on it may speak of it."""
        for item in items:
            if item[0] in (VOTE, SEGMENT):
                term, voted_for = (item[1], item[2]) if item[0] == VOTE else (item[4], item[5])
                self._vote(node, term, voted_for)

    def wrote_snapshot(self, node: int, index: int, term: int) -> None:
        """A snapshot takes the place of a node's entries up to `index`."""
        if self.committed.get(index, term) != term:
            self._fail("state machine safety", f"node {node} has a snapshot at {index} of term {term}")
        mirror = self._written.get(node)
        if mirror is not None:
            mirror.snapshot(index, term)

    def _covers(self, mirror: Mirror, index: int) -> bool:
        """Whether the entry at `index` in the journal is the committed one."""
        return mirror.term_at(index) == self.committed.get(index, -1)

    def _entry(self, node: int, mirror: Mirror, item: Sequence[Any]) -> None:
        _, index, term, data = item
        previous = mirror.term_at(index - 1)
        found = (crc32(data), previous)
        known = self._entries.setdefault((index, term), found)
        if known[1] is None or previous is None:
            known = (known[0], previous)
        if known != found:
            self._fail(
                "log matching",
                f"entry {index} of term {term} on node {node} is (checksum, term before) {found}, elsewhere {known}",
            )

    def _vote(self, node: int, term: int, voted_for: int) -> None:
        if voted_for == NO_NODE:
            return
        known = self._votes.setdefault((node, term), voted_for)
        if known != voted_for:
            self._fail("vote", f"node {node} votes for {known} and {voted_for} in term {term}")

    def disk_lost(self, node: int) -> None:
        """A node's disk is damaged or empty: what it had, and whom it voted for, is forgotten without a fault of it."""
        held = next(watched.mirror.last for watched in self.nodes if watched.node == node)
        # What it has acknowledged may be counted when its answer arrives, and be gone by then. When the node finds the
        # damage this is called again, and there is less left of what it had.
        self.lost_disks[node] = max(self.last_committed, held, self.lost_disks.get(node, 0))
        self._votes = {key: voted_for for key, voted_for in self._votes.items() if key[0] != node}

    def disk_settled(self, node: int, mirror: Mirror) -> None:
        """A node lost power, or begins: `mirror` is what its disk holds now."""
        self._written[node] = mirror
        if self.last_committed:
            self.check_held()
