"""What a leader knows and does in one term: how far the others are, what is committed, who joins and leaves.

Commitment (Raft §5.4.2: a majority, and an entry of the own term), reads confirmed by a quorum (§6.4), leader
stickiness by check-quorum (§6.2), hand-over (§3.10) and membership one server at a time (§4).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from raftlog.raft.core.configuration import Configuration, Voter
from raftlog.raft.core.entries import Entry, configuration_data
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.ids import NodeId, Term
from raftlog.raft.core.log import RaftLog
from raftlog.raft.core.messages import (
    NO_REPLY,
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    Message,
    TimeoutNow,
)
from raftlog.raft.core.progress import INSTALL_BYTES, INSTALLS_INFLIGHT_MAX, NEVER, Mode, OutgoingSnapshot, Progress

APPEND_BYTES_MAX = 1024 * 1024
"""Entries in one message, unless a single one is larger."""
PROBE_BYTES_MAX = 64 * 1024
"""Entries in a probe, which may be for nothing."""
CATCH_UP_SECONDS_MAX = 60.0
"""A node that is to get a vote must have everything by then."""
APPEAR_SECONDS_MAX = 5.0
"""And it must be connected by then."""
OWN_DISK_SECONDS_MAX = 1.0
"""A leader whose disk takes longer for what a majority has hands over: it can replay nothing meanwhile."""


class Peer(NamedTuple):
    """What a connected node said of itself: where its journal lies, and where it can be reached."""

    directory: bytes
    host: str
    port: int


class LocalNode(NamedTuple):
    """This node: its id, and what it says of itself to others."""

    node_id: NodeId
    peer: Peer


class Read(NamedTuple):
    """A read that waits: the answer is `index` when a majority has answered `sequence`."""

    token: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    sequence: int


@dataclass(slots=True)
class Promotion:
    """A node that is to get a vote when it has everything up to `target`."""

    node_id: NodeId
    host: str
    port: int
    began: float
    target: int
    round_began: float


@dataclass(slots=True)
class Transfer:
    """Leadership is being handed to a node."""

    to: NodeId
    deadline: float
    reason: str = ""
    """Why the leader does so by itself; told once."""
    timeout_now_sent: bool = False


class Outcome(NamedTuple):
    """How a promotion ended: with the configuration entry `index`, or with an error."""

    node_id: NodeId
    index: int  # type: ignore[assignment]
    error: str


class Leadership:
    """One term of one leader.

    Invariants: only acknowledgements of this term, from the directory that has the vote, move the commit index; at
    most one configuration is uncommitted.
    """

    def __init__(self, own: LocalNode, term: Term, log: RaftLog, election_timeout: float, now: float) -> None:
        self._own = own
        self._node_id = own.node_id
        self._term = term
        self._log = log
        self._election_timeout = election_timeout
        self.first_index = log.last_index + 1
        """The first entry of this term."""
        self.stable = 0
        """How far this node's own journal is."""
        self.progress: dict[NodeId, Progress] = {}
        self.peers: Mapping[NodeId, Peer] = {}
        self.messages: list[tuple[NodeId, Message]] = []
        self.outcomes: list[Outcome] = []
        self.reads: list[Read] = []
        self.promotion: Promotion | None = None
        self.transfer: Transfer | None = None
        self.snapshot_wanted = False
        self._sequence = 0
        self._began = now
        self._stable_seen = 0
        self._stable_since = now
        self._last_contact: dict[NodeId, float] = {}
        self._heartbeat_wanted = True

    def check_invariants(self, committed: int) -> None:
        """Raises RaftViolation when an invariant does not hold."""
        for progress in self.progress.values():
            progress.check_invariants(self._log.last_index, committed)
        if self._log.term_at(max(self.first_index, self._log.base.index)) != self._term:
            raise RaftViolation(f"the entry that began term {self._term} is gone from its leader's log")
        # Until an entry of its own term is committed, a leader may know less than was.
        earlier, _ = self._log.configuration_at(self._log.configuration_index - 1)
        if earlier > committed >= self.first_index:
            raise RaftViolation(f"the configurations at {earlier} and after it are both uncommitted")

    # -- who is there ------------------------------------------------------------------------------

    def connected(self, node_id: NodeId, now: float) -> None:
        """A node's connection came."""
        progress = self.progress.get(node_id)
        if progress is None:
            progress = self.progress[node_id] = Progress(self._log.last_index + 1)
        progress.stale_sequence = self._sequence
        progress.probe(progress.match + 1 if progress.match else self._log.last_index + 1)
        self._note_contact(node_id, now)
        self._heartbeat_wanted = True

    def _note_contact(self, node_id: NodeId, now: float) -> None:
        """A node was heard; with a voter that has another disk than the one with the vote nothing can be committed."""
        voter = self._log.configuration.voter(node_id)
        if voter is None or voter.directory in (b"", self.peers[node_id].directory):
            self._last_contact[node_id] = now

    def disconnected(self, node_id: NodeId) -> None:
        """A node's connection is gone. It may come back with another disk, so nothing is remembered of it."""
        self.progress.pop(node_id, None)

    def counts(self, voter: Voter) -> bool:
        """Whether what a voter acknowledges may be counted: it is this node, or there with the disk it had."""
        if voter.node_id == self._node_id:
            return True
        peer = self.peers.get(voter.node_id)
        return peer is not None and voter.directory == peer.directory and voter.node_id in self.progress

    def has_quorum(self, now: float) -> bool:
        """Whether a majority was heard of within an election time-out."""
        oldest = now - self._election_timeout
        heard = [
            voter.node_id
            for voter in self._log.configuration.voters
            if voter.node_id == self._node_id
            or self._last_contact.get(voter.node_id, NEVER) >= oldest
        ]
        return now - self._began < self._election_timeout or self._log.configuration.is_majority(heard)

    def may_commit_as(self, configuration: Configuration, now: float) -> bool:
        """Whether a majority of these voters is there to commit what makes them the voters.

        Else the change would stay in this log for ever, and those of the present members that could go on would not.
        """
        oldest = now - self._election_timeout
        here = [
            voter.node_id
            for voter in configuration.voters
            if voter.node_id == self._node_id
            or (self.counts(voter) and self._last_contact.get(voter.node_id, NEVER) >= oldest)
        ]
        return configuration.is_majority(here)

    # -- what is committed ---------------------------------------------------------------------------

    def committed(self) -> int:
        """The last index that a majority has and that is of this term, or 0."""
        configuration = self._log.configuration
        if not configuration.voters:
            return 0
        index = int(configuration.reached(self._match(voter) for voter in configuration.voters))
        return index if index >= self.first_index else 0

    def _match(self, voter: Voter) -> int:
        if not self.counts(voter):
            return 0
        return self.stable if voter.node_id == self._node_id else self.progress[voter.node_id].match

    # -- answers -----------------------------------------------------------------------------------

    def on_append_entries_reply(self, sender: NodeId, reply: AppendEntriesReply, committed: int, now: float) -> None:
        """A node has entries, or says where its log may agree."""
        progress = self._heard(sender, reply.sequence, now)
        if progress is None:
            return
        if reply.success:
            if reply.index <= self._log.last_index:
                progress.matched(reply.index)
                if progress.match >= self._log.last_index:
                    progress.caught_up_at = now
                self._after_match(sender, progress, committed, now)
        else:
            agreement, _ = self._log.agreement_before(reply.index, reply.hint_term)
            progress.rejected(reply.sequence, reply.previous_index, agreement)

    def on_heartbeat_reply(self, sender: NodeId, reply: HeartbeatReply, now: float) -> None:
        """A node follows."""
        progress = self._heard(sender, reply.sequence, now)
        if progress is not None and progress.match >= self._log.last_index:
            progress.caught_up_at = now

    def on_install_snapshot_reply(self, sender: NodeId, reply: InstallSnapshotReply, now: float) -> None:
        """A node has a part of a snapshot."""
        progress = self._heard(sender, reply.sequence, now)
        if progress is not None:
            progress.snapshot_acknowledged(reply.index, reply.offset)
            progress.probe_at = now

    def _heard(self, sender: NodeId, sequence: int, now: float) -> Progress | None:
        progress = self.progress.get(sender)
        if progress is None or not progress.stale_sequence < sequence <= progress.sent_sequence:
            return None  # an answer to nothing that was asked in this term over this connection
        self._note_contact(sender, now)
        progress.acknowledged_sequence = max(progress.acknowledged_sequence, sequence)
        return progress

    # -- sending -----------------------------------------------------------------------------------

    def _send(self, node_id: NodeId, progress: Progress, message: Message) -> None:
        progress.sent_sequence = self._sequence
        self.messages.append((node_id, message))

    def _next_sequence(self) -> int:
        self._sequence += 1
        return self._sequence

    def heartbeat(self, committed: int, now: float) -> None:
        """Say to all that this node leads; send again what was lost."""
        self._heartbeat_wanted = False
        sequence = self._next_sequence()
        for node_id, progress in sorted(self.progress.items()):
            progress.retry(now, self._election_timeout)
            self._send(node_id, progress, Heartbeat(self._term, sequence, min(committed, progress.match)))

    def replicate(self, committed: int, now: float) -> None:
        """Send each node what it lacks and may be sent."""
        if self._heartbeat_wanted:
            self.heartbeat(committed, now)
        for node_id, progress in sorted(self.progress.items()):
            if progress.mode is not Mode.SNAPSHOT and self._log.term_at(progress.next - 1) is None:
                progress.send_snapshot()
            if progress.mode is Mode.SNAPSHOT:
                self._send_snapshot(node_id, progress, now)
            elif progress.mode is Mode.PROBE:
                if not progress.probe_sequence:
                    self._send_append_entries(node_id, progress, committed, PROBE_BYTES_MAX)
                    progress.probe_sequence, progress.probe_at = self._sequence, now
            else:
                while progress.next <= self._log.last_index and progress.has_room():
                    entries = self._send_append_entries(node_id, progress, committed, APPEND_BYTES_MAX)
                    progress.sent(entries[-1].index, sum(len(entry.data) for entry in entries), now)
            known = min(committed, progress.match)
            if known > progress.sent_commit:
                # Else it would learn with the next entries, or the next heartbeat, that these may be replayed.
                progress.sent_commit = known
                self.messages.append((node_id, Heartbeat(self._term, NO_REPLY, known)))

    def _send_append_entries(self, node_id: NodeId, progress: Progress, committed: int, size: int) -> Sequence[Entry]:
        previous = progress.next - 1
        previous_term = self._log.term_at(previous)
        assert previous_term is not None  # else the node gets a snapshot
        entries = self._log.up_to_bytes(progress.next, size)
        sequence = self._next_sequence()
        message = AppendEntries(self._term, sequence, previous, previous_term, committed, tuple(entries))
        self._send(node_id, progress, message)
        progress.sent_commit = max(progress.sent_commit, min(committed, progress.match))
        return entries

    def _send_snapshot(self, node_id: NodeId, progress: Progress, now: float) -> None:
        snapshot = progress.snapshot
        if snapshot is None:
            self.snapshot_wanted = True
            return
        total = len(snapshot.data)
        while progress.sent_offset < total and (
            progress.sent_offset - progress.acknowledged_offset < INSTALLS_INFLIGHT_MAX * INSTALL_BYTES
        ):
            start = progress.sent_offset
            data = snapshot.data[start : start + INSTALL_BYTES]
            sequence = self._next_sequence()
            message = InstallSnapshot(self._term, sequence, snapshot.index, snapshot.term, total, start, data)
            self._send(node_id, progress, message)
            progress.sent_offset += len(data)
            progress.probe_at = now

    def offer_snapshot(self, snapshot: OutgoingSnapshot) -> None:
        """The snapshot that was wanted."""
        self.snapshot_wanted = False
        for progress in self.progress.values():
            if progress.mode is Mode.SNAPSHOT and progress.snapshot is None:
                progress.snapshot = snapshot

    # -- reads -------------------------------------------------------------------------------------

    def read(self, token: int, committed: int) -> None:
        """Ask a majority whether this node still leads; `confirmed_reads` has the answer."""
        self._heartbeat_wanted = True
        self.reads.append(Read(token, max(committed, self.first_index), self._sequence + 1))

    def confirmed_reads(self) -> list[tuple[int, int]]:
        """(token, index) of reads that a majority has confirmed since the last call."""
        if not self.reads:
            return []
        configuration = self._log.configuration
        if not configuration.voters:
            return []
        acked = configuration.reached(self._acknowledged(voter) for voter in configuration.voters)
        ready = [(read.token, read.index) for read in self.reads if read.sequence <= acked]
        self.reads = [read for read in self.reads if read.sequence > acked]
        return ready

    def _acknowledged(self, voter: Voter) -> float:
        if voter.node_id == self._node_id:
            return float("inf")
        progress = self.progress.get(voter.node_id)
        return progress.acknowledged_sequence if progress is not None and self.counts(voter) else 0

    # -- members -----------------------------------------------------------------------------------

    def may_change(self, committed: int) -> str:
        """Why the members cannot be changed now, or nothing."""
        if committed < self.first_index:
            return "the leader has just been elected"
        if self._log.configuration_index > committed:
            return "another change of the members is under way"
        if self.transfer is not None:
            return "leadership is being handed over"
        return ""

    def append_configuration(self, configuration: Configuration) -> int:
        """Put a configuration into the log, where it is in force at once; its index."""
        entry = Entry(self._log.last_index + 1, self._term, configuration_data(configuration.encode()))
        self._log.append([entry])
        return entry.index

    def promote(self, node_id: NodeId, address: tuple[str, int], now: float) -> None:
        """Give a node a vote as soon as it has everything; `outcomes` tells."""
        self.promotion = Promotion(node_id, *address, now, self._log.last_index, now)

    def give_up_promotion(self, node_id: NodeId) -> None:
        """A node is not to get a vote any more."""
        if self.promotion is not None and self.promotion.node_id == node_id:
            self._end_promotion(0, f"node {node_id} was removed")

    def maintain(self, committed: int, now: float) -> None:
        """Mend the membership where what nodes say of themselves differs from it; end what took too long; hand over
        when this node's own disk is what takes too long.
        """
        self._look_after_own_disk(committed, now)
        if self.promotion is not None:
            self._look_after_promotion(self.promotion, committed, now)
        if self.may_change(committed):
            return
        configuration = self._corrected_configuration(now)
        if configuration is not None:
            self.append_configuration(configuration)
            return
        if self.promotion is not None:
            return
        for voter in self._log.configuration.awaited:
            if voter.node_id in self.progress:
                self.promote(voter.node_id, (voter.host, voter.port), now)
                return

    def _look_after_promotion(self, promotion: Promotion, committed: int, now: float) -> None:
        progress = self.progress.get(promotion.node_id)
        if progress is None and now > promotion.began + APPEAR_SECONDS_MAX:
            what = "does not follow this quorum: start it with --observer and --peers naming the voters"
            self._end_promotion(0, f"node {promotion.node_id} {what}")
        elif now > promotion.began + CATCH_UP_SECONDS_MAX:
            what = f"did not catch up within {CATCH_UP_SECONDS_MAX:.0f} s"
            self._end_promotion(0, f"node {promotion.node_id} {what}")
        elif progress is not None:
            self._after_match(promotion.node_id, progress, committed, now)

    def _corrected_configuration(self, now: float) -> Configuration | None:
        """The configuration with one fault mended: a directory not known yet, a new address, a disk that is gone."""
        configuration = self._log.configuration
        for voter in configuration.voters:
            peer = self.peers.get(voter.node_id)
            if voter.node_id == self._node_id:
                peer = self._own.peer
            if peer is None:
                continue
            address = (peer.host, peer.port) if peer.port else (voter.host, voter.port)
            actual = Voter(voter.node_id, peer.directory, *address)
            if voter.directory in (b"", peer.directory):
                if actual != voter:
                    return configuration.with_voter(actual)
            elif voter.node_id != self._node_id:
                others = configuration.without(voter.node_id, awaited=actual)
                if self.may_commit_as(others, now):
                    return others
        return None

    def _after_match(self, node_id: NodeId, progress: Progress, committed: int, now: float) -> None:
        transfer = self.transfer
        has_all = progress.match >= self._log.last_index
        if transfer is not None and transfer.to == node_id and not transfer.timeout_now_sent and has_all:
            transfer.timeout_now_sent = True
            self.messages.append((node_id, TimeoutNow(self._term)))
        promotion = self.promotion
        if promotion is None or promotion.node_id != node_id or progress.match < promotion.target:
            return
        if now - promotion.round_began > self._election_timeout and not has_all:
            promotion.target, promotion.round_began = self._log.last_index, now  # another round (§4.2.1)
            return
        if self.may_change(committed):
            return  # the next `maintain` looks again
        peer = self.peers[node_id]
        voter = Voter(node_id, peer.directory, promotion.host or peer.host, promotion.port or peer.port)
        self._end_promotion(self.append_configuration(self._log.configuration.with_voter(voter)), "")

    def _end_promotion(self, index: int, error: str) -> None:
        if self.promotion is not None:
            self.outcomes.append(Outcome(self.promotion.node_id, index, error))
            self.promotion = None

    # -- handing over ------------------------------------------------------------------------------

    def _look_after_own_disk(self, committed: int, now: float) -> None:
        if committed <= self.stable or self.stable != self._stable_seen or self.transfer is not None:
            self._stable_seen, self._stable_since = self.stable, now
        elif now - self._stable_since > OWN_DISK_SECONDS_MAX:
            successor = self.best_successor()
            if successor is not None:
                self.hand_over(successor, committed, now, "its disk is slower than those of a majority")

    def best_successor(self) -> NodeId | None:
        """The voter that has most, among those that are there."""
        candidates = [
            (self.progress[voter.node_id].match, -voter.node_id, voter.node_id)
            for voter in self._log.configuration.voters
            if voter.node_id != self._node_id and self.counts(voter)
        ]
        return max(candidates)[2] if candidates else None

    def hand_over(self, to: NodeId, committed: int, now: float, reason: str = "") -> None:
        """Stop taking entries, let `to` have all, and tell it to stand for election."""
        self.transfer = Transfer(to, now + self._election_timeout, reason)
        self._after_match(to, self.progress[to], committed, now)
