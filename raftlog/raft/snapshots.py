"""When a node of a quorum writes a snapshot, and where the leader gets the one that it sends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from raftlog.raft.core.log import Base
from raftlog.raft.core.progress import OutgoingSnapshot
from raftlog.raft.core.snapshot import SnapshotContent
from raftlog.raft.journal import JournalFailed
from raftlog.raft.node import RaftNode
from raftlog.raft.seam import ProposalFailed, SnapshotSource

logger = logging.getLogger("raftlog.raft")

KEPT_BYTES = 1024 * 1024
"""Entries that a snapshot covers and that stay in memory, so that who is a little behind needs no snapshot."""
FAILED_PAUSE_SECONDS = 10.0
"""Before a snapshot that could not be written is tried again: it is large, and a full disk stays full for a while."""
CHUNKS_PER_TURN = 8
"""Chunks made before the event loop gets to do something else."""


class Snapshots:
    """The snapshots of one node. One is made at a time."""

    def __init__(self, node: RaftNode, snapshot_bytes: int, source: SnapshotSource) -> None:
        """One is made whenever entries of `snapshot_bytes` have been replayed."""
        self._node = node
        self._snapshot_bytes = snapshot_bytes
        self._source = source
        self._task: asyncio.Task[int] | None = None
        self._not_before = 0.0
        self._loading = False

    def turn_ended(self) -> None:
        """Begin a snapshot when it is due, and load one when the leader is to send it."""
        node = self._node
        is_due = node.replayed_bytes >= self._snapshot_bytes and node.now() >= self._not_before
        if is_due and self._task is None and node.sync.applied > 0:
            self._begin(self._take_wanted())
        leadership = node.raft.leadership
        if leadership is not None and leadership.snapshot_wanted and not self._loading:
            self._loading = True
            self._load()

    def _begin(self, work: Coroutine[Any, Any, int]) -> asyncio.Task[int]:
        task = self._task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, _: asyncio.Task[int]) -> None:
        self._task = None

    async def _take_wanted(self) -> int:
        try:
            return await self._make()
        except JournalFailed as error:
            logger.error("no metadata snapshot was taken: %s", error)
            self._not_before = self._node.now() + FAILED_PAUSE_SECONDS
            return -1

    async def take(self) -> int:
        """See MetadataLog.take_snapshot."""
        while self._task is not None:
            await asyncio.wait([self._task])
        try:
            # Who asked may go; what has begun goes on, and `close` waits for it.
            return await asyncio.shield(self._begin(self._make()))
        except JournalFailed as error:
            raise ProposalFailed(str(error), outcome_unknown=False) from error

    async def _make(self) -> int:
        node, raft = self._node, self._node.raft
        applied = node.sync.applied
        index, source = self._source()
        term = raft.log.term_at(applied)
        if applied == 0 or term is None or index != raft.log.application_index(applied):
            logger.error("no metadata snapshot: the state is at %d and the log at %d", index, applied)
            return index
        configuration_index, configuration = raft.log.configuration_at(applied)
        base = Base(applied, term, configuration, configuration_index, raft.log.internal_up_to(applied))
        covered, node.replayed_bytes = node.replayed_bytes, 0
        seen = node.encode_replayed()
        chunks: list[bytes] = []
        for chunk in source:
            chunks.append(chunk)
            if len(chunks) % CHUNKS_PER_TURN == 0:
                await asyncio.sleep(0)
        content = SnapshotContent(base, seen, chunks)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def ended(error: BaseException | None) -> None:
            if error is not None:
                node.replayed_bytes += covered
                done.set_exception(error)
            else:
                done.set_result(None)

        node.disk.submit(lambda: node.journal.save_snapshot(base.index, base.term, content.all_chunks()), ended)
        await done
        raft.log.compact(min(self._kept_from(base.index), base.index))
        return index

    def _kept_from(self, index: int) -> int:
        log = self._node.raft.log
        kept = 0
        while index > log.base.index:
            kept += len(log.entry(index).data)
            if kept > KEPT_BYTES:
                break
            index -= 1
        return index

    def _load(self) -> None:
        node = self._node
        found: list[OutgoingSnapshot] = []

        def load() -> None:
            snapshot = node.journal.load_snapshot()
            if snapshot is not None:
                content = SnapshotContent.of_chunks(*snapshot)
                found.append(OutgoingSnapshot(snapshot.index, snapshot.term, content.encode()))

        def loaded(error: BaseException | None) -> None:
            self._loading = False
            leadership = node.raft.leadership
            if error is not None:
                node.fail(error)
            elif found and leadership is not None:
                leadership.offer_snapshot(found[0])
                node.wake()

        node.disk.submit(load, loaded)

    async def close(self) -> None:
        """Let what is under way end."""
        if self._task is not None:
            await asyncio.wait([self._task])
