"""Nodes of a quorum in one process on the loopback interface, with real files or files in memory."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterable
from pathlib import Path

from raftlog.broker.store.disk import OsDisk
from raftlog.raft.core.state import Timing
from raftlog.raft.disk import Disk
from raftlog.raft.quorum import QuorumLog
from raftlog.testing.ports import ReservedPort
from tests.waiting import until

QUICK = Timing(heartbeat=0.03, election_min=0.25, election_max=0.4, fast_election_min=0.002, fast_election_max=0.03)
NEVER = Timing(election_min=20.0, election_max=30.0)
"""Time-outs that are over long after a test is: however slow the disk is, the leader stays."""


class State:
    """A state machine that remembers entries."""

    def __init__(self) -> None:
        self.entries: list[bytes] = []
        self.index = 0
        self.restored = 0

    def restore(self, index: int, chunks: Iterable[bytes]) -> None:
        self.entries = list(chunks)
        self.index = self.restored = index

    def replay(self, index: int, entry: bytes) -> None:
        assert index == self.index + 1
        self.index = index
        self.entries.append(entry)

    def snapshot(self) -> tuple[int, Iterable[bytes]]:
        return self.index, list(self.entries)


class Node:
    """One node: its log, its state, and what it was told."""

    def __init__(self, world: World, node_id: int, settings: dict[str, object]) -> None:
        self.world = world
        self.node_id = node_id
        self.state = State()
        self.peers: list[tuple[int, bool]] = []
        self.leads: list[bool] = []
        arguments: dict[str, object] = {
            "node_id": node_id,
            "peers": {one: ("127.0.0.1", world.ports[one]) for one in world.voters},
            "listen": ("127.0.0.1", world.ports[node_id]),
            "monotonic": time.monotonic,
            "random": random.Random(),
            "timing": QUICK,
            "disk": world.disks.get(node_id) or OsDisk(),
            **settings,
        }
        self.log = QuorumLog(str(world.directory / str(node_id)), **arguments)  # type: ignore[arg-type]
        self.log.on_peer(lambda node, connected: self.peers.append((node, connected)))
        self.log.on_leadership(self.leads.append)

    async def start(self) -> Node:
        await self.log.start(self.state.restore, self.state.replay, self.state.snapshot)
        return self

    def kill(self) -> None:
        """Go away as a killed process does: sockets closed, nothing said, the journal's lock released."""
        log = self.log
        log.node._closing = True
        if log.node._timer is not None:
            log.node._timer.cancel()
        transport = log.peering.transport
        transport._closed = True
        for caller in transport._callers.values():
            caller.cancel()
        if transport._server is not None:
            transport._server.close()
        for channel in [*transport._channels.values(), *transport._strangers]:
            assert channel._transport is not None
            channel._transport.abort()
        log.node.journal.close()
        self.world.nodes.pop(self.node_id, None)


class World:
    """Some nodes; `async with` closes them."""

    def __init__(self, directory: Path, voters: Iterable[int] = (1, 2, 3), **settings: object) -> None:
        self.directory = directory
        self.voters = tuple(voters)
        self._reserved: list[ReservedPort] = []
        self.ports = {node_id: self._reserve() for node_id in self.voters}
        self.settings = settings
        self.nodes: dict[int, Node] = {}
        self.disks: dict[int, Disk] = {}

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.log.close() for node in self.nodes.values()))
        for port in self._reserved:
            port.release()

    def _reserve(self) -> int:
        """A port that stays ours also while its node is down."""
        self._reserved.append(ReservedPort())
        return self._reserved[-1].number

    async def start(self, *node_ids: int, **settings: object) -> None:
        """Start nodes, all of them if none is named."""
        for node_id in node_ids or self.voters:
            if node_id not in self.ports:
                self.ports[node_id] = self._reserve()
            node = Node(self, node_id, {**self.settings, **settings})
            self.nodes[node_id] = node
            await node.start()

    def leader(self) -> Node | None:
        leaders = [node for node in self.nodes.values() if node.log.is_leader]
        return max(leaders, key=lambda node: node.log.term, default=None)

    async def led(self) -> Node:
        """Wait for a leader that the others know."""

        def known() -> bool:
            leader = self.leader()
            return leader is not None and all(
                node.log.leader_id == leader.node_id and node.log.term == leader.log.term
                for node in self.nodes.values()
            )

        await until(known)
        leader = self.leader()
        assert leader is not None
        return leader

    async def agree(self, entries: list[bytes]) -> None:
        """Wait until all nodes have exactly these entries."""
        await until(lambda: all(node.state.entries == entries for node in self.nodes.values()))
