"""Mutants: faults put into the code on purpose, which the simulator must notice, or its silence means nothing.

Each mutant replaces a function of the product for the length of a run. Nothing in the product knows of them. Those of
the consensus are here, those of partitions and replicas in `cluster`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, cast

from raftlog.linearizability.simulator.machine.disk import FaultyDisk
from raftlog.raft import journal
from raftlog.raft.core.entries import Entry
from raftlog.raft.core.ids import NO_NODE, NodeId, Term
from raftlog.raft.core.leadership import Leadership
from raftlog.raft.core.log import Accepted, RaftLog, Rejected
from raftlog.raft.core.messages import AppendEntriesReply, Message, RequestVoteReply
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.state import HardState, Role
from raftlog.raft.disk import Disk, truncate_file
from raftlog.raft.journal_recovery import JournalDamaged, Recovered, Recovery
from raftlog.raft.seam import ProposalFailed
from raftlog.raft.snapshot_file import write_snapshot


@dataclass(frozen=True, slots=True)
class Mutant:
    """A fault to put into the code: its name, in which kinds of run it shows, what it does, how to put it there.

    `workload`: the one that a cluster has with it, in place of those that the seed chose; "" for the seed's.
    `scenario`: likewise, what happens to it.
    """

    name: str
    parts: tuple[str, ...]
    text: str
    apply: Callable[[], AbstractContextManager[None]]
    workload: str = ""
    scenario: str = ""


@contextmanager
def patch(owner: Any, name: str, value: object) -> Iterator[None]:
    """Replace one attribute for a while."""
    before = owner.__dict__[name]
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def truncate_on_overlap() -> AbstractContextManager[None]:
    """A follower cuts its log after what a message follows, whether it conflicts or not."""

    def accept(
        self: RaftLog, previous: tuple[int, Term], entries: Sequence[Entry], committed: int
    ) -> Accepted | Rejected:
        index, term = previous
        if index < self.base.index or self.term_at(index) != term:
            return real(self, previous, entries, committed)
        truncate_from = index + 1 if self.last_index > index else 0
        if truncate_from:
            self.truncate(truncate_from)
        self.append(entries)
        return Accepted(entries[-1].index if entries else index, truncate_from)

    real = RaftLog.accept
    return patch(RaftLog, "accept", accept)


def double_vote() -> AbstractContextManager[None]:
    """Votes are counted by message, so that one that comes twice counts twice."""

    def on_vote_reply(self: Any, sender: NodeId, reply: RequestVoteReply, now: float) -> None:
        wanted = {Role.PRE_CANDIDATE: (True, self.term + 1), Role.CANDIDATE: (False, self.term)}.get(self.role)
        again = sender in self._votes and reply.granted and (reply.pre, reply.for_term) == wanted
        real(self, sender, reply, now)
        if again:
            self._votes.setdefault(min(set(self.configuration.ids) - self._votes.keys(), default=sender), b"")
            self._count_votes(now)

    real = Raft._on_request_vote_reply
    return patch(Raft, "_on_request_vote_reply", on_vote_reply)


def vote_twice() -> AbstractContextManager[None]:
    """A node votes for whoever asks, also when it has voted in that term."""

    def on_request_vote(self: Any, sender: NodeId, request: Any, now: float) -> None:
        if not request.pre and self.term == request.term and self.leadership is None:
            self.voted_for = -1
        real(self, sender, request, now)

    real = Raft._on_request_vote
    return patch(Raft, "_on_request_vote", on_request_vote)


@contextmanager
def late_ack() -> Iterator[None]:
    """Acknowledgements carry neither term nor sequence: one of an earlier term counts in this one."""

    def step(self: Raft, sender: NodeId, message: Message, now: float) -> None:
        if isinstance(message, AppendEntriesReply) and self.leadership is not None and message.term <= self.term:
            message = message._replace(term=self.term)
        real_step(self, sender, message, now)

    def heard(self: Any, sender: NodeId, sequence: int, now: float) -> Any:
        progress = self.progress.get(sender)
        if progress is not None:
            self._last_contact[sender] = now
        return progress

    real_step = Raft.step
    with patch(Raft, "step", step), patch(Leadership, "_heard", heard):
        yield


def ack_before_fsync() -> AbstractContextManager[None]:
    """Votes and acknowledgements leave before what they speak of is on the disk."""

    def take_messages(self: Any, now: float) -> list[tuple[NodeId, Message]]:
        messages: list[tuple[NodeId, Message]] = real(self, now)
        messages += self._writes.messages_after_sync
        self._writes.messages_after_sync = []
        return messages

    real = Raft.take_messages
    return patch(Raft, "take_messages", take_messages)


def no_fsync() -> AbstractContextManager[None]:
    """Nothing is ever synced: what was written is taken for safe."""

    def sync(self: FaultyDisk, descriptor: int, /) -> None:
        self._opened(descriptor)

    return patch(FaultyDisk, "sync", sync)


def forgotten_vote() -> AbstractContextManager[None]:
    """A node that starts again does not know for whom it has voted."""

    def begin(self: Raft, own: Any, log: RaftLog, hard_state: HardState, *rest: Any, **more: Any) -> None:
        real(self, own, log, HardState(hard_state.term, NO_NODE), *rest, **more)

    real = Raft.__init__
    return patch(Raft, "__init__", begin)


def _agreement_further_back() -> AbstractContextManager[None]:
    """Two logs are taken to agree up to a little less than they do: allowed, and what later entries must allow for."""

    def agreement_before(self: RaftLog, index: int, term: Term) -> tuple[int, Term]:
        found, found_term = real(self, index, term)
        earlier = max(self.base.index, found - 3)
        earlier_term = self.term_at(earlier)
        return (found, found_term) if earlier_term is None else (earlier, earlier_term)

    real = RaftLog.agreement_before
    return patch(RaftLog, "agreement_before", agreement_before)


@contextmanager
def acknowledge_more_than_was_verified() -> Iterator[None]:
    """A follower acknowledges all that it has, and not what the message has shown to be the leader's."""

    def on_append(self: Any, sender: NodeId, message: Any) -> None:
        real(self, sender, message)
        held = self._writes.messages_after_sync
        if held and isinstance(held[-1][1], AppendEntriesReply) and held[-1][1].sequence == message.sequence:
            held[-1] = (sender, held[-1][1]._replace(index=self.log.last_index))

    real = Raft._on_append_entries
    with patch(Raft, "_on_append_entries", on_append), _agreement_further_back():
        yield


@contextmanager
def commit_more_than_was_verified() -> Iterator[None]:
    """A follower takes all that it has for committed, up to what the leader has committed."""

    def on_append(self: Any, sender: NodeId, message: Any) -> None:
        before = len(self._writes.messages_after_sync)
        real(self, sender, message)
        if len(self._writes.messages_after_sync) > before:
            self._commit(min(message.committed, self.log.last_index))

    real = Raft._on_append_entries
    with patch(Raft, "_on_append_entries", on_append), _agreement_further_back():
        yield


def commit_of_an_earlier_term() -> AbstractContextManager[None]:
    """A leader counts copies of entries of earlier terms too (figure 8 of the paper)."""

    def committed(self: Any) -> int:
        configuration = self._log.configuration
        return int(configuration.reached(self._match(voter) for voter in configuration.voters))

    return patch(Leadership, "committed", committed)


@contextmanager
def wiped_disk_votes() -> Iterator[None]:
    """A node that lost its disk votes and acknowledges as if it had everything: only its id is looked at."""

    def may_vote_for(self: Raft, voter_id: NodeId) -> bool:
        return self.configuration.voter(voter_id) is not None and voter_id in self.peers

    def counts(self: Leadership, voter: Any) -> bool:
        return voter.node_id == self._node_id or voter.node_id in self.progress

    def is_voter(self: Raft) -> bool:
        return self.configuration.voter(self.node_id) is not None

    with (
        patch(Raft, "_may_vote_for", may_vote_for),
        patch(Raft, "is_voter", property(is_voter)),
        patch(Leadership, "counts", counts),
    ):
        yield


def majority_begins() -> AbstractContextManager[None]:
    """A majority of nodes with empty logs begins a new one, whatever the others have."""

    def is_elected_by(self: Raft, votes: set[int]) -> bool:
        return self.configuration.is_majority(votes)

    return patch(Raft, "_is_elected_by", is_elected_by)


def reads_without_a_majority() -> AbstractContextManager[None]:
    """A leader answers reads without asking whether it leads still."""

    def confirmed_reads(self: Leadership) -> list[tuple[int, int]]:
        reads, self.reads = self.reads, []
        return [(read.token, read.index) for read in reads]

    return patch(Leadership, "confirmed_reads", confirmed_reads)


def unknown_is_failed() -> AbstractContextManager[None]:
    """A proposal whose leader was lost counts as failed, though it may be committed later."""

    from raftlog.raft import hardened

    def resolver(done: asyncio.Future[int]) -> Callable[[Any, int], None]:
        resolve = real(done)

        def resolve_as_failed(result: Any, reason: int) -> None:
            resolve(result, reason)
            error = done.exception() if done.done() and not done.cancelled() else None
            if isinstance(error, ProposalFailed):
                error.outcome_unknown = False

        return resolve_as_failed

    real = hardened._resolver
    return patch(hardened, "_resolver", resolver)


def damage_is_a_torn_tail() -> AbstractContextManager[None]:
    """What follows a damaged record of the journal is dropped, as after a write that was cut short."""

    def recover(self: Any) -> Recovered:
        while True:
            try:
                return real(self)
            except JournalDamaged as error:
                segments = [f"{self.directory}/{segment.name}" for segment in self.segments]
                if not error.position or error.path not in segments:
                    raise
                truncate_file(self.disk, error.path, error.position)
                for path in segments[segments.index(error.path) + 1 :]:
                    self.disk.remove(path)

    real = Recovery.recover
    return patch(Recovery, "recover", recover)


def snapshot_before_it_is_safe() -> AbstractContextManager[None]:
    """The journal that a snapshot covers is removed before the snapshot is on the disk."""

    def write(disk: Disk, directory: str, snapshot: Any) -> None:
        write_snapshot(cast(Disk, _Unsynced(disk)), directory, snapshot)

    return patch(journal, "write_snapshot", write)


class _Unsynced:
    """A disk that is not synced."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def sync(self, descriptor: int) -> None:
        """Nothing."""

    def sync_directory(self, path: str) -> None:
        """Nothing."""


RAFT = ("core", "quorum")
_ALL: tuple[tuple[str, tuple[str, ...], Callable[[], AbstractContextManager[None]]], ...] = (
    ("truncate-on-overlap", RAFT, truncate_on_overlap),
    ("double-vote", ("core",), double_vote),
    ("vote-twice", RAFT, vote_twice),
    ("late-ack", ("core",), late_ack),
    ("ack-before-fsync", RAFT, ack_before_fsync),
    ("no-fsync", RAFT, no_fsync),
    ("forgotten-vote", RAFT, forgotten_vote),
    ("acknowledge-unverified", RAFT, acknowledge_more_than_was_verified),
    ("commit-unverified", RAFT, commit_more_than_was_verified),
    ("commit-of-earlier-term", RAFT, commit_of_an_earlier_term),
    ("damage-is-torn-tail", RAFT, damage_is_a_torn_tail),
    ("snapshot-before-safe", RAFT, snapshot_before_it_is_safe),
    ("wiped-disk-votes", ("quorum",), wiped_disk_votes),
    ("majority-begins", ("quorum",), majority_begins),
    ("read-without-majority", ("quorum",), reads_without_a_majority),
    ("unknown-is-failed", ("quorum",), unknown_is_failed),
)
RAFT_MUTANTS: tuple[Mutant, ...] = tuple(Mutant(name, parts, str(put.__doc__), put) for name, parts, put in _ALL)
