"""Members of a running quorum as people see and change them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from raftlog.raft.core.configuration import Voter
from raftlog.raft.core.progress import NEVER
from raftlog.raft.seam import NotLeader, ProposalFailed, QuorumMember, QuorumStatus

if TYPE_CHECKING:
    from raftlog.raft.quorum import QuorumLog


logger = logging.getLogger("raftlog.raft")

FIRST_COMPLAINT_SECONDS = 3.0
COMPLAINT_SECONDS = 30.0
HAND_OVER_TIME_OUTS = 3


class Members:
    """Status, and changes of the members and of the leader."""

    def __init__(self, quorum: QuorumLog) -> None:
        self._quorum = quorum
        self._handed_over: asyncio.Future[int] | None = None
        self._next_complaint = FIRST_COMPLAINT_SECONDS

    def close(self) -> None:
        """Nobody waits any more."""
        waiting, self._handed_over = self._handed_over, None
        if waiting is not None and not waiting.done():
            waiting.set_exception(ProposalFailed("this node stops", outcome_unknown=True))

    def warn_without_leader(self, now: float) -> None:
        """Say whom a quorum that has no leader is waiting for."""
        if self._quorum.raft.leader_id >= 0:
            self._next_complaint = now + FIRST_COMPLAINT_SECONDS
        elif now >= self._next_complaint:
            self._next_complaint = now + COMPLAINT_SECONDS
            logger.warning("no leader of the metadata quorum; %s", self._what_is_missing())

    @property
    def _vote_is_elsewhere(self) -> bool:
        """Whether this node's id votes with another directory: the disk was exchanged or wiped."""
        raft = self._quorum.raft
        return not raft.is_voter and raft.configuration.voter(raft.node_id) is not None

    def warn_of_role(self) -> None:
        """Say what this node is in the quorum, where that is not what its command line says."""
        quorum, raft = self._quorum, self._quorum.raft
        if self._vote_is_elsewhere:
            what = "the vote of node %d belongs to another metadata directory than %s: it follows as an observer"
            logger.warning(what, raft.node_id, quorum.opened.journal.directory)
        elif not raft.is_voter:
            logger.info("node %d has no vote in the metadata quorum: it follows as an observer", raft.node_id)
        named, known = sorted(quorum.peers), sorted(raft.configuration.ids)
        if raft.log.configuration_index > 0 and named != known:
            what = "--peers names %s, and the voters in the metadata log are %s: the log counts, correct --peers"
            logger.warning(what, named, known)

    def _what_is_missing(self) -> str:
        raft = self._quorum.raft
        voters = raft.configuration.voters
        missing = [voter.node_id for voter in voters if voter.node_id not in {*raft.peers, raft.node_id}]
        transport = self._quorum.peering.transport
        reasons = [f"{node_id}: {why}" for node_id in missing if (why := transport.why_not(node_id))]
        what = "all voters are connected."
        if missing:
            what = f"voters that are not connected: {missing}{' (' + '; '.join(reasons) + ')' if reasons else ''}."
        if self._vote_is_elsewhere:
            what += " The vote of this node belongs to another metadata directory: bring that one back."
        if raft.log.configuration_index == 0 and raft.is_voter:
            what += " A new quorum begins when all its voters are there."
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

    def status(self, now: float) -> QuorumStatus:
        """See MetadataLog."""
        quorum = self._quorum
        raft = quorum.raft
        configuration = raft.configuration
        voters = tuple(self._member(voter, now) for voter in configuration.voters)
        observers = []
        for node_id in sorted({*raft.peers} - {*configuration.ids}):
            peer = raft.peers[node_id]
            observers.append(self._member(Voter(node_id, peer.directory, peer.host, peer.port), now))
        return QuorumStatus(
            quorum.node_id, quorum.leader_id, quorum.term, quorum.committed_index, quorum.last_index, voters,
            tuple(observers),
        )  # fmt: skip

    def _member(self, voter: Voter, now: float) -> QuorumMember:
        raft = self._quorum.raft
        if voter.node_id == self._quorum.node_id:
            own = raft.log.application_index(max(raft.stable, raft.log.base.index))
            return QuorumMember(voter.node_id, voter.host, voter.port, own, True, 0.0, 0.0)
        connected = voter.node_id in raft.peers
        leadership = raft.leadership
        progress = leadership.progress.get(voter.node_id) if leadership is not None else None
        silent = self._quorum.peering.transport.silent_for(voter.node_id)
        if leadership is None or progress is None:
            return QuorumMember(voter.node_id, voter.host, voter.port, -1, connected, silent, -1.0)
        promotion = leadership.promotion
        match = raft.log.application_index(progress.match) if progress.match >= raft.log.base.index else -1
        caught_up = now - progress.caught_up_at if progress.caught_up_at > NEVER else -1.0
        catching_up = promotion is not None and promotion.node_id == voter.node_id
        return QuorumMember(voter.node_id, voter.host, voter.port, match, connected, silent, caught_up, catching_up)

    # -- changes -----------------------------------------------------------------------------------

    async def add(self, node_id: int, host: str, port: int) -> None:
        """See MetadataLog.add_voter."""
        self._refuse_unless_leader()
        if self._quorum.raft.configuration.voter(node_id) is not None:
            raise ProposalFailed(f"node {node_id} has a vote already", outcome_unknown=False)
        await self._change(lambda settle: self._quorum.sync.addNodeToCluster(_node(node_id, host, port), settle))

    async def remove(self, node_id: int) -> None:
        """See MetadataLog.remove_voter."""
        self._refuse_unless_leader()
        if self._quorum.raft.configuration.voter(node_id) is None:
            raise ProposalFailed(f"node {node_id} has no vote", outcome_unknown=False)
        await self._change(lambda settle: self._quorum.sync.removeNodeFromCluster(_node(node_id), settle))

    def _refuse_unless_leader(self) -> None:
        if not self._quorum.is_leader:
            raise NotLeader(self._quorum.leader_id)

    async def _change(self, begin: Callable[[Callable[[Any, int], None]], None]) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        begin(self._settle(done))
        self._quorum.wake()
        await done

    def _settle(self, done: asyncio.Future[None]) -> Callable[[Any, int], None]:
        from raftlog.raft import hardened

        def settle(result: Any, reason: int) -> None:
            if done.done():
                return
            if reason == hardened.SUCCESS:
                done.set_result(None)
            elif reason == hardened.NOT_LEADER:
                done.set_exception(NotLeader(self._quorum.leader_id))
            elif reason == hardened.REQUEST_DENIED:
                done.set_exception(ProposalFailed(str(result), outcome_unknown=False))
            else:
                done.set_exception(ProposalFailed("leadership was lost meanwhile", outcome_unknown=True))

        return settle

    def transfer(self, to: int | None) -> Awaitable[int]:
        """See MetadataLog.transfer_leadership."""
        self._refuse_unless_leader()
        from raftlog.raft import hardened

        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def begun(result: Any, reason: int) -> None:
            if reason == hardened.NOT_LEADER:
                done.set_exception(NotLeader(self._quorum.leader_id))
            elif reason != hardened.SUCCESS:
                done.set_exception(ProposalFailed(str(result), outcome_unknown=False))

        if to == self._quorum.node_id:
            done.set_result(to)
            return done
        self._quorum.sync.transferLeadership(None if to is None else _node(to), begun)
        if not done.done():
            self._handed_over = done
            # The successor may die on the way, and then there may be no leader to tell of for a long time.
            patience = HAND_OVER_TIME_OUTS * self._quorum.raft.timing.election_max
            asyncio.get_running_loop().call_later(patience, _give_up, done)
            self._quorum.wake()
        return done

    def changed(self) -> None:
        """The leader or the term is another."""
        waiting = self._handed_over
        if waiting is None or waiting.done():
            return
        if self._quorum.leader_id not in (-1, self._quorum.node_id):
            waiting.set_result(self._quorum.leader_id)

    def after_replay(self) -> None:
        """Tell who waits for a hand-over that has come to nothing."""
        waiting, leadership = self._handed_over, self._quorum.raft.leadership
        if waiting is None or waiting.done() or leadership is None or leadership.transfer is not None:
            return
        waiting.set_exception(ProposalFailed("nobody took over in time; this node leads on", outcome_unknown=False))


def _give_up(handed_over: asyncio.Future[int]) -> None:
    if not handed_over.done():
        lost = "leadership was given up and no leader is known"
        handed_over.set_exception(ProposalFailed(lost, outcome_unknown=True))


def _node(node_id: int, host: str = "", port: int = 0) -> Any:
    from pysyncobj.node import Node

    return Node(str(node_id), host=host, port=port)
