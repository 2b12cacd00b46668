"""One node of a Raft quorum as a pure machine: messages and the time in; messages, disk writes and a commit index out.

Raft as in Ongaro's thesis: terms, elections with pre-vote (§9.6), following, and what must be on the disk before what
may be said. The leader's part is in `leadership`.

How it is driven: any number of events, then `take_messages` (to be sent at once), then `take_writes` (to be written and
synced; its `messages_after_sync` leave only after that, and `written` is called). Entries up to `appliable` may be
replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set

from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.election_timer import ElectionTimer
from raftlog.raft.core.entries import NEW_TERM_DATA, Entry, configuration_data
from raftlog.raft.core.errors import PeerViolation, RaftViolation
from raftlog.raft.core.ids import NO_NODE, NO_TERM, NodeId, Term
from raftlog.raft.core.leadership import Leadership, LocalNode, Peer
from raftlog.raft.core.log import RaftLog, Rejected
from raftlog.raft.core.messages import (
    NO_REPLY,
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
)
from raftlog.raft.core.progress import NEVER
from raftlog.raft.core.snapshot import IncomingSnapshot, SnapshotContent
from raftlog.raft.core.state import FOREVER, HardState, Role, Timing, Writes


class Raft:
    """See the module.

    Invariants: `term`, `committed` and the log's committed part never go back; at most one vote a term; what is said
    about the own log or vote is on the disk when it leaves (`Writes.messages_after_sync`).
    """

    def __init__(
        self,
        own: LocalNode,
        log: RaftLog,
        hard_state: HardState,
        timing: Timing,
        rng: Callable[[], float],
        *,
        now: float,
    ) -> None:
        """`rng`: random numbers in [0, 1). The log and the hard state are those on the disk."""
        self.own = own
        self.node_id = own.node_id
        self.log = log
        self.timing = timing
        self.term, self.voted_for = hard_state
        self.role = Role.FOLLOWER
        self.leader_id = NO_NODE
        self.leadership: Leadership | None = None
        self.committed = log.base.index
        self.stable = log.last_index
        self.peers: dict[NodeId, Peer] = {}
        self.can_lead = True
        """Whether this node may lead: false while its disk fails."""
        self.installed: SnapshotContent | None = None
        """A snapshot from the leader that is on the disk and is to be restored; the caller sets it to None."""
        self._messages: list[tuple[NodeId, Message]] = []
        self._writes = Writes()
        self._last_submitted = log.last_index
        self._votes: dict[NodeId, bytes] = {}  # who gave it -> the directory that it is remembered in
        self._leader_lost = False
        self._last_contact = NEVER
        self._leader_of_term = NO_NODE
        self._installing = False
        self._heartbeat_at = FOREVER
        self._incoming: IncomingSnapshot | None = None
        self._checked = (self.term, self.voted_for, self.committed)
        self._election = ElectionTimer(timing, rng, now)
        if self._is_elected_by({self.node_id}):
            self._election.hasten(now)  # nobody else can lead

    # -- what others see -----------------------------------------------------------------------------

    @property
    def configuration(self) -> Configuration:
        """The members in force."""
        return self.log.configuration

    @property
    def appliable(self) -> int:
        """Entries up to here may be replayed: committed, and on this node's disk. 0 while a snapshot replaces them."""
        return 0 if self._installing else min(self.committed, self.stable)

    @property
    def deadline(self) -> float:
        """When `tick` has something to do, if nothing happens before."""
        return self._heartbeat_at if self.role is Role.LEADER else self._election.due

    @property
    def is_voter(self) -> bool:
        """Whether this node, with the disk that it has, is among the voters."""
        voter = self.configuration.voter(self.node_id)
        return voter is not None and voter.directory in (b"", self.own.peer.directory)

    def check_invariants(self) -> None:
        """Raises RaftViolation when an invariant does not hold (Raft, figures 2 and 3, as far as one node sees them).

        Looks at the state as it is and as it was at the last call.
        """
        log, state = self.log, (self.term, self.voted_for, self.committed)
        term, voted_for, committed = self._checked
        self._checked = state
        if self.term < term or self.committed < committed:
            raise RaftViolation(f"(term, vote, commit) went back from {(term, voted_for, committed)} to {state}")
        if self.term == term and voted_for not in (NO_NODE, self.voted_for):
            raise RaftViolation(f"votes for {voted_for} and {self.voted_for} in term {term}")
        if not log.base.index <= self.committed <= log.last_index or self.term < log.last_term:
            raise RaftViolation(f"{state} with a log from {log.base[:2]} to {(log.last_index, log.last_term)}")
        if not self.stable <= self._last_submitted <= log.last_index:
            raise RaftViolation(f"synced {self.stable}, submitted {self._last_submitted}, in memory {log.last_index}")
        self._check_role()

    def _check_role(self) -> None:
        leads, role = self.leadership is not None, self.role
        if leads != (role is Role.LEADER) or leads != (self.leader_id == self.node_id):
            raise RaftViolation(f"a {role.value} that follows {self.leader_id}")
        if role in (Role.CANDIDATE, Role.LEADER) and self.voted_for != self.node_id:
            raise RaftViolation(f"a {role.value} that votes for {self.voted_for}")
        if self.leadership is not None:
            self.leadership.check_invariants(self.committed)

    # -- connections ---------------------------------------------------------------------------------

    def connected(self, node_id: NodeId, peer: Peer, now: float) -> None:
        """A node's connection was made."""
        self.peers[node_id] = peer
        if self.leadership is not None:
            self.leadership.connected(node_id, now)
        elif self.leader_id == NO_NODE and self._is_elected_by({*self.peers, self.node_id}):
            # Nobody is known to lead, and enough are here: no reason to wait for long.
            self._election.hasten(now)

    def disconnected(self, node_id: NodeId, now: float) -> None:
        """A node's connection was lost."""
        self.peers.pop(node_id, None)
        if self.leadership is not None:
            self.leadership.disconnected(node_id)
        elif self.leader_id == node_id:
            self._leader_lost = True
            self._election.hasten(now)

    # -- time ----------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Do what is due."""
        leadership = self.leadership
        if leadership is None:
            if now >= self._election.due:
                self._become_pre_candidate(now)
            return
        if not leadership.has_quorum(now):
            self._become_follower(self.term, NO_NODE, now)
            return
        if leadership.transfer is not None and now > leadership.transfer.deadline:
            leadership.transfer = None
        if now >= self._heartbeat_at:
            self._heartbeat_at = now + self.timing.heartbeat
            leadership.heartbeat(self.committed, now)
        leadership.maintain(self.committed, now)

    # -- elections -----------------------------------------------------------------------------------

    def _become_pre_candidate(self, now: float) -> None:
        """Ask whether anybody would vote for this node."""
        if not self.is_voter or not self.can_lead:
            self._election.postpone(now)
            return
        self._election.retry(now)
        self.role, self.leader_id = Role.PRE_CANDIDATE, NO_NODE
        self._votes = {self.node_id: self.own.peer.directory}
        self._ask_for_votes(Term(self.term + 1), pre=True)
        self._count_votes(now)

    def _ask_for_votes(self, term: Term, *, pre: bool) -> None:
        request = RequestVote(term, pre, self.log.last_index, self.log.last_term)
        target = self._messages if pre else self._writes.messages_after_sync
        for voter in self.configuration.voters:
            if voter.node_id != self.node_id:
                target.append((voter.node_id, request))

    def _become_candidate(self, now: float) -> None:
        """Stand for election in the next term."""
        self.role, self.leader_id = Role.CANDIDATE, NO_NODE
        self._leader_lost = False
        self._set_hard_state(HardState(Term(self.term + 1), self.node_id))
        self._election.retry(now)
        self._votes = {}  # the own vote counts when it is on the disk
        self._ask_for_votes(self.term, pre=False)

    def _count_votes(self, now: float) -> None:
        if not self._is_elected_by(self._votes.keys()):
            return
        if self.role is Role.PRE_CANDIDATE:
            self._become_candidate(now)
        elif self.role is Role.CANDIDATE:
            self._become_leader(now)

    def _is_elected_by(self, votes: Set[NodeId]) -> bool:
        """Whether these votes make a leader: a majority; but for the first leader of all, everybody.

        Two nodes with empty disks are a majority of three, and cannot know that the third has what they had (or one of
        them would have had, had it been there in time) before their disks were lost. So an empty log is only begun
        with the consent of all, and then every voter's directory is in the first entry.
        """
        if self.log.configuration_index == 0:
            return bool(self.configuration.voters) and votes >= set(self.configuration.ids)
        return self.configuration.is_majority(votes)

    def _may_vote_for(self, voter_id: NodeId) -> bool:
        """Whether a vote of that node counts: not when its disk is not the one that has the vote."""
        voter, peer = self.configuration.voter(voter_id), self.peers.get(voter_id)
        return voter is not None and peer is not None and voter.directory in (b"", peer.directory)

    def _on_request_vote(self, sender: NodeId, request: RequestVote, now: float) -> None:
        up_to_date = (request.last_term, request.last_index) >= (self.log.last_term, self.log.last_index)
        if request.pre:
            granted = request.term > self.term and up_to_date and self._is_leaderless(now)
            self._messages.append((sender, RequestVoteReply(self.term, request.term, True, granted)))
            return
        granted = request.term == self.term and up_to_date and self.voted_for in (NO_NODE, sender)
        if granted and self.voted_for != sender:
            self._set_hard_state(HardState(self.term, sender))
            self.role = Role.FOLLOWER  # and no longer one that asks for the next term
            self._election.restart(now)
        self._writes.messages_after_sync.append((sender, RequestVoteReply(self.term, request.term, False, granted)))

    def _is_leaderless(self, now: float) -> bool:
        if self.role is Role.LEADER:
            return False
        return self.leader_id == NO_NODE or self._leader_lost or now - self._last_contact >= self.timing.election_min

    def _on_request_vote_reply(self, sender: NodeId, reply: RequestVoteReply, now: float) -> None:
        expected = {Role.PRE_CANDIDATE: (True, self.term + 1), Role.CANDIDATE: (False, self.term)}.get(self.role)
        if reply.granted and (reply.pre, reply.for_term) == expected and self._may_vote_for(sender):
            self._votes[sender] = self.peers[sender].directory
            self._count_votes(now)

    def _on_timeout_now(self, sender: NodeId, now: float) -> None:
        if sender == self.leader_id and self.is_voter and self.can_lead:
            self._election.attempts = 0
            self._become_candidate(now)

    # -- changing roles --------------------------------------------------------------------------------

    def _set_hard_state(self, state: HardState) -> None:
        if state.term < self.term:
            raise RaftViolation(f"the term would go back from {self.term} to {state.term}")
        if state.term > self.term:
            self._incoming = None
            self._leader_of_term = NO_NODE
        self.term, self.voted_for = state
        self._writes.hard_state = state

    def _become_follower(self, term: Term, leader_id: NodeId, now: float) -> None:
        """Be a follower in a term, of a leader if one is known."""
        if term > self.term:
            self._set_hard_state(HardState(term, NO_NODE))
        led = self.role is Role.LEADER
        self.role, self.leader_id = Role.FOLLOWER, leader_id
        self.leadership = None
        self._heartbeat_at = FOREVER
        if leader_id != NO_NODE:
            self._last_contact = now
            self._leader_lost = False
            self._election.attempts = 0
            self._election.restart(now)
        elif led:
            self._election.restart(now)

    def _become_leader(self, now: float) -> None:
        self.role, self.leader_id, self._leader_of_term = Role.LEADER, self.node_id, self.node_id
        self._election.attempts = 0
        leadership = Leadership(self.own, self.term, self.log, self.timing.election_min, now)
        leadership.peers = self.peers
        leadership.stable = self.stable
        self.leadership = leadership
        for node_id in sorted(self.peers):
            leadership.connected(node_id, now)
        self._heartbeat_at = now + self.timing.heartbeat
        data = NEW_TERM_DATA
        if self.log.configuration_index == 0:
            data = configuration_data(self._first_configuration().encode())
        self.log.append([Entry(self.log.last_index + 1, self.term, data)])

    def _first_configuration(self) -> Configuration:
        """That of the command line, with the directories that all voters remember their votes in.

        To learn one later would be a change of the members: who has not heard of it would count any disk of that node.
        """
        configuration = self.configuration
        for voter in configuration.voters:
            configuration = configuration.with_voter(voter._replace(directory=self._votes.get(voter.node_id, b"")))
        return configuration

    def _step_down_if_removed(self, now: float) -> None:
        """Stop leading when the members that are committed do not include this node."""
        leadership = self.leadership
        if leadership is None or self.log.configuration_index > self.committed or self.is_voter:
            return
        successor = leadership.best_successor()
        if successor is not None:
            self._messages.append((successor, TimeoutNow(self.term)))
        self._become_follower(self.term, NO_NODE, now)

    def step_down(self, now: float) -> None:
        """Stop leading, for a reason of this node's own (its disk)."""
        if self.leadership is not None:
            self._become_follower(self.term, NO_NODE, now)

    # -- messages ------------------------------------------------------------------------------------

    def step(self, sender: NodeId, message: Message, now: float) -> None:
        """Take a message from a connected node. Raises PeerViolation, RaftViolation."""
        if sender not in self.peers:
            return
        if message.term > self.term and not (isinstance(message, RequestVote | RequestVoteReply) and message.pre):
            self._become_follower(message.term, NO_NODE, now)
        elif isinstance(message, RequestVoteReply) and message.term > self.term:
            self._become_follower(message.term, NO_NODE, now)  # a pre-vote was refused by somebody in a later term
        match message:
            case RequestVote():
                self._on_request_vote(sender, message, now)
            case RequestVoteReply():
                self._on_request_vote_reply(sender, message, now)
            case AppendEntries() | Heartbeat() | InstallSnapshot():
                self._on_leader(sender, message, now)
            case TimeoutNow():
                if message.term == self.term:
                    self._on_timeout_now(sender, now)
            case AppendEntriesReply() | HeartbeatReply() | InstallSnapshotReply():
                if message.term == self.term and self.leadership is not None:
                    self._on_reply(sender, message, now)

    def _on_reply(
        self, sender: NodeId, reply: AppendEntriesReply | HeartbeatReply | InstallSnapshotReply, now: float
    ) -> None:
        assert self.leadership is not None
        match reply:
            case AppendEntriesReply():
                self.leadership.on_append_entries_reply(sender, reply, self.committed, now)
                self._advance()
            case HeartbeatReply():
                self.leadership.on_heartbeat_reply(sender, reply, now)
            case InstallSnapshotReply():
                self.leadership.on_install_snapshot_reply(sender, reply, now)

    def _on_leader(self, sender: NodeId, message: AppendEntries | Heartbeat | InstallSnapshot, now: float) -> None:
        if message.term < self.term:
            # A leader of the past: it must learn that its time is over.
            self._messages.append((sender, AppendEntriesReply(self.term, message.sequence, False, 0, NO_TERM, 0)))
            return
        if self._leader_of_term not in (NO_NODE, sender):
            raise PeerViolation(f"nodes {self._leader_of_term} and {sender} both lead term {self.term}")
        self._leader_of_term = sender
        self._become_follower(self.term, sender, now)
        if isinstance(message, AppendEntries):
            self._on_append_entries(sender, message)
        elif isinstance(message, InstallSnapshot):
            self._on_install_snapshot(sender, message)
        else:
            self._commit(min(message.committed, self.log.last_index))
            if message.sequence != NO_REPLY:
                self._messages.append((sender, HeartbeatReply(self.term, message.sequence)))

    def _on_append_entries(self, sender: NodeId, message: AppendEntries) -> None:
        previous = (message.previous_index, message.previous_term)
        result = self.log.accept(previous, message.entries, self.committed)
        if isinstance(result, Rejected):
            hint = (result.hint_index, result.hint_term)
            self._messages.append(
                (sender, AppendEntriesReply(self.term, message.sequence, False, *hint, message.previous_index))
            )
            return
        if result.truncate_from:
            self._note_truncation(result.truncate_from)
        self._commit(min(message.committed, result.verified))
        reply = AppendEntriesReply(self.term, message.sequence, True, result.verified, NO_TERM, message.previous_index)
        self._writes.messages_after_sync.append((sender, reply))

    def _note_truncation(self, index: int) -> None:
        """Entries from `index` on are gone from the log; those that went to the disk must go there too."""
        if index <= self._last_submitted:
            self._writes.truncate_from = min(index, self._writes.truncate_from or index)
            self._last_submitted = index - 1
        self.stable = min(self.stable, index - 1)

    def _commit(self, index: int) -> None:
        self.committed = max(self.committed, index)

    # -- snapshots -----------------------------------------------------------------------------------

    def _on_install_snapshot(self, sender: NodeId, message: InstallSnapshot) -> None:
        if message.index <= self.committed:
            reply = AppendEntriesReply(self.term, message.sequence, True, self.committed, NO_TERM, 0)
            self._writes.messages_after_sync.append((sender, reply))
            return
        if self._incoming is None or not self._incoming.is_of(message):
            self._incoming = IncomingSnapshot(message)
        complete = self._incoming.add(message)
        self._messages.append(
            (sender, InstallSnapshotReply(self.term, message.sequence, message.index, len(self._incoming.data)))
        )
        if complete:
            data, self._incoming = bytes(self._incoming.data), None
            self._install(SnapshotContent.decode(message.index, message.index_term, data))
            reply = AppendEntriesReply(self.term, message.sequence, True, message.index, NO_TERM, 0)
            self._writes.messages_after_sync.append((sender, reply))

    def _install(self, content: SnapshotContent) -> None:
        dropped = self.log.restore(content.base)
        self.committed = content.base.index
        writes = self._writes
        stale = dropped or 0 < writes.truncate_from <= content.base.index + 1
        if stale:
            # What the disk has behind the snapshot is of another branch; what is in memory there is written again.
            writes.truncate_from = 0
            self._last_submitted = content.base.index
        writes.snapshot, writes.truncate_rest = content, writes.truncate_rest or stale
        self._last_submitted = max(min(self._last_submitted, self.log.last_index), content.base.index)
        self.stable = min(self.stable, self._last_submitted)
        self._installing = True

    # -- the disk ------------------------------------------------------------------------------------

    def take_messages(self, now: float) -> list[tuple[NodeId, Message]]:
        """(to whom, what) to be sent at once."""
        self._step_down_if_removed(now)
        messages, self._messages = self._messages, []
        if self.leadership is not None:
            self.leadership.replicate(self.committed, now)
            messages += self.leadership.messages
            self.leadership.messages = []
        return messages

    def take_writes(self) -> Writes:
        """What is to be written next. Not to be called before the last one was `written`."""
        writes, self._writes = self._writes, Writes()
        writes.term = self.term
        writes.entries = self.log.between(self._last_submitted + 1, self.log.last_index)
        if writes.truncate_from:
            writes.previous_term = self.log.term_at(writes.truncate_from - 1) or NO_TERM
        self._last_submitted = self.log.last_index
        return writes

    def written(self, writes: Writes, now: float) -> list[tuple[NodeId, Message]]:
        """`writes` are on the disk. The messages that waited for it and are still true of the term."""
        if writes.snapshot is not None:
            self.installed = writes.snapshot
            self.stable = max(self.stable, writes.snapshot.base.index)
            self._installing = self._writes.snapshot is not None
        if writes.entries and not self._writes.truncate_rest:
            # What was cut while it was being written does not count.
            valid_end = self._writes.truncate_from - 1 if self._writes.truncate_from else self._last_submitted
            self.stable = max(self.stable, min(writes.entries[-1].index, valid_end))
        state = writes.hard_state
        if self.role is Role.CANDIDATE and state == HardState(self.term, self.node_id):
            self._votes[self.node_id] = self.own.peer.directory
            self._count_votes(now)
        if self.leadership is not None:
            self.leadership.stable = self.stable
            self._advance()
        return writes.messages_after_sync if writes.term == self.term else []

    def _advance(self) -> None:
        """Move the commit index of a leader."""
        assert self.leadership is not None
        self._commit(self.leadership.committed())

    # -- what the leader is asked to do ------------------------------------------------------------------

    def propose(self, data: Sequence[bytes]) -> int:
        """Append entries; the index of the first. Only while `may_propose`."""
        first = self.log.last_index + 1
        self.log.append([Entry(index, self.term, one) for index, one in enumerate(data, first)])
        return first

    @property
    def may_propose(self) -> bool:
        """Whether this node leads and takes entries."""
        return self.leadership is not None and self.leadership.transfer is None
