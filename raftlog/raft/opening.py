"""What a node of a quorum finds on its disk when it starts: its journal as a log, and the id of the directory."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import NamedTuple

from raftlog.raft.core.configuration import Configuration
from raftlog.raft.core.ids import NO_NODE
from raftlog.raft.core.log import Base, RaftLog
from raftlog.raft.core.snapshot import SnapshotContent
from raftlog.raft.core.state import HardState
from raftlog.raft.disk import Disk, read_file, replace_file
from raftlog.raft.frames import Frame, encode_frame, read_frames
from raftlog.raft.journal import Journal
from raftlog.raft.journal_recovery import JournalDamaged, Recovered

DIRECTORY_FILE = "directory.id"


class NotYetAQuorum(Exception):
    """A broker that ran alone is started with peers, who might elect another and throw its metadata away."""

    def __init__(self, path: str, node_id: int) -> None:
        super().__init__(
            f"{path} is the metadata of a broker that ran without peers. To make it the first of a quorum, start it"
            f" with --peers naming only itself (node {node_id}), then start the others with --observer and give each a"
            " vote with `raftlog quorum add`"
        )


class Opened(NamedTuple):
    """A journal, and what was in it."""

    journal: Journal
    directory: bytes
    log: RaftLog
    hard_state: HardState
    snapshot: SnapshotContent | None
    truncated_bytes: int


def open_log(
    path: str, node_id: int, bootstrap: Configuration, *, disk: Disk, segment_bytes: int, rng: random.Random
) -> Opened:
    """Open the journal. `bootstrap`: the voters as long as the log names none.

    Raises JournalDamaged, JournalLocked, NotYetAQuorum, OSError.
    """
    journal = Journal(path, disk, segment_bytes)
    try:
        recovered = journal.recovered
        snapshot = None
        if recovered.snapshot is not None:
            snapshot = SnapshotContent.of_chunks(*recovered.snapshot)
        log_base = Base(configuration=bootstrap) if snapshot is None else snapshot.base
        if not log_base.configuration.voters:
            log_base = log_base._replace(configuration=bootstrap, configuration_index=0)
            snapshot = replace(snapshot, base=log_base) if snapshot is not None else None
        log = RaftLog(log_base, recovered.entries)
        state = _hard_state(recovered, log)
        # A broker alone votes for itself before its first entry. Who has not voted copies the log of one that has grown
        # into a quorum, and was stopped before it came to the entry that names the members.
        ran_alone = log.last_index > 0 and log.configuration_index == 0 and state.voted_for != NO_NODE
        if ran_alone and bootstrap.ids != (node_id,):
            raise NotYetAQuorum(path, node_id)
        # Whoever has a vote has been in a term. Without its journal it has forgotten how it voted, and what it has
        # acknowledged: it is another directory, without the vote.
        is_new = recovered.term == 0 and not recovered.entries
        directory = _directory_id(path, disk, rng, is_new=is_new)
        opened = Opened(journal, directory, log, state, snapshot, recovered.truncated_bytes)
        recovered.entries = []
        recovered.snapshot = None
    except BaseException:
        journal.close()
        raise
    return opened


def _hard_state(recovered: Recovered, log: RaftLog) -> HardState:
    if recovered.term >= log.last_term:
        return HardState(recovered.term, recovered.voted_for)
    return HardState(log.last_term, NO_NODE)


def _directory_id(path: str, disk: Disk, rng: random.Random, *, is_new: bool) -> bytes:
    """The random id of this directory, made when it `is_new`. Raises JournalDamaged, OSError."""
    name = f"{path}/{DIRECTORY_FILE}"
    if not is_new and DIRECTORY_FILE in disk.list_directory(path):
        for frame in read_frames(read_file(disk, name)):
            if isinstance(frame, Frame) and len(frame.items) == 1 and type(frame.items[0]) is bytes:
                return frame.items[0]
            break
        raise JournalDamaged(name, 0, "no id of a directory")
    identifier = rng.getrandbits(128).to_bytes(16, "big")
    replace_file(disk, name, [encode_frame([identifier])])
    return identifier
