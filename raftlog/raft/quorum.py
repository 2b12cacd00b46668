"""A metadata log that several nodes keep together: the seam's promises on top of a node of a quorum.

Everything that people ask of the log meets here: proposals, reads, requests to the leader, members, snapshots.
"""

from __future__ import annotations

import asyncio
import random as randomness
from collections.abc import Awaitable, Callable, Mapping, Sequence

from raftlog.histogram import Histogram
from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.ids import NodeId
from raftlog.raft.core.state import Timing
from raftlog.raft.disk import Disk
from raftlog.raft.journal import DEFAULT_SEGMENT_BYTES
from raftlog.raft.members import Members
from raftlog.raft.node import RaftNode
from raftlog.raft.opening import open_log
from raftlog.raft.peering import Peering
from raftlog.raft.proposals import Proposals
from raftlog.raft.reads import Reads
from raftlog.raft.seam import (
    LeadershipListener,
    PeerListener,
    QuorumStatus,
    ReplayCallback,
    RequestHandler,
    RestoreCallback,
    SnapshotSource,
)
from raftlog.raft.snapshots import Snapshots
from raftlog.raft.transport import Address

DEFAULT_SNAPSHOT_BYTES = 4 * 1024 * 1024


class QuorumLog:
    """See raftlog.raft.seam.MetadataLog. Nothing is answered that is not on a majority's disks."""

    def __init__(
        self,
        directory: str,
        *,
        node_id: int,
        peers: Mapping[int, Address],
        listen: Address | None,
        monotonic: Callable[[], float],
        disk: Disk,
        random: randomness.Random | None = None,
        timing: Timing = Timing(),  # noqa: B008  # frozen
        segment_bytes: int = DEFAULT_SEGMENT_BYTES,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
    ) -> None:
        """Open the journal in `directory`; nothing is sent or listened to before `start`.

        `peers`: the voters' ids and addresses, this node's among them unless it is an observer; the log knows better
        once it has entries. `listen`: where others call this node; None for an observer that only calls. `monotonic`:
        seconds of a clock that is read, not cached (to tell a slow disk). `random`: makes ids and time-outs differ.

        Raises JournalDamaged, JournalLocked, NotYetAQuorum, OSError.
        """
        peers = dict(sorted(peers.items()))
        rng = random or randomness.SystemRandom()
        incarnation = rng.getrandbits(62)
        bootstrap = Configuration.of_addresses(peers)
        opened = open_log(directory, node_id, bootstrap, disk=disk, segment_bytes=segment_bytes, rng=rng)
        self.node = RaftNode(NodeId(node_id), opened, self, monotonic=monotonic, rng=rng, timing=timing)
        self.peering = Peering(self.node, peers, listen, incarnation=incarnation, rng=rng)
        self._requests = self.peering.requests
        self._members = Members(self.node, self.peering.transport, peers)
        self._reads = Reads(self.node)
        self._proposals = Proposals(self.node, incarnation)
        self._snapshot_bytes = snapshot_bytes
        self._snapshots: Snapshots | None = None
        self._leadership_listeners: list[LeadershipListener] = []

    # -- what others see -----------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        """See MetadataLog."""
        return self.node.node_id

    @property
    def leader_id(self) -> int:
        """See MetadataLog."""
        return self.node.leader_id

    @property
    def term(self) -> int:
        """See MetadataLog."""
        return self.node.term

    @property
    def last_index(self) -> int:
        """See MetadataLog."""
        return self.node.last_index

    @property
    def committed_index(self) -> int:
        """See MetadataLog."""
        return self.node.committed_index

    @property
    def is_leader(self) -> bool:
        """See MetadataLog."""
        return self.node.is_leader

    # -- life ----------------------------------------------------------------------------------------

    @property
    def disk_seconds(self) -> Histogram:
        """See MetadataLog."""
        return self.node.disk.seconds

    async def start(self, restore: RestoreCallback, replay: ReplayCallback, snapshot: SnapshotSource) -> None:
        """See MetadataLog. What is committed is replayed when a leader says what that is. Raises OSError when the
        address to listen on cannot be had.
        """
        await self.peering.listen()
        self._snapshots = Snapshots(self.node, self._snapshot_bytes, snapshot)
        self.node.start(self.peering.address, self.peering.send, restore, replay)
        self._members.warn_of_role()
        self.peering.transport.start()
        self.peering.connect_to_voters()
        self.node.beat()

    async def close(self) -> None:
        """See MetadataLog."""
        if self.node.begin_to_close():
            if self._snapshots is not None:
                await self._snapshots.close()
                await self.peering.transport.close()
            await self.node.close()

    # -- what happens to the node: see NodeEvents ------------------------------------------------------

    def leader_changed(self) -> None:
        """See NodeEvents."""
        self._reads.fail()
        self.peering.connect_to_voters()
        self._requests.changed()
        self._members.leader_changed()

    def leading_changed(self) -> None:
        """See NodeEvents."""
        for listener in self._leadership_listeners:
            listener(self.node.is_leader)
        if self.node.is_leader:
            self.peering.announce_all()
        self._requests.changed()

    def configuration_changed(self) -> None:
        """See NodeEvents."""
        self.peering.connect_to_voters()

    def turn_ended(self) -> None:
        """See NodeEvents."""
        self._reads.turn_ended()
        self._members.turn_ended()
        assert self._snapshots is not None
        self._snapshots.turn_ended()

    def beat(self) -> None:
        """See NodeEvents."""
        self._members.warn_without_leader()

    def stopped(self) -> None:
        """See NodeEvents."""
        self._requests.close()
        self._members.close()
        self._reads.fail()

    def failed(self) -> None:
        """See NodeEvents."""
        self._closer = asyncio.get_running_loop().create_task(self.peering.transport.close())

    # -- entries -------------------------------------------------------------------------------------

    def propose(self, entries: Sequence[bytes]) -> Awaitable[int]:
        """See MetadataLog."""
        return self._proposals.propose(entries)

    async def barrier(self) -> int:
        """See MetadataLog."""
        return await self._reads.read()

    async def take_snapshot(self) -> int:
        """See MetadataLog."""
        assert self._snapshots is not None
        return await self._snapshots.take()

    # -- what the seam has for the quorum ------------------------------------------------------------------

    async def ask_leader(self, payload: bytes, timeout_seconds: float) -> bytes:
        """See MetadataLog."""
        return await self._requests.ask(payload, timeout_seconds)

    def on_request(self, handler: RequestHandler) -> None:
        """See MetadataLog."""
        self._requests.handle_with(handler)

    def on_leadership(self, listener: LeadershipListener) -> None:
        """See MetadataLog."""
        self._leadership_listeners.append(listener)
        if self.node.is_leader:
            listener(True)

    def on_peer(self, listener: PeerListener) -> None:
        """See MetadataLog. Whoever becomes leader is told of every node anew."""
        self.peering.listeners.append(listener)

    def disconnected_peers(self) -> frozenset[int]:
        """See MetadataLog."""
        return self.peering.transport.disconnected_peers()

    def set_cluster_id(self, cluster_id: str) -> None:
        """See MetadataLog."""
        self.peering.cluster_id = cluster_id

    def status(self) -> QuorumStatus:
        """See MetadataLog."""
        return self._members.status()

    async def add_voter(self, node_id: int, host: str, port: int) -> None:
        """See MetadataLog."""
        await self._members.add(NodeId(node_id), host, port)

    async def remove_voter(self, node_id: int) -> None:
        """See MetadataLog."""
        await self._members.remove(NodeId(node_id))

    async def transfer_leadership(self, to: int | None = None) -> int:
        """See MetadataLog."""
        return await self._members.transfer(NodeId(to) if to is not None else None)
