"""The seam between metadata and whatever orders it: a quorum of one on the local disk, or a Raft quorum.

Above the seam, entries are opaque bytes in one agreed order; below it, nobody knows what they mean. Refuses
to know metadata, Kafka, and which of its implementations runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol

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
        super().__init__(f"node {leader_id} leads the metadata quorum", outcome_unknown=False)
        self.leader_id = leader_id


class MetadataLog(Protocol):
    """An agreed, durable sequence of entries with a snapshot in front of it.

    Invariants: an entry is replayed only after it is durable on a majority; indexes start at 1 and have no
    gaps; what was replayed once is never replayed otherwise.
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

    async def start(self, restore: RestoreCallback, replay: ReplayCallback, snapshot: SnapshotSource) -> None:
        """Read back what is there, calling `restore` at most once and `replay` for each later entry.

        Raises `JournalDamaged` when the log cannot be trusted. `snapshot` is asked for whenever the log has
        grown enough.
        """

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
