"""How a node of a quorum meets the others: what it says of itself, whom it calls, and where frames go."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from raftlog.raft.channel import Kind
from raftlog.raft.core.errors import PeerViolation, RaftViolation
from raftlog.raft.core.ids import NO_NODE, NodeId
from raftlog.raft.core.leadership import Peer
from raftlog.raft.core.messages import Message, from_wire, to_wire
from raftlog.raft.core.state import Role
from raftlog.raft.handshake import PROTOCOL_VERSION, Hello
from raftlog.raft.node import RaftNode
from raftlog.raft.requests import Requests
from raftlog.raft.seam import PeerListener
from raftlog.raft.transport import Address, PeerTransport

HINTS_MAX = 100
"""Addresses of voters that other nodes have named."""


class Peering:
    """See TransportEvents. `requests` are those of applications, which share the connections with Raft."""

    def __init__(
        self,
        node: RaftNode,
        peers: Mapping[int, Address],
        listen: Address | None,
        *,
        incarnation: int,
        rng: random.Random,
    ) -> None:
        """`peers`: the voters as the command line names them. `incarnation`: random for each start."""
        self._node = node
        self._peers = peers
        self._observer = node.node_id not in peers
        self._incarnation = incarnation
        self._listen = listen
        self.address: Address = peers.get(node.node_id) or listen or ("", 0)
        """Where others reach this node."""
        self._hints: dict[int, Address] = {}
        self.cluster_id = ""
        self.listeners: list[PeerListener] = []
        self.transport = PeerTransport(self, rng, node.now)
        self.requests = Requests(node, self.transport.send, incarnation)

    async def listen(self) -> None:
        """Take calls from others, unless this node only calls. Raises OSError."""
        if self._listen is not None:
            await self.transport.listen(*self._listen)
            if self.address[1] == 0:
                self.address = (self.address[0], self.transport.port)

    def send(self, node_id: NodeId, message: Message) -> None:
        """Send a message of Raft; it is lost when there is no connection."""
        self.transport.send(node_id, Kind.RAFT, *to_wire(message))

    # -- what the transport asks and tells -----------------------------------------------------------

    def own_hello(self, to: int) -> Hello:
        """See TransportEvents."""
        node, raft = self._node, self._node.raft
        # Who lost its disk is awaited, and must be let in again though it knows no more than its command line.
        members = sorted([*raft.configuration.voters, *raft.configuration.awaited])
        voters = tuple((voter.node_id, voter.host, voter.port) for voter in members)
        directories = tuple(voter.directory for voter in members)
        from_log = raft.log.configuration_index > 0
        return Hello(
            PROTOCOL_VERSION, to, self.cluster_id, node.node_id, node.directory, self._incarnation, *self.address,
            self._observer and not raft.is_voter, from_log, voters, directories,
        )  # fmt: skip

    def peer_connected(self, node_id: NodeId, hello: Hello) -> None:
        """See TransportEvents."""
        node = self._node
        for voter, host, port in hello.voters:
            if voter != node.node_id and (voter in self._hints or len(self._hints) < HINTS_MAX):
                self._hints[voter] = (host, port)
        node.raft.connected(node_id, Peer(hello.directory, hello.host, hello.port), node.now())
        self.connect_to_voters()
        self._changed(node_id, True)

    def peer_lost(self, node_id: NodeId) -> None:
        """See TransportEvents."""
        self._node.raft.disconnected(node_id, self._node.now())
        self.requests.peer_lost(node_id)
        self._changed(node_id, False)

    def _changed(self, node_id: NodeId, connected: bool) -> None:
        if not self._node.is_running:
            return
        self._announce(node_id, connected)
        self.requests.changed()
        self._node.rearm_timer()
        self._node.wake()

    def peer_frame(self, node_id: NodeId, kind: int, values: Sequence[Any]) -> None:
        """See TransportEvents."""
        node = self._node
        if not node.is_running:
            return
        if kind == Kind.RAFT:
            try:
                node.sync.port.receive(node_id, from_wire(values))
            except RaftViolation as error:
                node.fail(error)
                return
            if node.raft.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
                node.rearm_timer()
            node.wake()
        elif kind == Kind.REQUEST:
            self.requests.on_request(node_id, values)
        elif kind == Kind.ANSWER:
            self.requests.on_answer(node_id, values)
        else:
            raise PeerViolation(f"a frame of an unknown kind ({kind})")

    # -- whom to call, whom to tell ------------------------------------------------------------------

    def connect_to_voters(self) -> None:
        """Call all voters, at the addresses that the log, the command line and other nodes give.

        Without a leader also whom only other nodes call a voter. With one this node's log knows better.
        """
        node = self._node
        if not node.is_running:
            return
        targets: dict[int, tuple[Address, ...]] = {}
        for voter in (*node.raft.configuration.voters, *node.raft.configuration.awaited):
            known = [(voter.host, voter.port), self._peers.get(voter.node_id), self._hints.get(voter.node_id)]
            addresses = tuple(dict.fromkeys(address for address in known if address is not None and address[1] > 0))
            if voter.node_id != node.node_id and addresses:
                targets[voter.node_id] = addresses
        for node_id, address in sorted(self._hints.items()) if node.leader_id == NO_NODE else ():
            if node_id not in targets and address[1] > 0:
                targets[node_id] = (address,)
        self.transport.call(targets)

    def _announce(self, node_id: NodeId, connected: bool) -> None:
        for listener in self.listeners:
            listener(node_id, connected)

    def announce_all(self) -> None:
        """Tell the listeners of every node anew."""
        raft = self._node.raft
        for node_id in sorted({*raft.configuration.ids, *raft.peers} - {raft.node_id}):
            self._announce(node_id, node_id in raft.peers)
