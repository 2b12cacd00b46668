"""Raft's elections one rule at a time: who asks, who votes, what is counted."""

from __future__ import annotations

import pytest

from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.errors import PeerViolation
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.core.leadership import LocalNode, Peer
from raftlog.raft.core.log import Base, RaftLog
from raftlog.raft.core.messages import Heartbeat, RequestVote, RequestVoteReply
from raftlog.raft.core.raft import Raft
from raftlog.raft.core.state import HardState, Role
from tests.raftlog.raft.core.lone_node import DIRECTORIES, TIMING, Lone, configuration


def test_a_node_asks_before_it_stands_and_stands_when_a_majority_would_vote() -> None:
    node = Lone()
    said = node.wait(2.0)
    assert said == [(2, RequestVote(2, True, 1, 1)), (3, RequestVote(2, True, 1, 1))]
    assert (node.raft.role, node.raft.term) == (Role.PRE_CANDIDATE, 1), "asking changes no term"
    said = node.hear(3, RequestVoteReply(1, 2, True, True))
    assert said == [(2, RequestVote(2, False, 1, 1)), (3, RequestVote(2, False, 1, 1))]
    assert (node.raft.role, node.raft.term) == (Role.CANDIDATE, 2)


def test_the_only_voter_stands_without_waiting_for_a_leader() -> None:
    node = Lone(voters=1)
    assert node.raft.deadline <= TIMING.fast_election_max < TIMING.election_min
    node.wait(TIMING.fast_election_max)
    assert (node.raft.role, node.raft.term) == (Role.LEADER, 2)


def test_a_vote_is_asked_for_and_counted_only_when_the_own_one_is_on_the_disk() -> None:
    node = Lone()
    node.wait(2.0)
    assert node.hear(3, RequestVoteReply(1, 2, True, True), written=False) == []
    node.raft.step(2, RequestVoteReply(2, 2, False, True), 0.0)
    assert node.raft.role is Role.CANDIDATE, "one vote of three, and the own is not safe yet"
    writes = node.raft.take_writes()
    assert writes.hard_state == HardState(2, 1)
    assert len(writes.messages_after_sync) == 2
    node.raft.written(writes, 0.0)
    assert node.raft.role is Role.LEADER


def test_a_vote_that_comes_twice_counts_once() -> None:
    node = Lone(voters=5)
    node.wait(2.0)
    for _ in range(3):
        node.hear(2, RequestVoteReply(1, 2, True, True))
    assert node.raft.role is Role.PRE_CANDIDATE
    node.hear(3, RequestVoteReply(1, 2, True, True))
    assert node.raft.role is Role.CANDIDATE
    for _ in range(3):
        node.hear(2, RequestVoteReply(2, 2, False, True))
    assert node.raft.role is Role.CANDIDATE
    node.hear(4, RequestVoteReply(2, 2, False, True))
    assert node.raft.role is Role.LEADER


def test_votes_of_other_terms_rounds_strangers_and_swapped_disks_do_not_count() -> None:
    node = Lone()
    node.wait(2.0)
    node.hear(2, RequestVoteReply(1, 2, True, True))
    old, pre_vote, refused = (2, 1, False, True), (1, 2, True, True), (2, 2, False, False)
    for reply in (RequestVoteReply(*old), RequestVoteReply(*pre_vote), RequestVoteReply(*refused)):
        node.hear(3, reply)
    node.raft.connected(7, Peer(DIRECTORIES[7], "h", 1), 0.0)
    node.hear(7, RequestVoteReply(2, 2, False, True))
    node.raft.disconnected(3, 0.0)
    node.hear(3, RequestVoteReply(2, 2, False, True))
    node.raft.connected(3, Peer(b"another disk", "h", 1), 0.0)
    node.hear(3, RequestVoteReply(2, 2, False, True))
    assert node.raft.role is Role.CANDIDATE
    node.hear(2, RequestVoteReply(2, 2, False, True))
    assert node.raft.role is Role.LEADER


def test_one_vote_a_term_and_it_is_on_the_disk_when_it_is_given() -> None:
    node = Lone()
    assert node.hear(2, RequestVote(2, False, 1, 1), written=False) == []
    assert node.say() == [(2, RequestVoteReply(2, 2, False, True))]
    assert node.hear(3, RequestVote(2, False, 1, 1)) == [(3, RequestVoteReply(2, 2, False, False))]
    again = node.hear(2, RequestVote(2, False, 1, 1))
    assert again == [(2, RequestVoteReply(2, 2, False, True))], "said again, not given twice"
    assert node.hear(3, RequestVote(3, False, 1, 1)) == [(3, RequestVoteReply(3, 3, False, True))]


@pytest.mark.parametrize(
    ("last", "granted"), [((4, 2), True), ((9, 1), False), ((3, 2), False), ((2, 3), True), ((5, 2), True)]
)
def test_only_a_log_that_is_as_good_gets_a_vote(last: tuple[int, int], granted: bool) -> None:
    node = Lone([1, 2, 2])
    for pre in (True, False):
        (reply,) = node.hear(2, RequestVote(5, pre, *last))
        assert isinstance(reply[1], RequestVoteReply) and reply[1].granted is granted


def test_who_hears_its_leader_would_vote_for_nobody_else() -> None:
    node = Lone()
    node.hear(2, Heartbeat(1, 1, 0))
    assert node.hear(3, RequestVote(2, True, 9, 9)) == [(3, RequestVoteReply(1, 2, True, False))]
    assert node.raft.term == 1
    node.now += 1.5
    assert node.hear(3, RequestVote(2, True, 9, 9)) == [(3, RequestVoteReply(1, 2, True, True))]


def test_a_leader_whose_connection_is_gone_is_not_waited_for() -> None:
    node = Lone()
    node.hear(2, Heartbeat(1, 1, 0))
    assert node.raft.deadline >= 1.0
    node.raft.disconnected(2, node.now)
    assert node.raft.deadline <= node.now + TIMING.fast_election_max
    assert node.hear(3, RequestVote(2, True, 9, 9)) == [(3, RequestVoteReply(1, 2, True, True))]


def test_a_split_vote_is_repeated_soon_and_then_less_soon() -> None:
    node = Lone()
    node.wait(2.0)
    pauses = []
    for _ in range(8):
        pauses.append(node.raft.deadline - node.now)
        node.wait(pauses[-1])
    assert pauses[0] <= 0.075 and pauses == sorted(pauses) and pauses[-1] == 1.0


def without_a_log() -> Lone:
    own = LocalNode(1, Peer(DIRECTORIES[1], "h", 1))
    bootstrap = Configuration.of_addresses(dict.fromkeys((1, 2, 3), ("h", 1)))
    node = Lone()
    node.raft = Raft(own, RaftLog(Base(configuration=bootstrap)), HardState(0, NO_NODE), TIMING, lambda: 0.5, now=0.0)
    for other in (2, 3):
        node.raft.connected(other, Peer(DIRECTORIES[other], "h", 1), 0.0)
    return node


def test_the_first_leader_of_all_needs_everybody() -> None:
    node = without_a_log()
    node.wait(2.0)
    node.hear(2, RequestVoteReply(0, 1, True, True))
    assert node.raft.role is Role.PRE_CANDIDATE
    node.hear(3, RequestVoteReply(0, 1, True, True))
    node.hear(2, RequestVoteReply(1, 1, False, True))
    assert node.raft.role is Role.CANDIDATE
    node.hear(3, RequestVoteReply(1, 1, False, True))
    assert node.raft.role is Role.LEADER
    assert node.raft.log.entry(1).term == 1
    assert node.raft.configuration == configuration(), "with everybody's directory"


@pytest.mark.parametrize("back_with", [None, b"another disk"])
def test_a_voter_that_goes_before_the_first_leader_begins_is_named_with_the_disk_that_voted(
    back_with: bytes | None,
) -> None:
    node = without_a_log()
    node.wait(2.0)
    for voter in (2, 3):
        node.hear(voter, RequestVoteReply(0, 1, True, True))
    node.hear(3, RequestVoteReply(1, 1, False, True))
    node.raft.disconnected(3, node.now)
    if back_with is not None:
        node.raft.connected(3, Peer(back_with, "h", 1), node.now)
    node.hear(2, RequestVoteReply(1, 1, False, True))
    assert node.raft.role is Role.LEADER
    assert node.raft.configuration == configuration(), "else any disk of node 3 would have a vote at node 2"


def test_two_leaders_of_one_term_are_noticed() -> None:
    node = Lone()
    node.hear(2, Heartbeat(1, 1, 0))
    with pytest.raises(PeerViolation, match="both lead term 1"):
        node.hear(3, Heartbeat(1, 1, 0))
