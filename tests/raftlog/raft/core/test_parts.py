"""The parts of Raft's core that are no node: messages, the log, entries, progress, commands seen before."""

from __future__ import annotations

import msgpack
import pytest

from raftlog.raft.core.entries import NEW_TERM_DATA, Command, Entry, application_data, command_of, kind_of
from raftlog.raft.core.entries import Kind as EntryKind
from raftlog.raft.core.errors import PeerViolation, RaftViolation
from raftlog.raft.core.log import Accepted, Base, RaftLog, Rejected
from raftlog.raft.core.messages import (
    AppendEntries,
    AppendEntriesReply,
    Heartbeat,
    HeartbeatReply,
    InstallSnapshot,
    InstallSnapshotReply,
    RequestVote,
    RequestVoteReply,
    TimeoutNow,
    from_wire,
    to_wire,
)
from raftlog.raft.core.progress import Progress
from raftlog.raft.core.replayed_commands import PROPOSERS_MAX, WINDOW, ReplayedCommands
from raftlog.raft.core.snapshot import SnapshotContent
from tests.raftlog.raft.core.lone_node import entry, members


def test_messages_go_over_the_wire_and_what_is_none_is_refused() -> None:
    for message in (
        RequestVote(1, True, 2, 3), RequestVoteReply(1, 2, False, True),
        AppendEntries(3, 2, 3, 1, 5, (entry(4, 1), entry(5, 2))),
        AppendEntriesReply(1, 2, True, 3, 4, 5), Heartbeat(1, 2, 3), HeartbeatReply(1, 2), TimeoutNow(4),
        InstallSnapshot(1, 2, 3, 4, 5, 6, b"7"), InstallSnapshotReply(1, 2, 3, 4),
    ):  # fmt: skip
        assert from_wire(_tuples(to_wire(message))) == message
    entries_that_are_none = (2, 1, 1, 1, 1, 1, ((1, "x"),))
    for values in ((), (99,), (0, 1), ("x", 1), (0, 1, 2, 3, 4), (8, -1), (8, True), entries_that_are_none, (2, 1)):
        with pytest.raises(PeerViolation):
            from_wire(values)
    for terms in ((-1,), (1,), (2, 4, 3), (6,)):
        with pytest.raises(PeerViolation, match="terms"):
            from_wire((2, 5, 1, 1, 2, 1, tuple((term, b"x") for term in terms)))


def test_a_snapshot_that_is_none_is_the_fault_of_who_sent_it() -> None:
    for value in (7, {"a": 1}, [], [1], [b"x", "y"], None):
        with pytest.raises(PeerViolation):
            SnapshotContent.decode(5, 1, msgpack.packb(value))
    assert SnapshotContent.decode(5, 1, msgpack.packb([b"x"])).chunks == [b"x"]


def _tuples(value: object) -> object:
    return tuple(_tuples(one) for one in value) if isinstance(value, list | tuple) else value


def test_the_log_knows_the_indexes_of_the_application() -> None:
    log = RaftLog(Base(), [members(), entry(2, 1), entry(3, 1), Entry(4, 2, NEW_TERM_DATA), entry(5, 2)])
    assert [log.application_index(index) for index in range(1, 6)] == [0, 1, 2, 2, 3]
    log.compact(4)
    assert (log.application_index(5), log.base.internal) == (3, 2)
    log.truncate(5)
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
    seen = ReplayedCommands()
    assert [seen.is_new(1, number) for number in (1, 2, 2, 4, 3, 3, 1)] == [True, True, False, True, True, False, False]
    again = ReplayedCommands.decode(seen.encode())
    assert not again.is_new(1, 4) and again.is_new(1, 5)
    assert again.is_new(1, 5 + WINDOW) and not again.is_new(1, 5), "older than the window counts as seen"
    for proposer in range(2, PROPOSERS_MAX + 2):
        assert again.is_new(proposer, 1)
    assert again.is_new(1, 5 + WINDOW), "the proposer heard of longest ago is forgotten"
