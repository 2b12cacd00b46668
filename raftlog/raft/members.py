"""Members of a running quorum as people see and change them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from raftlog.raft.core.configuration import Voter
from raftlog.raft.core.ids import NO_NODE, NodeId
from raftlog.raft.core.leadership import Leadership
from raftlog.raft.core.progress import NEVER
from raftlog.raft.handshake import HOST_LENGTH_MAX, is_address
from raftlog.raft.node import RaftNode
from raftlog.raft.seam import NotLeader, ProposalFailed, QuorumMember, QuorumStatus
from raftlog.raft.transport import Address, PeerTransport

logger = logging.getLogger("raftlog.raft")

FIRST_WARNING_SECONDS = 3.0
WARNING_SECONDS = 30.0
TRANSFER_TIMEOUTS = 3


class Members:
    """Status, and changes of the members and of the leader."""

    def __init__(self, node: RaftNode, transport: PeerTransport, peers: Mapping[int, Address]) -> None:
        """`peers`: the voters as the command line names them."""
        self._node = node
        self._transport = transport
        self._peers = peers
        self._promotions: dict[int, asyncio.Future[int]] = {}
        self._transferred: asyncio.Future[int] | None = None
        self._next_warning = FIRST_WARNING_SECONDS

    def close(self) -> None:
        """Nobody waits any more."""
        self._fail_promotions()
        waiting, self._transferred = self._transferred, None
        if waiting is not None:
            _fail(waiting, "this node stops", outcome_unknown=True)

    def _fail_promotions(self) -> None:
        promotions, self._promotions = self._promotions, {}
        for waiting in promotions.values():
            _fail(waiting, "leadership was lost meanwhile", outcome_unknown=True)

    def warn_without_leader(self) -> None:
        """Say whom a quorum that has no leader is waiting for."""
        now = self._node.now()
        if self._node.raft.leader_id >= 0:
            self._next_warning = now + FIRST_WARNING_SECONDS
        elif now >= self._next_warning:
            self._next_warning = now + WARNING_SECONDS
            logger.warning("no leader of the metadata quorum; %s", self._what_is_missing())

    @property
    def _vote_is_elsewhere(self) -> bool:
        """Whether this node's id votes with another directory: the disk was exchanged or wiped."""
        raft = self._node.raft
        return not raft.is_voter and raft.configuration.voter(raft.node_id) is not None

    def warn_of_role(self) -> None:
        """Say what this node is in the quorum, where that is not what its command line says."""
        raft = self._node.raft
        if self._vote_is_elsewhere:
            what = "the vote of node %d belongs to another metadata directory than %s: it follows as an observer"
            logger.warning(what, raft.node_id, self._node.journal.directory)
        elif not raft.is_voter:
            logger.info("node %d has no vote in the metadata quorum: it follows as an observer", raft.node_id)
        named, known = sorted(self._peers), sorted(raft.configuration.ids)
        if raft.log.configuration_index > 0 and named != known:
            what = "--peers names %s, and the voters in the metadata log are %s: the log counts, correct --peers"
            logger.warning(what, named, known)

    def _what_is_missing(self) -> str:
        raft = self._node.raft
        voters = raft.configuration.voters
        missing = [voter.node_id for voter in voters if voter.node_id not in {*raft.peers, raft.node_id}]
        reasons = [f"{node_id}: {why}" for node_id in missing if (why := self._transport.why_not(node_id))]
        what = "all voters are connected."
        if missing:
            what = f"voters that are not connected: {missing}{' (' + '; '.join(reasons) + ')' if reasons else ''}."
        if self._vote_is_elsewhere:
            what += " The vote of this node belongs to another metadata directory: bring that one back."
        if raft.log.configuration_index == 0 and raft.is_voter:
            what += " This directory has no metadata. A new quorum begins when all its voters are there, all without"
            what += " any; one that has some says what it waits for."
        swapped = [
            voter.node_id
            for voter in voters
            if voter.directory and voter.node_id in raft.peers
            if raft.peers[voter.node_id].directory != voter.directory
        ]
        if swapped:
            what += f" Voters whose metadata directory is not the one that has the vote: {swapped}; bring it back,"
            what += " or start as many others as make a majority."
        return what

    # -- status ------------------------------------------------------------------------------------

    def status(self) -> QuorumStatus:
        """See MetadataLog."""
        node = self._node
        if not node.is_started:
            return QuorumStatus(node.node_id, NO_NODE, node.term, 0, node.last_index, (), ())
        raft, now = node.raft, node.now()
        configuration = raft.configuration
        voters = tuple(self._member(voter, now) for voter in configuration.voters)
        observers = []
        for node_id in sorted({*raft.peers} - {*configuration.ids}):
            peer = raft.peers[node_id]
            observers.append(self._member(Voter(node_id, peer.directory, peer.host, peer.port), now))
        return QuorumStatus(
            node_id=node.node_id,
            leader_id=node.leader_id,
            term=node.term,
            committed_index=node.committed_index,
            last_index=node.last_index,
            voters=voters,
            observers=tuple(observers),
            is_writable=raft.can_lead,
        )

    def _member(self, voter: Voter, now: float) -> QuorumMember:
        raft = self._node.raft
        if voter.node_id == self._node.node_id:
            own = raft.log.application_index(max(raft.stable, raft.log.base.index))
            return QuorumMember(voter.node_id, voter.host, voter.port, own, True, 0.0, 0.0)
        connected = voter.node_id in raft.peers
        leadership = raft.leadership
        progress = leadership.progress.get(voter.node_id) if leadership is not None else None
        silent = self._transport.silent_for(voter.node_id)
        if leadership is None or progress is None:
            return QuorumMember(voter.node_id, voter.host, voter.port, -1, connected, silent, -1.0)
        promotion = leadership.promotion
        match = raft.log.application_index(progress.match) if progress.match >= raft.log.base.index else -1
        caught_up = now - progress.caught_up_at if progress.caught_up_at > NEVER else -1.0
        catching_up = promotion is not None and promotion.node_id == voter.node_id
        return QuorumMember(voter.node_id, voter.host, voter.port, match, connected, silent, caught_up, catching_up)

    # -- changes -----------------------------------------------------------------------------------

    async def add(self, node_id: NodeId, host: str, port: int) -> None:
        """See MetadataLog.add_voter."""
        leadership, raft = self._leadership(), self._node.raft
        if not is_address(host, port):
            # All nodes would name it in their greetings, and refuse each other's.
            raise _refused(f"{host[:20]}...:{port} is no address: a host has at most {HOST_LENGTH_MAX} characters")
        if raft.configuration.voter(node_id) is not None:
            raise _refused(f"node {node_id} has a vote already")
        if leadership.promotion is not None:
            raise _refused(f"node {leadership.promotion.node_id} is being made a voter")
        self._refuse_second_change(leadership)
        leadership.promote(node_id, (host, port), self._node.now())
        done = self._promotions[node_id] = asyncio.get_running_loop().create_future()
        await self._until(done)

    async def remove(self, node_id: NodeId) -> None:
        """See MetadataLog.remove_voter."""
        leadership, configuration = self._leadership(), self._node.raft.configuration
        # Who is awaited would get its vote back whenever it comes.
        if all(voter.node_id != node_id for voter in (*configuration.voters, *configuration.awaited)):
            raise _refused(f"node {node_id} has no vote")
        if configuration.ids == (node_id,):
            raise _refused("it is the last voter")
        self._refuse_second_change(leadership)
        others = configuration.without(node_id)
        if not leadership.may_commit_as(others, self._node.now()):
            what = f"without node {node_id} too few of the voters {list(others.ids)} are there to go on"
            raise _refused(f"{what}: start those that are missing, or remove one of them first")
        leadership.give_up_promotion(node_id)
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._node.sync.on_committed(leadership.append_configuration(others), done)
        await self._until(done)

    async def transfer(self, to: NodeId | None) -> int:
        """See MetadataLog.transfer_leadership."""
        leadership, raft = self._leadership(), self._node.raft
        if to == self._node.node_id:
            return to
        successor = to if to is not None else leadership.best_successor()
        voter = raft.configuration.voter(successor) if successor is not None else None
        if voter is None or not leadership.counts(voter):
            raise _refused("no voter is connected that could lead")
        if leadership.transfer is not None:
            raise _refused("leadership is being handed over already")
        leadership.hand_over(voter.node_id, raft.committed, self._node.now())
        done = self._transferred = asyncio.get_running_loop().create_future()
        # The successor may die on the way, and then there may be no leader to tell of for a long time.
        timeout = TRANSFER_TIMEOUTS * raft.timing.election_max
        lost = "leadership was given up and no leader is known"
        asyncio.get_running_loop().call_later(timeout, _fail, done, lost, True)
        return await self._until(done)

    def _leadership(self) -> Leadership:
        node = self._node
        if not node.is_leader or node.raft.leadership is None:
            raise NotLeader(node.leader_id)
        return node.raft.leadership

    def _refuse_second_change(self, leadership: Leadership) -> None:
        refusal = leadership.may_change(self._node.raft.committed)
        if refusal:
            raise _refused(refusal)

    async def _until(self, done: asyncio.Future[int]) -> int:
        self._node.wake()
        return await done

    def leader_changed(self) -> None:
        """The leader or the term is another."""
        self._fail_promotions()
        waiting = self._transferred
        if waiting is not None and not waiting.done() and self._node.leader_id not in (NO_NODE, self._node.node_id):
            waiting.set_result(self._node.leader_id)

    def turn_ended(self) -> None:
        """Tell who waits for a promotion or a transfer that it has come to an end."""
        leadership = self._node.raft.leadership
        if leadership is None:
            return
        outcomes, leadership.outcomes = leadership.outcomes, []
        for outcome in outcomes:
            waiting = self._promotions.pop(outcome.node_id, None)
            if waiting is None:
                continue  # one that the leader has begun by itself
            if outcome.error:
                _fail(waiting, outcome.error)
            else:
                self._node.sync.on_committed(outcome.index, waiting)
        transfer = leadership.transfer
        if transfer is not None and transfer.reason:
            what = "node %d hands the leadership of the metadata quorum to node %d: %s"
            logger.warning(what, self._node.node_id, transfer.to, transfer.reason)
            transfer.reason = ""
        if self._transferred is not None and transfer is None:
            _fail(self._transferred, "nobody took over in time; this node leads on")


def _refused(why: str) -> ProposalFailed:
    return ProposalFailed(why, outcome_unknown=False)


def _fail(waiting: asyncio.Future[int], why: str, outcome_unknown: bool = False) -> None:
    if not waiting.done():
        waiting.set_exception(ProposalFailed(why, outcome_unknown=outcome_unknown))
