"""Proposals: entries on their way into the log, and what becomes of each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from raftlog.raft.core.entries import APPLICATION_OVERHEAD, application_data
from raftlog.raft.core.state import NOBODY
from raftlog.raft.seam import NotLeader, ProposalFailed

if TYPE_CHECKING:
    from raftlog.raft.quorum import QuorumLog

ENTRY_BYTES_MAX = 32 * 1024 * 1024
"""One entry; it travels in one frame."""
QUEUED_BYTES_MAX = 128 * 1024 * 1024
"""Entries proposed in one turn of the event loop."""


class Proposals:
    """What this node proposes while it leads."""

    def __init__(self, quorum: QuorumLog) -> None:
        self._quorum = quorum
        self._number = 0
        self._waiting: list[tuple[int, asyncio.Future[int]]] = []
        self._bytes = 0
        self.queued = 0
        """Entries that are not in the log yet, but will be after all that are."""

    def propose(self, entries: Sequence[bytes]) -> Awaitable[int]:
        """See MetadataLog."""
        quorum = self._quorum
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        if not quorum.is_leader:
            done.set_exception(NotLeader(quorum.leader_id if quorum.leader_id != quorum.node_id else NOBODY))
            return done
        if not entries:
            self._wait_for_all(done)
            return done
        sizes = [len(entry) + APPLICATION_OVERHEAD for entry in entries]
        if max(sizes) > ENTRY_BYTES_MAX:
            done.set_exception(ProposalFailed(f"an entry exceeds {ENTRY_BYTES_MAX} bytes", outcome_unknown=False))
            return done
        if self._bytes + sum(sizes) > QUEUED_BYTES_MAX:
            done.set_exception(ProposalFailed("too many changes at once for the quorum", outcome_unknown=False))
            return done
        self._bytes += sum(sizes)
        for position, payload in enumerate(entries, 1):
            self._number += 1
            callback = _settle(done) if position == len(entries) else None
            quorum.sync._applyCommand(application_data(quorum.incarnation, self._number, payload), callback)
        self.queued += len(entries)
        quorum.wake()
        return done

    def taken(self) -> None:
        """All that was queued is in the log."""
        self.queued = self._bytes = 0

    def _wait_for_all(self, done: asyncio.Future[int]) -> None:
        """Nothing was proposed: as soon as what was proposed before is committed, so is this."""
        last = self._quorum.last_index
        if self._quorum.committed_index >= last:
            done.set_result(last)
        else:
            self._waiting.append((last, done))

    def after_replay(self) -> None:
        """Tell who waited for what is committed by now."""
        if self._waiting:
            committed = self._quorum.committed_index
            for index, done in self._waiting:
                if index <= committed and not done.done():
                    done.set_result(index)
            self._waiting = [pair for pair in self._waiting if not pair[1].done()]

    def fail(self) -> None:
        """This node no longer leads, or stops; PySyncObj tells those whose entries are in the log."""
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(ProposalFailed(LOST, outcome_unknown=True))


LOST = "leadership was lost before the entry was committed"


def _settle(done: asyncio.Future[int]) -> Callable[[Any, int], None]:
    """The callback of a command whose fate `done` tells."""
    from raftlog.raft import hardened

    def settle(result: Any, reason: int) -> None:
        if done.done():
            return
        if reason == hardened.SUCCESS and isinstance(result, int):
            done.set_result(result)
        elif reason in (hardened.NOT_LEADER, hardened.MISSING_LEADER):
            done.set_exception(NotLeader(NOBODY))
        elif reason == hardened.QUEUE_FULL:
            done.set_exception(ProposalFailed("too many changes are waiting for the quorum", outcome_unknown=False))
        elif reason == hardened.DISCARDED:
            done.set_exception(ProposalFailed("another leader's entry took its place", outcome_unknown=False))
        else:
            done.set_exception(ProposalFailed(LOST, outcome_unknown=True))

    return settle
