"""The seam between metadata and whatever orders it: a quorum of one on the local disk, or a Raft quorum.

Above the seam, entries are opaque bytes in one agreed order; below it, nobody knows what they mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from raftlog.histogram import Histogram

ENTRY_BYTES_MAX = 32 * 1024 * 1024
"""The largest entry that may be proposed; it travels in one frame."""

ReplayCallback = Callable[[int, bytes], None]
"""Called with (index, entry) for each committed entry, in order, without a gap, on the event loop. Must not
raise.
"""

RestoreCallback = Callable[[int, Iterable[bytes]], None]
"""Called with (index, chunks) of a snapshot that replaces everything replayed so far; index: the last entry
in it.
"""

SnapshotSource = Callable[[], tuple[int, Iterable[bytes]]]
"""Gives (index of the last replayed entry, chunks that hold the state after it)."""


RequestHandler = Callable[[int, bytes], Awaitable[bytes]]
"""Answers a request that a node (its id) sent to the leader. May raise ProposalFailed and NotLeader, which reach
the asker as such; anything else is a bug.
"""

LeadershipListener = Callable[[bool], None]
"""Called with the new value of `is_leader`."""

PeerListener = Callable[[int, bool], None]
"""Called with (node id, whether it is connected)."""


class ProposalFailed(Exception):
    """A proposed entry was not committed as far as this node knows; the text says why and what to do.

    `outcome_unknown`: the entry may still turn out to be committed later (after a restart, or by another
    leader), so a caller must look before it repeats what it asked for.
    """

    def __init__(self, message: str, *, outcome_unknown: bool) -> None:
        super().__init__(message)
        self.outcome_unknown = outcome_unknown


class NotLeader(ProposalFailed):
    """Only the leader may propose; `leader_id` is the one that this node believes in, or -1."""

    def __init__(self, leader_id: int) -> None:
        known = f"node {leader_id} leads the metadata quorum" if leader_id >= 0 else "the metadata quorum has no leader"
        super().__init__(known, outcome_unknown=False)
        self.leader_id = leader_id


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """A node of the quorum as the asked node sees it.

    `match_index`: the last entry known to be durable there, -1 when unknown. Ages in seconds, -1.0 when unknown:
    `last_contact_seconds` since anything came from it (connected nodes say something every half second),
    `last_caught_up_seconds` since it last had everything. Indexes and the latter are known to the leader alone.
    `catching_up`: asked to become a voter, and still behind.
    """

    node_id: int
    host: str
    port: int
    match_index: int
    connected: bool
    last_contact_seconds: float
    last_caught_up_seconds: float
    catching_up: bool = False


@dataclass(frozen=True, slots=True)
class QuorumStatus:
    """What one node knows of its quorum. Members are sorted by id; indexes count as everywhere in MetadataLog.

    `is_writable`: false while the journal cannot be written (a full disk), and so nothing is replayed here.
    """

    node_id: int
    leader_id: int
    term: int
    committed_index: int
    last_index: int
    voters: tuple[QuorumMember, ...]
    observers: tuple[QuorumMember, ...]
    is_writable: bool = True


class MetadataLog(Protocol):
    """An agreed, durable sequence of entries with a snapshot in front of it.

    Indexes count what was proposed here, not what a quorum writes for itself (new terms, members).
    Invariants: an entry is replayed only after it is durable on a majority; indexes start at 1 and have no
    gaps (but for a proposal that arrived twice and is passed over); what was replayed once is never replayed
    otherwise.
    """

    @property
    def node_id(self) -> int:
        """This node's id in the quorum."""

    @property
    def leader_id(self) -> int:
        """The node that leads the quorum as far as this node knows, or -1."""

    @property
    def term(self) -> int:
        """The term (leader epoch) this node is in."""

    @property
    def last_index(self) -> int:
        """The index of the last entry in the log, committed or not; the next proposal follows it."""

    @property
    def committed_index(self) -> int:
        """The index of the last entry that was replayed."""

    @property
    def disk_seconds(self) -> Histogram:
        """How long the journal's steps on the disk took so far, a sync in nearly each of them."""

    async def start(self, restore: RestoreCallback, replay: ReplayCallback, snapshot: SnapshotSource) -> None:
        """Read back what is there, calling `restore` at most once and `replay` for each later entry.

        Raises `JournalDamaged` when the log cannot be trusted. `snapshot` is asked for whenever the log has
        grown enough. Later `restore` is called again when a snapshot arrives from the leader, because this node is
        too far behind for entries. A quorum need not have a leader when this returns.
        """

    # -- the quorum --------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """Whether this node may decide: it leads, and has replayed an entry of its own term and all before it."""

    async def barrier(self) -> int:
        """The committed index, confirmed by a majority after the call and replayed here (Raft §6.4, ReadIndex).

        Raises NotLeader, ProposalFailed.
        """

    async def ask_leader(self, payload: bytes, timeout_seconds: float) -> bytes:
        """The answer of the leader's request handler; when this node leads, of its own.

        Waits for a leader as long as the time-out allows. Raises NotLeader when there is none in that time, and
        ProposalFailed with `outcome_unknown` when the request was sent and no answer came.
        """

    def on_request(self, handler: RequestHandler) -> None:
        """Answer requests with this handler while `is_leader`. Set it before `start`."""

    def on_leadership(self, listener: LeadershipListener) -> None:
        """Call `listener` when `is_leader` changes, and at once when it is true already."""

    def on_peer(self, listener: PeerListener) -> None:
        """Call `listener` when the connection with a node (voter or observer) is made or lost, also when this node
        does not lead. A process that dies shows here at once, one that is stopped or cut off does not.
        """

    def disconnected_peers(self) -> frozenset[int]:
        """Nodes whose connection is over as the kernel knows, though `on_peer` has not told of it yet."""

    def set_cluster_id(self, cluster_id: str) -> None:
        """From now on refuse nodes of another cluster."""

    def status(self) -> QuorumStatus:
        """What this node knows of the quorum."""

    async def add_voter(self, node_id: int, host: str, port: int) -> None:
        """Give a node that follows as an observer a vote, once it has caught up. One change at a time.

        Raises NotLeader, ProposalFailed.
        """

    async def remove_voter(self, node_id: int) -> None:
        """Take a node's vote; it goes on as an observer. Raises NotLeader, ProposalFailed."""

    async def transfer_leadership(self, to: int | None = None) -> int:
        """Hand leadership to a voter (None: the one that is furthest), and return the new leader's id.

        Raises NotLeader, and ProposalFailed when nobody took it within an election time-out: then this node leads on.
        """

    # -- entries -----------------------------------------------------------------------------------------

    def propose(self, entries: Sequence[bytes]) -> Awaitable[int]:
        """Append entries, all or a prefix of them. Takes its place in the order at once, before it is
        awaited.

        The result is the index of the last of them, once all are committed and replayed. Raises
        ProposalFailed.
        """

    async def take_snapshot(self) -> int:
        """Write a snapshot now and drop the entries it covers; returns the index that it reaches.

        Raises ProposalFailed, and then nothing is lost.
        """

    async def close(self) -> None:
        """Make everything durable and let go of the files. Proposals that are under way fail."""
