"""Raft's rules one at a time: a node, messages in, messages out."""

from __future__ import annotations

import pytest

from raftlog.raft.core.configuration import Configuration, Voter
from raftlog.raft.core.entries import (
    NEW_TERM_DATA,
    Command,
    Entry,
    application_data,
    command_of,
    configuration_data,
    kind_of,
)
from raftlog.raft.core.entries import Kind as EntryKind
from raftlog.raft.core.errors import PeerViolation, RaftViolation
from raftlog.raft.core.leadership import Own, Peer
from raftlog.raft.core.log import Accepted, Base, RaftLog, Rejected
from raftlog.raft.core.messages import (
    NO_REPLY,
    Append,
    AppendReply,
    Heartbeat,
    HeartbeatReply,
    Message,
    RequestVote,
    SnapshotReply,
    SnapshotSlice,
    TimeoutNow,
    VoteReply,
    from_wire,
    to_wire,
)
from raftlog.raft.core.progress import Outgoing, Progress
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.seen import PROPOSERS_MAX, WINDOW, SeenCommands
from raftlog.raft.core.snapshot import SNAPSHOT_BYTES_MAX, SnapshotContent
from raftlog.raft.core.state import NOBODY, HardState, Role, Timing

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
        state = HardState(entries[-1].term if term is None else term, NOBODY)
        own = Own(1, Peer(DIRECTORIES[1], "h", 1))
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
            self.hear(voter, VoteReply(term, term + 1, True, True))
        for voter in self.raft.configuration.ids[1:]:
            if self.raft.role is not Role.LEADER:
                self.hear(voter, VoteReply(term + 1, term + 1, False, True))
        assert self.raft.role is Role.LEADER
        return self

    def acknowledge(self, *nodes: int, index: int | None = None) -> list[tuple[int, Message]]:
        """These nodes have everything (or up to `index`)."""
        assert self.raft.leadership is not None
        said = self.say()
        for node in nodes:
            sequence = self.raft.leadership.progress[node].sent_sequence
            reached = self.raft.log.last_index if index is None else index
            said += self.hear(node, AppendReply(self.raft.term, sequence, True, reached, 0, 0))
        return said


# -- elections ------------------------------------------------------------------------------------------


def test_a_node_asks_before_it_stands_and_stands_when_a_majority_would_vote() -> None:
    node = Lone()
    said = node.wait(2.0)
    assert said == [(2, RequestVote(2, True, 1, 1)), (3, RequestVote(2, True, 1, 1))]
    assert (node.raft.role, node.raft.term) == (Role.PRE_CANDIDATE, 1), "asking changes no term"
    said = node.hear(3, VoteReply(1, 2, True, True))
    assert said == [(2, RequestVote(2, False, 1, 1)), (3, RequestVote(2, False, 1, 1))]
    assert (node.raft.role, node.raft.term) == (Role.CANDIDATE, 2)


def test_a_vote_is_asked_for_and_counted_only_when_the_own_one_is_on_the_disk() -> None:
    node = Lone()
    node.wait(2.0)
    assert node.hear(3, VoteReply(1, 2, True, True), written=False) == []
    node.raft.step(2, VoteReply(2, 2, False, True), 0.0)
    assert node.raft.role is Role.CANDIDATE, "one vote of three, and the own is not safe yet"
    writes = node.raft.take_writes()
    assert writes.hard_state == HardState(2, 1)
    assert len(writes.held) == 2
    node.raft.written(writes, 0.0)
    assert node.raft.role is Role.LEADER


def test_a_vote_that_comes_twice_counts_once() -> None:
    node = Lone(voters=5)
    node.wait(2.0)
    for _ in range(3):
        node.hear(2, VoteReply(1, 2, True, True))
    assert node.raft.role is Role.PRE_CANDIDATE
    node.hear(3, VoteReply(1, 2, True, True))
    assert node.raft.role is Role.CANDIDATE
    for _ in range(3):
        node.hear(2, VoteReply(2, 2, False, True))
    assert node.raft.role is Role.CANDIDATE
    node.hear(4, VoteReply(2, 2, False, True))
    assert node.raft.role is Role.LEADER


def test_votes_of_other_terms_rounds_strangers_and_swapped_disks_do_not_count() -> None:
    node = Lone()
    node.wait(2.0)
    node.hear(2, VoteReply(1, 2, True, True))
    for reply in (VoteReply(2, 1, False, True), VoteReply(1, 2, True, True), VoteReply(2, 2, False, False)):
        node.hear(3, reply)
    node.raft.connected(7, Peer(DIRECTORIES[7], "h", 1), 0.0)
    node.hear(7, VoteReply(2, 2, False, True))
    node.raft.disconnected(3, 0.0)
    node.hear(3, VoteReply(2, 2, False, True))
    node.raft.connected(3, Peer(b"another disk", "h", 1), 0.0)
    node.hear(3, VoteReply(2, 2, False, True))
    assert node.raft.role is Role.CANDIDATE
    node.hear(2, VoteReply(2, 2, False, True))
    assert node.raft.role is Role.LEADER


def test_one_vote_a_term_and_it_is_on_the_disk_when_it_is_given() -> None:
    node = Lone()
    assert node.hear(2, RequestVote(2, False, 1, 1), written=False) == []
    assert node.say() == [(2, VoteReply(2, 2, False, True))]
    assert node.hear(3, RequestVote(2, False, 1, 1)) == [(3, VoteReply(2, 2, False, False))]
    again = node.hear(2, RequestVote(2, False, 1, 1))
    assert again == [(2, VoteReply(2, 2, False, True))], "said again, not given twice"
    assert node.hear(3, RequestVote(3, False, 1, 1)) == [(3, VoteReply(3, 3, False, True))]


@pytest.mark.parametrize(
    ("last", "granted"), [((4, 2), True), ((9, 1), False), ((3, 2), False), ((2, 3), True), ((5, 2), True)]
)
def test_only_a_log_that_is_as_good_gets_a_vote(last: tuple[int, int], granted: bool) -> None:
    node = Lone([1, 2, 2])
    for pre in (True, False):
        (reply,) = node.hear(2, RequestVote(5, pre, *last))
        assert isinstance(reply[1], VoteReply) and reply[1].granted is granted


def test_who_hears_its_leader_would_vote_for_nobody_else() -> None:
    node = Lone()
    node.hear(2, Heartbeat(1, 1, 0))
    assert node.hear(3, RequestVote(2, True, 9, 9)) == [(3, VoteReply(1, 2, True, False))]
    assert node.raft.term == 1
    node.now += 1.5
    assert node.hear(3, RequestVote(2, True, 9, 9)) == [(3, VoteReply(1, 2, True, True))]


def test_a_leader_whose_connection_is_gone_is_not_waited_for() -> None:
    node = Lone()
    node.hear(2, Heartbeat(1, 1, 0))
    assert node.raft.deadline >= 1.0
    node.raft.disconnected(2, node.now)
    assert node.raft.deadline <= node.now + TIMING.hurry_max
    assert node.hear(3, RequestVote(2, True, 9, 9)) == [(3, VoteReply(1, 2, True, True))]


def test_a_split_vote_is_repeated_soon_and_then_less_soon() -> None:
    node = Lone()
    node.wait(2.0)
    pauses = []
    for _ in range(8):
        pauses.append(node.raft.deadline - node.now)
        node.wait(pauses[-1])
    assert pauses[0] <= 0.075 and pauses == sorted(pauses) and pauses[-1] == 1.0


def test_the_first_leader_of_all_needs_everybody() -> None:
    own = Own(1, Peer(DIRECTORIES[1], "h", 1))
    bootstrap = Configuration.of_addresses(dict.fromkeys((1, 2, 3), ("h", 1)))
    node = Lone()
    node.raft = Raft(own, RaftLog(Base(configuration=bootstrap)), HardState(0, NOBODY), TIMING, lambda: 0.5, now=0.0)
    for other in (2, 3):
        node.raft.connected(other, Peer(DIRECTORIES[other], "h", 1), 0.0)
    node.wait(2.0)
    node.hear(2, VoteReply(0, 1, True, True))
    assert node.raft.role is Role.PRE_CANDIDATE
    node.hear(3, VoteReply(0, 1, True, True))
    node.hear(2, VoteReply(1, 1, False, True))
    assert node.raft.role is Role.CANDIDATE
    node.hear(3, VoteReply(1, 1, False, True))
    assert node.raft.role is Role.LEADER
    assert node.raft.log.entry(1).term == 1
    assert node.raft.configuration == configuration(), "with everybody's directory"


def test_two_leaders_of_one_term_are_noticed() -> None:
    node = Lone()
    node.hear(2, Heartbeat(1, 1, 0))
    with pytest.raises(PeerViolation, match="both lead term 1"):
        node.hear(3, Heartbeat(1, 1, 0))


# -- following -------------------------------------------------------------------------------------------


def test_entries_are_acknowledged_when_they_are_on_the_disk_and_not_before() -> None:
    node = Lone()
    append = Append(1, 7, 1, 1, 0, (entry(2, 1), entry(3, 1)))
    assert node.hear(2, append, written=False) == []
    writes = node.raft.take_writes()
    assert writes.entries == [entry(2, 1), entry(3, 1)]
    assert node.raft.written(writes, 0.0) == [(2, AppendReply(1, 7, True, 3, 0, 1))]


def test_an_acknowledgement_that_waited_into_another_term_is_not_given() -> None:
    node = Lone()
    node.hear(2, Append(1, 7, 1, 1, 0, (entry(2, 1),)), written=False)
    writes = node.raft.take_writes()
    node.raft.step(3, RequestVote(2, False, 9, 9), 0.0)
    assert node.raft.written(writes, 0.0) == []


def test_a_late_or_doubled_append_takes_nothing_away() -> None:
    node = Lone([1, 1, 1, 1])
    assert node.hear(2, Append(1, 3, 1, 1, 0, (entry(2, 1),))) == [(2, AppendReply(1, 3, True, 2, 0, 1))]
    assert node.hear(2, Append(1, 4, 1, 1, 0, ())) == [(2, AppendReply(1, 4, True, 1, 0, 1))]
    assert node.raft.log.last_index == 5


def test_only_a_conflict_cuts_and_the_disk_is_told_from_where() -> None:
    node = Lone([1, 1, 1, 1])
    node.raft.step(2, Append(2, 3, 2, 1, 0, (entry(3, 1), entry(4, 2))), 0.0)
    writes = node.raft.take_writes()
    assert (writes.cut_from, writes.cut_previous_term, writes.entries) == (4, 1, [entry(4, 2)])
    assert node.raft.stable == 3
    node.raft.written(writes, 0.0)
    assert (node.raft.stable, node.raft.log.last_index) == (4, 4)


def test_a_committed_entry_is_never_cut() -> None:
    node = Lone([1, 1])
    node.hear(2, Heartbeat(1, 1, 3))
    assert node.raft.committed == 3
    with pytest.raises(RaftViolation, match="differs from the committed one"):
        node.hear(3, Append(2, 1, 2, 1, 0, (entry(3, 2),)))


def test_a_follower_commits_no_further_than_this_message_verified() -> None:
    node = Lone([1, 1, 1])
    node.hear(2, Append(2, 1, 2, 1, 4, ()))
    assert node.raft.committed == 2, "entries 3 and 4 may be of a leader that lost"


def test_what_does_not_fit_is_refused_with_a_hint_that_saves_round_trips() -> None:
    node = Lone([1, 1, 2, 2])
    assert node.hear(2, Append(3, 5, 9, 3, 0, ())) == [(2, AppendReply(3, 5, False, 5, 2, 9))]
    assert node.hear(2, Append(3, 6, 5, 1, 0, ())) == [(2, AppendReply(3, 6, False, 3, 1, 5))]


def test_a_leader_of_the_past_learns_that_its_time_is_over() -> None:
    node = Lone(term=5)
    (reply,) = node.hear(2, Append(3, 5, 1, 1, 0, ()))
    assert reply == (2, AppendReply(5, 5, False, 0, 0, 0))
    stale = Lone().lead()
    stale.hear(2, reply[1])  # type: ignore[arg-type]
    assert (stale.raft.role, stale.raft.term) == (Role.FOLLOWER, 5)


def test_nothing_is_replayed_before_it_is_on_the_own_disk() -> None:
    node = Lone()
    node.raft.step(2, Append(1, 1, 1, 1, 2, (entry(2, 1),)), 0.0)
    assert (node.raft.committed, node.raft.appliable) == (2, 1)
    node.say()
    assert node.raft.appliable == 2


# -- leading --------------------------------------------------------------------------------------------------


def test_a_new_leader_commits_an_entry_of_its_own_term_and_with_it_the_old_ones() -> None:
    node = Lone([1, 1]).lead()
    assert node.raft.log.entry(4).data == NEW_TERM_DATA
    node.acknowledge(2, index=3)
    assert node.raft.committed == 0, "entries of earlier terms are not committed by counting (§5.4.2)"
    node.acknowledge(2)
    assert node.raft.committed == 4


def test_the_leaders_own_disk_counts_like_any_other() -> None:
    node = Lone().lead()
    node.raft.propose([b"x"])
    node.raft.take_messages(0.0)
    sequence = node.raft.leadership.progress[2].sent_sequence  # type: ignore[union-attr]
    node.raft.step(2, AppendReply(2, sequence, True, 3, 0, 0), 0.0)
    assert node.raft.committed < 3, "one of three: the leader has not written it"
    node.raft.written(node.raft.take_writes(), 0.0)
    assert node.raft.committed == 3


def test_acknowledgements_of_other_terms_of_nothing_asked_and_of_other_disks_do_not_count() -> None:
    node = Lone().lead()
    node.say()
    for term, sequence in ((1, 1), (2, 999), (2, 0)):
        node.hear(2, AppendReply(term, sequence, True, 2, 0, 0))
        assert node.raft.committed == 0
    node.raft.disconnected(3, node.now)
    node.raft.connected(3, Peer(b"another disk", "h", 1), node.now)
    node.say()
    node.acknowledge(3)
    assert node.raft.committed == 0
    node.raft.disconnected(2, node.now)
    node.raft.connected(2, Peer(DIRECTORIES[2], "h", 1), node.now)
    node.hear(2, AppendReply(2, 1, True, 2, 0, 0))
    assert node.raft.committed == 0, "asked over the earlier connection"
    node.acknowledge(2)
    assert node.raft.committed == 2


def test_what_is_proposed_in_one_turn_goes_out_in_one_message_ahead_of_the_answers() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    node.say()
    node.raft.propose([b"%d" % n for n in range(100)])
    appends = [message for to, message in node.say() if to == 2 and isinstance(message, Append)]
    assert [len(message.entries) for message in appends] == [100]
    node.raft.propose([b"more"])
    appends = [message for to, message in node.say() if to == 2 and isinstance(message, Append)]
    assert [(message.previous_index, len(message.entries)) for message in appends] == [(102, 1)]


def test_followers_hear_of_a_commit_at_once_and_need_not_answer() -> None:
    node = Lone().lead()
    said = node.acknowledge(2, 3)
    told = [message for _, message in said if isinstance(message, Heartbeat) and message.committed == 2]
    assert told and all(message.sequence == NO_REPLY for message in told)
    assert Lone().hear(2, told[0]) == []


def test_a_leader_without_a_majority_steps_down_after_an_election_time_out() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    began = node.now
    while node.raft.role is Role.LEADER and node.now < began + 5:
        node.wait(0.1)
    assert 1.0 <= node.now - began <= 1.3
    assert node.raft.leader_id == NOBODY and node.raft.term == 2


def test_one_follower_of_two_is_enough_to_go_on() -> None:
    node = Lone().lead()
    for _ in range(40):
        node.wait(0.1)
        sequence = node.raft.leadership.progress[2].sent_sequence  # type: ignore[union-attr]
        node.hear(2, HeartbeatReply(2, sequence))
    assert node.raft.role is Role.LEADER


def test_a_read_waits_for_a_majority_that_was_asked_after_it() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    leadership = node.raft.leadership
    assert leadership is not None
    before = leadership.progress[2].sent_sequence
    leadership.read(7, node.raft.committed)
    node.hear(2, HeartbeatReply(2, before))
    assert leadership.confirmed_reads() == []
    node.say()
    node.hear(2, HeartbeatReply(2, leadership.progress[2].sent_sequence))
    assert leadership.confirmed_reads() == [(7, 2)]
    assert leadership.confirmed_reads() == []


def test_leadership_goes_to_one_that_has_everything_and_nothing_is_taken_meanwhile() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    node.raft.propose([b"x"])
    node.say()
    assert node.raft.leadership is not None
    node.raft.leadership.hand_over(3, node.raft.committed, node.now)
    assert not node.raft.may_propose
    assert not any(isinstance(message, TimeoutNow) for _, message in node.say())
    said = node.acknowledge(3)
    assert (3, TimeoutNow(2)) in said
    node.wait(2.0)
    assert node.raft.leadership is None or node.raft.may_propose, "not for ever"
    successor = Lone()
    successor.hear(2, Heartbeat(1, 1, 0))
    said = successor.hear(2, TimeoutNow(1))
    assert said == [(2, RequestVote(2, False, 1, 1)), (3, RequestVote(2, False, 1, 1))]
    assert Lone().hear(3, TimeoutNow(1)) == [], "only the leader may ask for that"


# -- members -------------------------------------------------------------------------------------------------


def test_a_node_gets_its_vote_when_it_has_everything_and_one_change_at_a_time() -> None:
    node = Lone().lead()
    leadership = node.raft.leadership
    assert leadership is not None
    assert leadership.may_change(node.raft.committed) == "the leader has just been elected"
    node.acknowledge(2, 3)
    assert leadership.may_change(node.raft.committed) == ""
    node.raft.connected(4, Peer(DIRECTORIES[4], "h", 1), node.now)
    leadership.promote(4, ("h", 1), node.now)
    node.wait(0.1)
    assert node.raft.configuration.ids == (1, 2, 3)
    node.acknowledge(4)
    assert node.raft.configuration.ids == (1, 2, 3, 4), "in force as soon as it is in the log"
    assert leadership.may_change(node.raft.committed) == "another change of the members is under way"
    node.acknowledge(2)
    assert node.raft.committed == 2, "two of four are no majority"
    node.acknowledge(4)
    assert node.raft.committed == 3
    assert [(outcome.node_id, outcome.index) for outcome in leadership.outcomes] == [(4, 3)]


def test_a_change_of_the_members_that_is_cut_off_is_undone() -> None:
    node = Lone([1])
    more = configuration(3).with_voter(Voter(4, DIRECTORIES[4], "h", 1))
    node.hear(2, Append(1, 1, 2, 1, 0, (Entry(3, 1, configuration_data(more.encode())),)))
    assert node.raft.configuration.ids == (1, 2, 3, 4)
    node.hear(3, Append(2, 1, 2, 1, 0, (entry(3, 2),)))
    assert node.raft.configuration.ids == (1, 2, 3)


def test_a_disk_that_was_swapped_loses_its_vote_and_gets_it_back_with_everything() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    node.raft.disconnected(3, node.now)
    node.raft.connected(3, Peer(b"another disk", "h", 1), node.now)
    node.wait(0.1)
    assert node.raft.configuration.ids == (1, 2)
    assert [voter.node_id for voter in node.raft.configuration.awaited] == [3]
    node.acknowledge(2)
    node.wait(0.1)
    node.acknowledge(2, 3)
    node.wait(0.1)
    voter = node.raft.configuration.voter(3)
    assert voter is not None and voter.directory == b"another disk"
    assert node.raft.configuration.awaited == ()


def test_a_node_whose_disk_is_not_the_one_with_the_vote_does_not_stand() -> None:
    node = Lone()
    node.raft.own = Own(1, Peer(b"another disk", "h", 1))
    assert node.wait(3.0) == []


def test_a_new_address_reaches_the_members() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    node.raft.disconnected(3, node.now)
    node.raft.connected(3, Peer(DIRECTORIES[3], "elsewhere", 9), node.now)
    node.wait(0.1)
    assert node.raft.configuration.voter(3) == Voter(3, DIRECTORIES[3], "elsewhere", 9)


# -- snapshots ------------------------------------------------------------------------------------------------


def content(index: int = 9) -> SnapshotContent:
    return SnapshotContent(Base(index, 1, configuration(), 1, 1), b"seen", [b"one", b"two" * 200_000])


def test_a_snapshot_comes_in_slices_and_is_acknowledged_when_it_is_on_the_disk() -> None:
    node = Lone([1, 1])
    data = content().encode()
    half = len(data) // 2
    total = len(data)
    first = SnapshotSlice(1, 1, 9, 1, total, 0, data[:half])
    assert node.hear(2, first) == [(2, SnapshotReply(1, 1, 9, half))]
    assert node.hear(2, first) == [(2, SnapshotReply(1, 1, 9, half))], "twice is once"
    said = node.hear(2, SnapshotSlice(1, 2, 9, 1, total, half, data[half:]), written=False)
    assert said == [(2, SnapshotReply(1, 2, 9, total))]
    assert (node.raft.committed, node.raft.appliable) == (9, 0), "what is in memory is gone"
    writes = node.raft.take_writes()
    assert writes.snapshot == content()
    assert node.raft.written(writes, 0.0) == [(2, AppendReply(1, 2, True, 9, 0, 0))]
    assert node.raft.installed == content() and node.raft.appliable == 9
    assert node.raft.log.configuration == configuration()
    late = node.hear(2, first)
    assert late == [(2, AppendReply(1, 1, True, 9, 0, 0))], "it has that already"


def test_a_snapshot_larger_than_memory_is_worth_is_refused() -> None:
    with pytest.raises(PeerViolation, match="bytes"):
        Lone().hear(2, SnapshotSlice(1, 1, 9, 1, SNAPSHOT_BYTES_MAX + 1, 0, b"x"))


def test_who_needs_entries_that_are_gone_gets_a_snapshot_within_a_window_and_then_entries() -> None:
    node = Lone([1] * 8).lead()
    node.acknowledge(2)
    node.raft.log.compact(9)
    sequence = node.raft.leadership.progress[3].sent_sequence  # type: ignore[union-attr]
    node.hear(3, AppendReply(2, sequence, False, 1, 1, 9))
    leadership = node.raft.leadership
    assert leadership is not None and leadership.snapshot_wanted
    data = bytes(3_000_000)
    leadership.offer_snapshot(Outgoing(9, 1, data))
    sent = b""
    for _ in range(20):
        slices = [message for to, message in node.say() if to == 3 and isinstance(message, SnapshotSlice)]
        assert len(slices) <= 4
        for one in slices:
            assert one.offset == len(sent)
            sent += one.data
            node.raft.step(3, SnapshotReply(2, one.sequence, 9, len(sent)), node.now)
    assert sent == data
    said = node.hear(3, AppendReply(2, leadership.progress[3].sent_sequence, True, 9, 0, 0))
    appends = [message for to, message in said if to == 3 and isinstance(message, Append)]
    assert [message.previous_index for message in appends] == [9]


# -- small parts ----------------------------------------------------------------------------------------------


def test_messages_go_over_the_wire_and_what_is_none_is_refused() -> None:
    for message in (
        RequestVote(1, True, 2, 3), VoteReply(1, 2, False, True), Append(1, 2, 3, 4, 5, (entry(4, 1), entry(5, 2))),
        AppendReply(1, 2, True, 3, 4, 5), Heartbeat(1, 2, 3), HeartbeatReply(1, 2), TimeoutNow(4),
        SnapshotSlice(1, 2, 3, 4, 5, 6, b"7"), SnapshotReply(1, 2, 3, 4),
    ):  # fmt: skip
        assert from_wire(_tuples(to_wire(message))) == message
    entries_that_are_none = (2, 1, 1, 1, 1, 1, ((1, "x"),))
    for values in ((), (99,), (0, 1), ("x", 1), (0, 1, 2, 3, 4), (8, -1), (8, True), entries_that_are_none, (2, 1)):
        with pytest.raises(PeerViolation):
            from_wire(values)


def _tuples(value: object) -> object:
    return tuple(_tuples(one) for one in value) if isinstance(value, list | tuple) else value


def test_the_log_knows_the_indexes_of_the_application() -> None:
    log = RaftLog(Base(), [members(), entry(2, 1), entry(3, 1), Entry(4, 2, NEW_TERM_DATA), entry(5, 2)])
    assert [log.application_index(index) for index in range(1, 6)] == [0, 1, 2, 2, 3]
    log.compact(4)
    assert (log.application_index(5), log.base.internal) == (3, 2)
    log.cut(5)
    assert log.application_index(4) == 2
    assert log.accept((2, 1), (entry(3, 1),), 4) == Accepted(4, 0)
    assert log.accept((9, 2), (), 4) == Rejected(4, 2)
    with pytest.raises(RaftViolation):
        log.append([entry(7, 2)])


def test_entries_of_an_unknown_kind_are_not_passed_over() -> None:
    assert kind_of(b"anything of a broker that ran alone") is EntryKind.APPLICATION
    assert command_of(b"anything") == Command(0, 0, b"anything")
    assert command_of(application_data(5, 6, b"x")) == Command(5, 6, b"x")
    with pytest.raises(RaftViolation):
        kind_of(b"\xc1\x09")


def test_a_rejection_that_is_old_moves_nothing() -> None:
    progress = Progress(10)
    progress.matched(5)
    progress.sent(8, 100, 0.0)
    assert not progress.rejected(1, 4, 2), "5 is known to match"
    assert progress.rejected(2, 8, 6)
    assert progress.next == 7
    progress.probe_sequence = 3
    assert not progress.rejected(2, 6, 6)


def test_a_command_seen_is_seen_until_the_window_has_passed() -> None:
    seen = SeenCommands()
    assert [seen.is_new(1, number) for number in (1, 2, 2, 4, 3, 3, 1)] == [True, True, False, True, True, False, False]
    again = SeenCommands.decode(seen.encode())
    assert not again.is_new(1, 4) and again.is_new(1, 5)
    assert again.is_new(1, 5 + WINDOW) and not again.is_new(1, 5), "older than the window counts as seen"
    for proposer in range(2, PROPOSERS_MAX + 2):
        assert again.is_new(proposer, 1)
    assert again.is_new(1, 5 + WINDOW), "the proposer heard of longest ago is forgotten"
