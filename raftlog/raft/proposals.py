"""Proposals: entries on their way into the log, and what becomes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from raftlog.raft.core.entries import APPLICATION_OVERHEAD, application_data
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.node import RaftNode
from raftlog.raft.seam import ENTRY_BYTES_MAX, NotLeader, ProposalFailed

UNWRITTEN_BYTES_MAX = 128 * 1024 * 1024
"""Entries that wait for what is being written: they are to fit into one frame of the journal."""


class Proposals:
    """What this node proposes while it leads."""

    def __init__(self, node: RaftNode, incarnation: int) -> None:
        """`incarnation`: random for each start; with a number it is a command's id."""
        self._node = node
        self._incarnation = incarnation
        self._number = 0

    def propose(self, entries: Sequence[bytes]) -> Awaitable[int]:
        """See MetadataLog."""
        node = self._node
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not node.is_leader:
            done.set_exception(NotLeader(node.leader_id if node.leader_id != node.node_id else NO_NODE))
            return done
        if not entries:
            # As soon as what was proposed before is committed, so is this; and if that is not taken, neither is this.
            if node.committed_index >= node.last_index:
                done.set_result(node.committed_index)
            else:
                node.sync.share_fate(done)
            return done
        sizes = [len(entry) + APPLICATION_OVERHEAD for entry in entries]
        if max(map(len, entries)) > ENTRY_BYTES_MAX:
            done.set_exception(ProposalFailed(f"an entry exceeds {ENTRY_BYTES_MAX} bytes", outcome_unknown=False))
            return done
        if node.sync.unwritten_bytes + node.sync.queued_bytes + sum(sizes) > UNWRITTEN_BYTES_MAX:
            done.set_exception(ProposalFailed("too many changes at once for the quorum", outcome_unknown=False))
            return done
        for position, payload in enumerate(entries, 1):
            self._number += 1
            command = application_data(self._incarnation, self._number, payload)
            node.sync.propose(command, done if position == len(entries) else None)
        node.wake()
        return done
