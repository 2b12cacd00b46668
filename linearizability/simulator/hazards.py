"""Faults put back into the code on purpose: what the simulator must notice, or its silence means nothing.

Each hazard replaces a function of the product for the length of a run. Nothing in the product knows of them. Those of
the consensus are here, those of partitions and replicas in `cluster_hazards`.

Knows which line of defence each one takes away. Refuses to know how it is noticed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from raftlog.linearizability.simulator.disk import FaultyDisk
from raftlog.raft.core.entries import Entry
from raftlog.raft.core.leadership import Leadership
from raftlog.raft.core.log import Accepted, RaftLog, Rejected
from raftlog.raft.core.messages import AppendReply, Message, VoteReply
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.state import Role


@dataclass(frozen=True, slots=True)
class Hazard:
    """A fault to be put back: its name, in which kinds of run it shows, what it does, how to put it there."""

    name: str
    parts: tuple[str, ...]
    text: str
    apply: Callable[[], AbstractContextManager[None]]


@contextmanager
def instead(owner: Any, name: str, value: object) -> Iterator[None]:
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
        self: RaftLog, previous: tuple[int, int], entries: Sequence[Entry], committed: int
    ) -> Accepted | Rejected:
        index, term = previous
        if index < self.base.index or self.term_at(index) != term:
            return real(self, previous, entries, committed)
        cut_from = index + 1 if self.last_index > index else 0
        if cut_from:
            self.cut(cut_from)
        self.append(entries)
        return Accepted(entries[-1].index if entries else index, cut_from)

    real = RaftLog.accept
    return instead(RaftLog, "accept", accept)


def double_vote() -> AbstractContextManager[None]:
    """Votes are counted by message, so that one that comes twice counts twice."""

    def on_vote_reply(self: Any, sender: int, reply: VoteReply, now: float) -> None:
        wanted = {Role.PRE_CANDIDATE: (True, self.term + 1), Role.CANDIDATE: (False, self.term)}.get(self.role)
        again = sender in self._votes and reply.granted and (reply.pre, reply.for_term) == wanted
        real(self, sender, reply, now)
        if again:
            self._votes.add(min(set(self.configuration.ids) - self._votes, default=sender))
            self._count_votes(now)

    real = Raft._on_vote_reply
    return instead(Raft, "_on_vote_reply", on_vote_reply)


def vote_twice() -> AbstractContextManager[None]:
    """A node votes for whoever asks, also when it has voted in that term."""

    def on_request_vote(self: Any, sender: int, request: Any, now: float) -> None:
        if not request.pre and self.term == request.term and self.leadership is None:
            self.voted_for = -1
        real(self, sender, request, now)

    real = Raft._on_request_vote
    return instead(Raft, "_on_request_vote", on_request_vote)


@contextmanager
def late_ack() -> Iterator[None]:
    """Acknowledgements carry neither term nor sequence: one of an earlier term counts in this one."""

    def step(self: Raft, sender: int, message: Message, now: float) -> None:
        if isinstance(message, AppendReply) and self.leadership is not None and message.term <= self.term:
            message = message._replace(term=self.term)
        real_step(self, sender, message, now)

    def heard(self: Any, sender: int, sequence: int, now: float) -> Any:
        progress = self.progress.get(sender)
        if progress is not None:
            self._contact[sender] = now
        return progress

    real_step = Raft.step
    with instead(Raft, "step", step), instead(Leadership, "_heard", heard):
        yield


def ack_before_fsync() -> AbstractContextManager[None]:
    """Votes and acknowledgements leave before what they speak of is on the disk."""

    def take_messages(self: Any, now: float) -> list[tuple[int, Message]]:
        messages: list[tuple[int, Message]] = real(self, now)
        messages += self._writes.held
        self._writes.held = []
        return messages

    real = Raft.take_messages
    return instead(Raft, "take_messages", take_messages)


def no_fsync() -> AbstractContextManager[None]:
    """Nothing is ever synced: what was written is taken for safe."""

    def sync(self: FaultyDisk, descriptor: int, /) -> None:
        self._opened(descriptor)

    return instead(FaultyDisk, "sync", sync)


RAFT_HAZARDS: tuple[Hazard, ...] = (
    Hazard("truncate-on-overlap", ("core", "quorum"), str(truncate_on_overlap.__doc__), truncate_on_overlap),
    Hazard("double-vote", ("core",), str(double_vote.__doc__), double_vote),
    Hazard("vote-twice", ("core", "quorum"), str(vote_twice.__doc__), vote_twice),
    Hazard("late-ack", ("core",), str(late_ack.__doc__), late_ack),
    Hazard("ack-before-fsync", ("core", "quorum"), str(ack_before_fsync.__doc__), ack_before_fsync),
    Hazard("no-fsync", ("core", "quorum"), str(no_fsync.__doc__), no_fsync),
)
