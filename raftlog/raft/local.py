"""A quorum of one: the metadata log of a broker that has no peers, on its own disk.

With one voter an entry is committed as soon as it is on the disk.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from raftlog.histogram import Histogram
from raftlog.raft.core.entries import MARK, Entry
from raftlog.raft.core.ids import NO_NODE, NodeId, Term
from raftlog.raft.disk import Disk
from raftlog.raft.disk_thread import DiskThread
from raftlog.raft.journal import DEFAULT_SEGMENT_BYTES, Journal, JournalFailed, JournalOfQuorum
from raftlog.raft.journal_recovery import Recovered
from raftlog.raft.seam import (
    LeadershipListener,
    PeerListener,
    ProposalFailed,
    QuorumMember,
    QuorumStatus,
    ReplayCallback,
    RequestHandler,
    RestoreCallback,
    SnapshotSource,
)

logger = logging.getLogger("raftlog.raft")

DEFAULT_SNAPSHOT_BYTES = 4 * 1024 * 1024

PROPOSALS_PER_FRAME_MAX = 1024
"""One frame holds at most this many proposals: a frame is read and written as a whole."""
PROPOSED_BYTES_PER_FRAME_MAX = 64 * 1024 * 1024
"""And so many bytes of them, unless a single one is larger: a frame has a bound."""


_ALONE = "this broker runs without peers: start it with --peers to make it a member of a quorum"


async def _answer(handler: RequestHandler, node_id: int, payload: bytes) -> bytes:
    return await handler(node_id, payload)


class _Proposal(NamedTuple):
    entries: Sequence[bytes]
    done: asyncio.Future[int]


class LocalLog:
    """See raftlog.raft.seam.MetadataLog.

    Invariants: entries are replayed in the order of `propose`; a failed write fails every proposal that was made
    after the last committed one, because each of them was decided on the ones before it.
    """

    def __init__(
        self,
        directory: str,
        *,
        node_id: int,
        disk: Disk,
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Open the journal in `directory`. Raises JournalDamaged, JournalLocked, OSError."""
        self._journal = Journal(directory, disk, segment_bytes)
        self._node_id = node_id
        self._snapshot_bytes = snapshot_bytes
        self._steps = DiskThread(monotonic)
        self._committed = 0
        self._last = 0
        self._bytes_since_snapshot = 0
        self._queue: list[_Proposal] = []
        self._batch: list[_Proposal] = []  # those of the queue that are being written
        self._writer: asyncio.Task[None] | None = None
        self._snapshot_wanted = False
        self._started = False
        self._handler: RequestHandler | None = None
        self._leadership_listeners: list[LeadershipListener] = []
        self._disk = asyncio.Lock()  # one step on the disk at a time

    @property
    def node_id(self) -> int:
        """See MetadataLog."""
        return self._node_id

    @property
    def leader_id(self) -> int:
        """This node: there is no other."""
        return self._node_id

    @property
    def term(self) -> Term:
        """See MetadataLog."""
        return self._journal.term

    @property
    def last_index(self) -> int:
        """See MetadataLog."""
        return self._last

    @property
    def committed_index(self) -> int:
        """See MetadataLog."""
        return self._committed

    @property
    def disk_seconds(self) -> Histogram:
        """See MetadataLog."""
        return self._steps.seconds

    async def start(self, restore: RestoreCallback, replay: ReplayCallback, snapshot: SnapshotSource) -> None:
        """See MetadataLog."""
        self._replay = replay
        self._snapshot = snapshot
        recovered = self._journal.recovered
        self._refuse_a_quorums_journal(recovered)
        if recovered.snapshot is not None:
            restore(recovered.snapshot.index, recovered.snapshot.chunks)
        for entry in recovered.entries:
            replay(entry.index, entry.data)
            self._bytes_since_snapshot += len(entry.data)
        self._last = self._committed = recovered.last_index
        recovered.entries.clear()
        recovered.snapshot = None
        if recovered.truncated_bytes:
            logger.warning(
                "metadata journal %s: cut %d bytes of a write that a crash interrupted, up to entry %d is there",
                self._journal.directory,
                recovered.truncated_bytes,
                self._last,
            )
        if self._journal.voted_for == NO_NODE:
            # The first start: lead the first term, so that entries carry a term that a quorum can go on from.
            self._journal.vote(Term(self._journal.term + 1), NodeId(self._node_id))
        self._started = True
        for listener in self._leadership_listeners:
            listener(True)

    def _refuse_a_quorums_journal(self, recovered: Recovered) -> None:
        mark = bytes((MARK,))
        first_chunks = recovered.snapshot.chunks[:1] if recovered.snapshot is not None else []
        if any(data.startswith(mark) for data in [*first_chunks, *(entry.data for entry in recovered.entries)]):
            raise JournalOfQuorum(self._journal.directory)

    # -- the quorum --------------------------------------------------------------------------------------

    @property
    def is_leader(self) -> bool:
        """See MetadataLog: from the end of `start` on."""
        return self._started

    async def barrier(self) -> int:
        """See MetadataLog. A majority of one agrees at once."""
        return self._committed

    async def ask_leader(self, payload: bytes, timeout_seconds: float) -> bytes:
        """See MetadataLog."""
        if self._handler is None:
            raise ProposalFailed("nobody answers requests on this node", outcome_unknown=False)
        try:
            async with asyncio.timeout(timeout_seconds):
                return await _answer(self._handler, self._node_id, payload)
        except TimeoutError as error:
            raise ProposalFailed(f"no answer within {timeout_seconds} s", outcome_unknown=True) from error

    def on_request(self, handler: RequestHandler) -> None:
        """See MetadataLog."""
        self._handler = handler

    def on_leadership(self, listener: LeadershipListener) -> None:
        """See MetadataLog."""
        self._leadership_listeners.append(listener)
        if self._started:
            listener(True)

    def on_peer(self, listener: PeerListener) -> None:
        """See MetadataLog. There are no peers to tell of."""

    def disconnected_peers(self) -> frozenset[int]:
        """See MetadataLog."""
        return frozenset()

    def set_cluster_id(self, cluster_id: str) -> None:
        """See MetadataLog. There are no peers to refuse."""

    def status(self) -> QuorumStatus:
        """See MetadataLog."""
        itself = QuorumMember(self._node_id, "", -1, self._committed, True, 0.0, 0.0)
        return QuorumStatus(self._node_id, self._node_id, self.term, self._committed, self._last, (itself,), ())

    async def add_voter(self, node_id: int, host: str, port: int) -> None:
        """See MetadataLog. A quorum of one without a peer port cannot grow."""
        raise ProposalFailed(_ALONE, outcome_unknown=False)

    async def remove_voter(self, node_id: int) -> None:
        """See MetadataLog."""
        raise ProposalFailed(_ALONE, outcome_unknown=False)

    async def transfer_leadership(self, to: int | None = None) -> int:
        """See MetadataLog."""
        if to is None or to == self._node_id:
            return self._node_id
        raise ProposalFailed(_ALONE, outcome_unknown=False)

    # -- entries -----------------------------------------------------------------------------------------

    def propose(self, entries: Sequence[bytes]) -> Awaitable[int]:
        """See MetadataLog."""
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._last += len(entries)
        self._queue.append(_Proposal(entries, done))
        if self._writer is None:
            # A task begins in the next turn of the loop, so that all that is proposed in this one shares an fsync.
            self._writer = asyncio.get_running_loop().create_task(self._write_queue())
        return done

    async def _write_queue(self) -> None:
        try:
            while self._queue:
                await self._write_batch()
            if self._snapshot_wanted:
                await self._take_wanted_snapshot()
        except BaseException as error:
            # A bug, ours or a listener's. Nobody may wait for ever for it, and it must reach the loop's handler.
            self._abandon(error)
            raise
        finally:
            self._writer = None
            if self._queue:
                # Proposed while the snapshot was being written.
                self._writer = asyncio.get_running_loop().create_task(self._write_queue())

    def _abandon(self, error: BaseException) -> None:
        waiting = [*self._batch, *self._queue]
        self._batch = []
        self._queue.clear()
        for proposal in waiting:
            if not proposal.done.done():
                proposal.done.set_exception(error)

    async def _write_batch(self) -> None:
        batch = self._batch = self._next_frame()
        entries: list[Entry] = []
        for proposal in batch:
            following = self._committed + len(entries) + 1
            entries.extend(Entry(index, self.term, data) for index, data in enumerate(proposal.entries, following))
        try:
            async with self._disk:
                await self._on_disk(lambda: self._journal.append(entries))
        except JournalFailed as error:
            self._fail_all(batch, error)
            return
        position = 0
        for proposal in batch:
            for entry in entries[position : position + len(proposal.entries)]:
                self._committed = entry.index
                self._bytes_since_snapshot += len(entry.data)
                self._replay(entry.index, entry.data)
            position += len(proposal.entries)
            if not proposal.done.done():
                proposal.done.set_result(self._committed)
        self._batch = []
        self._snapshot_wanted = self._bytes_since_snapshot >= self._snapshot_bytes

    def _next_frame(self) -> list[_Proposal]:
        """Takes what is written next out of the queue."""
        batch: list[_Proposal] = []
        size = 0
        for proposal in self._queue[:PROPOSALS_PER_FRAME_MAX]:
            size += sum(map(len, proposal.entries))
            if batch and size > PROPOSED_BYTES_PER_FRAME_MAX:
                break
            batch.append(proposal)
        del self._queue[: len(batch)]
        return batch

    def _fail_all(self, batch: Sequence[_Proposal], error: JournalFailed) -> None:
        failed = [*batch, *self._queue]
        self._queue.clear()
        self._last = self._committed
        for proposal in failed:
            if not proposal.done.done():
                proposal.done.set_exception(ProposalFailed(str(error), outcome_unknown=error.on_disk_unknown))

    async def _on_disk(self, step: Callable[[], None]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(error: BaseException | None) -> None:
            if done.done():
                return  # Who waited was cancelled.
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._steps.submit(step, ended)
        await done

    async def _take_wanted_snapshot(self) -> None:
        self._snapshot_wanted = False
        try:
            await self._write_snapshot()
        except JournalFailed as error:
            # All entries are still in the journal. It is large, so it is tried again only when as many more have come.
            self._bytes_since_snapshot = 0
            logger.error("no metadata snapshot was taken: %s", error)

    async def take_snapshot(self) -> int:
        """See MetadataLog."""
        try:
            return await self._write_snapshot()
        except JournalFailed as error:
            raise ProposalFailed(str(error), outcome_unknown=False) from error

    async def _write_snapshot(self) -> int:
        async with self._disk:
            index, chunks = self._snapshot()
            ready = list(chunks)
            await self._on_disk(lambda: self._journal.save_snapshot(index, self.term, ready))
            self._bytes_since_snapshot = 0
        return index

    async def close(self) -> None:
        """See MetadataLog. What was proposed before is written."""
        while self._writer is not None:
            await asyncio.wait([self._writer])
        await self._steps.drain()
        self._steps.close()
        self._journal.close()
