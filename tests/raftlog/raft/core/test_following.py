"""What a follower takes, cuts, acknowledges and commits; snapshots that it is given."""

from __future__ import annotations

import pytest

from raftlog.raft.core.errors import PeerViolation, RaftViolation
from raftlog.raft.core.log import Base
from raftlog.raft.core.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    InstallSnapshot,
    InstallSnapshotReply,
    RequestVote,
)
from raftlog.raft.core.progress import OutgoingSnapshot
from raftlog.raft.core.snapshot import SNAPSHOT_BYTES_MAX, SnapshotContent
from raftlog.raft.core.state import Role
from tests.raftlog.raft.core.lone_node import Lone, configuration, entry


def test_entries_are_acknowledged_when_they_are_on_the_disk_and_not_before() -> None:
    node = Lone()
    append = AppendEntries(1, 7, 1, 1, 0, (entry(2, 1), entry(3, 1)))
    assert node.hear(2, append, written=False) == []
    writes = node.raft.take_writes()
    assert writes.entries == [entry(2, 1), entry(3, 1)]
    assert node.raft.written(writes, 0.0) == [(2, AppendEntriesReply(1, 7, True, 3, 0, 1))]


def test_an_acknowledgement_that_waited_into_another_term_is_not_given() -> None:
    node = Lone()
    node.hear(2, AppendEntries(1, 7, 1, 1, 0, (entry(2, 1),)), written=False)
    writes = node.raft.take_writes()
    node.raft.step(3, RequestVote(2, False, 9, 9), 0.0)
    assert node.raft.written(writes, 0.0) == []


def test_a_late_or_doubled_append_takes_nothing_away() -> None:
    node = Lone([1, 1, 1, 1])
    assert node.hear(2, AppendEntries(1, 3, 1, 1, 0, (entry(2, 1),))) == [(2, AppendEntriesReply(1, 3, True, 2, 0, 1))]
    assert node.hear(2, AppendEntries(1, 4, 1, 1, 0, ())) == [(2, AppendEntriesReply(1, 4, True, 1, 0, 1))]
    assert node.raft.log.last_index == 5


def test_only_a_conflict_cuts_and_the_disk_is_told_from_where() -> None:
    node = Lone([1, 1, 1, 1])
    node.raft.step(2, AppendEntries(2, 3, 2, 1, 0, (entry(3, 1), entry(4, 2))), 0.0)
    writes = node.raft.take_writes()
    assert (writes.truncate_from, writes.previous_term, writes.entries) == (4, 1, [entry(4, 2)])
    assert node.raft.stable == 3
    node.raft.written(writes, 0.0)
    assert (node.raft.stable, node.raft.log.last_index) == (4, 4)


def test_a_committed_entry_is_never_cut() -> None:
    node = Lone([1, 1])
    node.hear(2, Heartbeat(1, 1, 3))
    assert node.raft.committed == 3
    with pytest.raises(RaftViolation, match="differs from the committed one"):
        node.hear(3, AppendEntries(2, 1, 2, 1, 0, (entry(3, 2),)))


def test_a_follower_commits_no_further_than_this_message_verified() -> None:
    node = Lone([1, 1, 1])
    node.hear(2, AppendEntries(2, 1, 2, 1, 4, ()))
    assert node.raft.committed == 2, "entries 3 and 4 may be of a leader that lost"


def test_what_does_not_fit_is_refused_with_a_hint_that_saves_round_trips() -> None:
    node = Lone([1, 1, 2, 2])
    assert node.hear(2, AppendEntries(3, 5, 9, 3, 0, ())) == [(2, AppendEntriesReply(3, 5, False, 5, 2, 9))]
    assert node.hear(2, AppendEntries(3, 6, 5, 1, 0, ())) == [(2, AppendEntriesReply(3, 6, False, 3, 1, 5))]


def test_a_leader_of_the_past_learns_that_its_time_is_over() -> None:
    node = Lone(term=5)
    (reply,) = node.hear(2, AppendEntries(3, 5, 1, 1, 0, ()))
    assert reply == (2, AppendEntriesReply(5, 5, False, 0, 0, 0))
    stale = Lone().lead()
    stale.hear(2, reply[1])  # type: ignore[arg-type]
    assert (stale.raft.role, stale.raft.term) == (Role.FOLLOWER, 5)


def test_nothing_is_replayed_before_it_is_on_the_own_disk() -> None:
    node = Lone()
    node.raft.step(2, AppendEntries(1, 1, 1, 1, 2, (entry(2, 1),)), 0.0)
    assert (node.raft.committed, node.raft.appliable) == (2, 1)
    node.say()
    assert node.raft.appliable == 2


def content(index: int = 9) -> SnapshotContent:
    return SnapshotContent(Base(index, 1, configuration(), 1, 1), b"seen", [b"one", b"two" * 200_000])


def test_a_snapshot_comes_in_pieces_and_is_acknowledged_when_it_is_on_the_disk() -> None:
    node = Lone([1, 1])
    data = content().encode()
    half = len(data) // 2
    total = len(data)
    first = InstallSnapshot(1, 1, 9, 1, total, 0, data[:half])
    assert node.hear(2, first) == [(2, InstallSnapshotReply(1, 1, 9, half))]
    assert node.hear(2, first) == [(2, InstallSnapshotReply(1, 1, 9, half))], "twice is once"
    said = node.hear(2, InstallSnapshot(1, 2, 9, 1, total, half, data[half:]), written=False)
    assert said == [(2, InstallSnapshotReply(1, 2, 9, total))]
    assert (node.raft.committed, node.raft.appliable) == (9, 0), "what is in memory is gone"
    writes = node.raft.take_writes()
    assert writes.snapshot == content()
    assert node.raft.written(writes, 0.0) == [(2, AppendEntriesReply(1, 2, True, 9, 0, 0))]
    assert node.raft.installed == content() and node.raft.appliable == 9
    assert node.raft.log.configuration == configuration()
    late = node.hear(2, first)
    assert late == [(2, AppendEntriesReply(1, 1, True, 9, 0, 0))], "it has that already"


def test_a_snapshot_larger_than_memory_is_worth_is_refused() -> None:
    with pytest.raises(PeerViolation, match="bytes"):
        Lone().hear(2, InstallSnapshot(1, 1, 9, 1, SNAPSHOT_BYTES_MAX + 1, 0, b"x"))


def test_who_needs_entries_that_are_gone_gets_a_snapshot_within_a_window_and_then_entries() -> None:
    node = Lone([1] * 8).lead()
    node.acknowledge(2)
    node.raft.log.compact(9)
    sequence = node.raft.leadership.progress[3].sent_sequence  # type: ignore[union-attr]
    node.hear(3, AppendEntriesReply(2, sequence, False, 1, 1, 9))
    leadership = node.raft.leadership
    assert leadership is not None and leadership.snapshot_wanted
    data = bytes(3_000_000)
    leadership.offer_snapshot(OutgoingSnapshot(9, 1, data))
    sent = b""
    for _ in range(20):
        pieces = [message for to, message in node.say() if to == 3 and isinstance(message, InstallSnapshot)]
        assert len(pieces) <= 4
        for one in pieces:
            assert one.offset == len(sent)
            sent += one.data
            node.raft.step(3, InstallSnapshotReply(2, one.sequence, 9, len(sent)), node.now)
    assert sent == data
    said = node.hear(3, AppendEntriesReply(2, leadership.progress[3].sent_sequence, True, 9, 0, 0))
    appends = [message for to, message in said if to == 3 and isinstance(message, AppendEntries)]
    assert [message.previous_index for message in appends] == [9]
