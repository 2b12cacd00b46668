"""How a node of a quorum meets the others: what it says of itself, whom it calls, and where frames go."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from raftlog.raft.channel import Kind
from raftlog.raft.core.errors import PeerViolation, RaftViolation
from raftlog.raft.core.leadership import Peer
from raftlog.raft.core.messages import from_wire
from raftlog.raft.core.state import Role
from raftlog.raft.handshake import PROTOCOL_VERSION, Hello
from raftlog.raft.seam import PeerListener
from raftlog.raft.transport import Address, PeerTransport

if TYPE_CHECKING:
    from raftlog.raft.quorum import QuorumLog

logger = logging.getLogger("raftlog.raft")

HINTS_MAX = 100
"""Addresses of voters that other nodes have told of."""


class Peering:
    """See TransportEvents."""

    def __init__(self, quorum: QuorumLog, now: Callable[[], float], rng: random.Random) -> None:
        self._quorum = quorum
        self._now = now
        self._hints: dict[int, Address] = {}
        self.listeners: list[PeerListener] = []
        self.transport = PeerTransport(self, rng, now)

    # -- what the transport asks and tells -----------------------------------------------------------

    def own_hello(self, to: int) -> Hello:
        """See TransportEvents."""
        quorum = self._quorum
        raft = quorum.raft
        # Who lost its disk is awaited, and must be let in again though it knows no more than its command line.
        members = sorted([*raft.configuration.voters, *raft.configuration.awaited])
        voters = tuple((voter.node_id, voter.host, voter.port) for voter in members)
        directories = tuple(voter.directory for voter in members)
        from_log = raft.log.configuration_index > 0
        return Hello(
            PROTOCOL_VERSION, to, quorum.cluster_id, quorum.node_id, quorum.opened.directory, quorum.incarnation,
            *quorum.advertised, quorum.observer and not raft.is_voter, from_log, voters, directories,
        )  # fmt: skip

    def peer_connected(self, node_id: int, hello: Hello) -> None:
        """See TransportEvents."""
        quorum = self._quorum
        if len(self._hints) < HINTS_MAX:
            self._hints.update({voter: (host, port) for voter, host, port in hello.voters if voter != quorum.node_id})
        quorum.raft.connected(node_id, Peer(hello.directory, hello.host, hello.port), self._now())
        quorum.sync.port.connected(node_id, votes=quorum.raft.configuration.voter(node_id) is not None)
        self.connect_to_voters()
        self._changed(node_id, True)

    def peer_lost(self, node_id: int) -> None:
        """See TransportEvents."""
        quorum = self._quorum
        quorum.raft.disconnected(node_id, self._now())
        quorum.sync.port.lost(node_id)
        quorum.requests.peer_lost(node_id)
        self._changed(node_id, False)

    def _changed(self, node_id: int, connected: bool) -> None:
        if not self._quorum.takes_part:
            return
        self._announce(node_id, connected)
        self._quorum.requests.changed()
        self._quorum.rearm_timer()
        self._quorum.wake()

    def peer_frame(self, node_id: int, kind: int, values: Sequence[Any]) -> None:
        """See TransportEvents."""
        quorum = self._quorum
        if not quorum.takes_part:
            return
        if kind == Kind.RAFT:
            try:
                quorum.sync.port.receive(node_id, from_wire(values))
            except RaftViolation as error:
                quorum.fail(error)
                return
            if quorum.raft.role in (Role.PRE_CANDIDATE, Role.CANDIDATE):
                quorum.rearm_timer()
            quorum.wake()
        elif kind == Kind.REQUEST:
            quorum.requests.on_request(node_id, values)
        elif kind == Kind.ANSWER:
            quorum.requests.on_answer(node_id, values)
        else:
            raise PeerViolation(f"a frame of an unknown kind ({kind})")

    # -- whom to call, whom to tell ------------------------------------------------------------------

    def connect_to_voters(self) -> None:
        """Call all voters, at the addresses that the log, the command line and other nodes give."""
        quorum = self._quorum
        if not quorum.takes_part:
            return
        targets: dict[int, tuple[Address, ...]] = {}
        for voter in quorum.raft.configuration.voters:
            known = [(voter.host, voter.port), quorum.peers.get(voter.node_id), self._hints.get(voter.node_id)]
            addresses = tuple(dict.fromkeys(address for address in known if address is not None and address[1] > 0))
            if voter.node_id != quorum.node_id and addresses:
                targets[voter.node_id] = addresses
        for node_id, address in sorted(self._hints.items()):
            if node_id not in targets and address[1] > 0:
                targets[node_id] = (address,)
        self.transport.call(targets)

    def _announce(self, node_id: int, connected: bool) -> None:
        for listener in self.listeners:
            listener(node_id, connected)

    def announce_all(self) -> None:
        """Tell of every node anew."""
        raft = self._quorum.raft
        for node_id in sorted({*raft.configuration.ids, *raft.peers} - {raft.node_id}):
            self._announce(node_id, node_id in raft.peers)
