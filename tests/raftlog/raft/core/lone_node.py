"""One node of Raft's core by itself: messages in, messages out."""

from __future__ import annotations

from raftlog.raft.core.configuration import Configuration, Voter
from raftlog.raft.core.entries import Entry, application_data, configuration_data
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.core.leadership import LocalNode, Peer
from raftlog.raft.core.log import Base, RaftLog
from raftlog.raft.core.messages import AppendEntriesReply, Message, RequestVoteReply
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.state import HardState, Role, Timing

DIRECTORIES = {node_id: bytes([node_id]) * 16 for node_id in range(1, 10)}
TIMING = Timing(heartbeat=0.1, election_min=1.0, election_max=1.0)


def configuration(voters: int = 3) -> Configuration:
    return Configuration(tuple(Voter(one, DIRECTORIES[one], "h", 1) for one in range(1, voters + 1)))


def members(voters: int = 3) -> Entry:
    """The first entry of every log."""
    return Entry(1, 1, configuration_data(configuration(voters).encode()))


def entry(index: int, term: int) -> Entry:
    return Entry(index, term, application_data(1, index, b"%d" % term))


class Lone:
    """Node 1 of some, with everything that it says."""

    def __init__(self, terms: list[int] | None = None, voters: int = 3, term: int | None = None) -> None:
        """`terms`: of the entries behind the first one."""
        entries = [members(voters)] + [entry(index, one) for index, one in enumerate(terms or [], 2)]
        state = HardState(entries[-1].term if term is None else term, NO_NODE)
        own = LocalNode(1, Peer(DIRECTORIES[1], "h", 1))
        self.now = 0.0
        self.raft = Raft(own, RaftLog(Base(), entries), state, TIMING, lambda: 0.5, now=0.0)
        for other in range(2, voters + 1):
            self.raft.connected(other, Peer(DIRECTORIES[other], "h", 1), 0.0)

    def say(self, written: bool = True) -> list[tuple[int, Message]]:
        """What it says; with everything on the disk unless not `written`."""
        said = self.raft.take_messages(self.now)
        if written:
            said += self.raft.written(self.raft.take_writes(), self.now)
            said += self.raft.take_messages(self.now)
        return said

    def hear(self, sender: int, message: Message, written: bool = True) -> list[tuple[int, Message]]:
        self.raft.step(sender, message, self.now)
        return self.say(written)

    def wait(self, seconds: float) -> list[tuple[int, Message]]:
        self.now += seconds
        self.raft.tick(self.now)
        return self.say()

    def lead(self) -> Lone:
        """Become leader with the votes that it takes."""
        self.wait(2.0)
        term = self.raft.term
        for voter in self.raft.configuration.ids[1:]:
            self.hear(voter, RequestVoteReply(term, term + 1, True, True))
        for voter in self.raft.configuration.ids[1:]:
            if self.raft.role is not Role.LEADER:
                self.hear(voter, RequestVoteReply(term + 1, term + 1, False, True))
        assert self.raft.role is Role.LEADER
        return self

    def acknowledge(self, *nodes: int, index: int | None = None) -> list[tuple[int, Message]]:
        """These nodes have everything (or up to `index`)."""
        assert self.raft.leadership is not None
        said = self.say()
        for node in nodes:
            sequence = self.raft.leadership.progress[node].sent_sequence
            reached = self.raft.log.last_index if index is None else index
            said += self.hear(node, AppendEntriesReply(self.raft.term, sequence, True, reached, 0, 0))
        return said
