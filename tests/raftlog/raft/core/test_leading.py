"""What a leader commits, confirms and hands over; members that it changes."""

from __future__ import annotations

import pytest

from raftlog.raft.core.configuration import Voter
from raftlog.raft.core.entries import NEW_TERM_DATA, Entry, configuration_data
from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.core.leadership import LocalNode, Peer
from raftlog.raft.core.messages import (
    NO_REPLY,
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    RequestVote,
    TimeoutNow,
)
from raftlog.raft.core.state import Role
from tests.raftlog.raft.core.lone_node import DIRECTORIES, Lone, configuration, entry


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
    node.raft.step(2, AppendEntriesReply(2, sequence, True, 3, 0, 0), 0.0)
    assert node.raft.committed < 3, "one of three: the leader has not written it"
    node.raft.written(node.raft.take_writes(), 0.0)
    assert node.raft.committed == 3


def test_acknowledgements_of_other_terms_of_nothing_asked_and_of_other_disks_do_not_count() -> None:
    node = Lone().lead()
    node.say()
    for term, sequence in ((1, 1), (2, 999), (2, 0)):
        node.hear(2, AppendEntriesReply(term, sequence, True, 2, 0, 0))
        assert node.raft.committed == 0
    node.raft.disconnected(3, node.now)
    node.raft.connected(3, Peer(b"another disk", "h", 1), node.now)
    node.say()
    node.acknowledge(3)
    assert node.raft.committed == 0
    node.raft.disconnected(2, node.now)
    node.raft.connected(2, Peer(DIRECTORIES[2], "h", 1), node.now)
    node.hear(2, AppendEntriesReply(2, 1, True, 2, 0, 0))
    assert node.raft.committed == 0, "asked over the earlier connection"
    node.acknowledge(2)
    assert node.raft.committed == 2


def test_what_is_proposed_in_one_turn_goes_out_in_one_message_ahead_of_the_answers() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    node.say()
    node.raft.propose([b"%d" % n for n in range(100)])
    appends = [message for to, message in node.say() if to == 2 and isinstance(message, AppendEntries)]
    assert [len(message.entries) for message in appends] == [100]
    node.raft.propose([b"more"])
    appends = [message for to, message in node.say() if to == 2 and isinstance(message, AppendEntries)]
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
    assert node.raft.leader_id == NO_NODE and node.raft.term == 2


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
    node.hear(2, AppendEntries(1, 1, 2, 1, 0, (Entry(3, 1, configuration_data(more.encode())),)))
    assert node.raft.configuration.ids == (1, 2, 3, 4)
    node.hear(3, AppendEntries(2, 1, 2, 1, 0, (entry(3, 2),)))
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


def test_a_swapped_disk_keeps_its_vote_while_too_few_others_are_there_to_take_it_away() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    for gone in (2, 3):
        node.raft.disconnected(gone, node.now)
    node.raft.connected(2, Peer(b"another disk", "h", 1), node.now)
    while node.raft.leadership is not None and node.now < 5.0:
        node.wait(0.1)
        if node.raft.leadership is not None:
            node.hear(2, HeartbeatReply(node.raft.term, node.raft.leadership.progress[2].sent_sequence))
    assert node.raft.role is not Role.LEADER, "what this disk acknowledges does not count, so neither does its word"
    assert node.raft.configuration == configuration(), "the disk that has the vote may come back before node 3 does"
    node.raft.disconnected(2, node.now)
    node.raft.connected(2, Peer(DIRECTORIES[2], "h", 1), node.now)
    node.lead()
    node.acknowledge(2)
    assert node.raft.committed == node.raft.log.last_index


def test_a_swapped_disk_loses_its_vote_while_another_node_waits_for_one() -> None:
    node = Lone(voters=2).lead()
    node.acknowledge(2)
    leadership = node.raft.leadership
    assert leadership is not None
    leadership.promote(4, ("h", 1), node.now)
    node.raft.disconnected(2, node.now)
    node.raft.connected(2, Peer(b"another disk", "h", 1), node.now)
    node.wait(0.1)
    assert node.raft.configuration.ids == (1,)
    assert node.raft.committed == node.raft.log.last_index


def test_a_node_whose_disk_is_not_the_one_with_the_vote_does_not_stand() -> None:
    node = Lone()
    node.raft.own = LocalNode(1, Peer(b"another disk", "h", 1))
    assert node.wait(3.0) == []


def test_a_new_address_reaches_the_members() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    node.raft.disconnected(3, node.now)
    node.raft.connected(3, Peer(DIRECTORIES[3], "elsewhere", 9), node.now)
    node.wait(0.1)
    assert node.raft.configuration.voter(3) == Voter(3, DIRECTORIES[3], "elsewhere", 9)


@pytest.mark.parametrize(
    ("name", "value"),
    [("term", 0), ("voted_for", 2), ("committed", 99), ("stable", 99), ("leader_id", 3), ("role", Role.FOLLOWER)],
)
def test_a_node_that_breaks_an_invariant_says_so(name: str, value: object) -> None:
    node = Lone().lead()
    node.raft.check_invariants()
    setattr(node.raft, name, value)
    with pytest.raises(RaftViolation):
        node.raft.check_invariants()


def test_a_leader_that_counts_more_than_was_acknowledged_says_so() -> None:
    node = Lone().lead()
    assert node.raft.leadership is not None
    node.raft.leadership.progress[2].match = node.raft.log.last_index + 1
    with pytest.raises(RaftViolation, match="match"):
        node.raft.check_invariants()


def test_a_leader_whose_disk_is_slower_than_those_of_a_majority_hands_over() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    node.raft.propose([b"x"])
    node.say(written=False)
    writes = node.raft.take_writes()
    leadership = node.raft.leadership
    assert leadership is not None
    for voter in (2, 3):
        sequence = leadership.progress[voter].sent_sequence
        node.hear(voter, AppendEntriesReply(node.raft.term, sequence, True, 3, 0, 0), written=False)
    assert (node.raft.committed, node.raft.appliable) == (3, 2)
    said: list[tuple[int, object]] = []
    for _ in range(12):
        for voter in (2, 3):
            sequence = leadership.progress[voter].sent_sequence
            node.hear(voter, HeartbeatReply(node.raft.term, sequence), written=False)
        node.now += 0.1
        node.raft.tick(node.now)
        said += node.say(written=False)
    assert (2, TimeoutNow(node.raft.term)) in said and not node.raft.may_propose
    node.raft.written(writes, node.now)
    assert node.raft.appliable == 3


def test_a_leader_whose_disk_goes_on_keeps_its_term() -> None:
    node = Lone().lead()
    node.acknowledge(2, 3)
    for _ in range(30):
        node.raft.propose([b"x"])
        node.acknowledge(2, 3)
        assert not any(isinstance(message, TimeoutNow) for _, message in node.wait(0.2))
    assert node.raft.may_propose
