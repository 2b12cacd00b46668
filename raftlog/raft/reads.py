"""Reads that must be current: a majority is asked whether this node still leads before it answers (Raft §6.4)."""

from __future__ import annotations

import asyncio

from raftlog.raft.node import RaftNode
from raftlog.raft.seam import NotLeader


class Reads:
    """Reads that wait: first for a majority, then for the replay."""

    def __init__(self, node: RaftNode) -> None:
        self._node = node
        self._number = 0
        self._unconfirmed: dict[int, asyncio.Future[int]] = {}
        self._confirmed: list[tuple[int, asyncio.Future[int]]] = []

    async def read(self) -> int:
        """See MetadataLog.barrier."""
        node = self._node
        if not node.is_leader or node.raft.leadership is None:
            raise NotLeader(node.leader_id)
        self._number += 1
        read: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._unconfirmed[self._number] = read
        node.raft.leadership.read(self._number, node.raft.committed)
        node.wake()
        return await read

    def turn_ended(self) -> None:
        """Answer what can be answered now."""
        raft, applied = self._node.raft, self._node.sync.applied
        if raft.leadership is not None and self._unconfirmed:
            for token, index in raft.leadership.confirmed_reads():
                self._confirmed.append((index, self._unconfirmed.pop(token)))
        if not self._confirmed:
            return
        for index, read in self._confirmed:
            if index <= applied and not read.done():
                read.set_result(raft.log.application_index(applied))
        self._confirmed = [pair for pair in self._confirmed if not pair[1].done()]

    def fail(self) -> None:
        """This node no longer leads, or stops."""
        waiting = [*self._unconfirmed.values(), *(read for _, read in self._confirmed)]
        self._unconfirmed, self._confirmed = {}, []
        for read in waiting:
            if not read.done():
                read.set_exception(NotLeader(self._node.leader_id))
