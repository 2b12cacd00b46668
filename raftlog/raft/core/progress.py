"""How far one node has followed its leader, and what may be sent to it next.

Three modes: `PROBE` looks for where the logs agree, one message at a time; `REPLICATE` sends ahead of the
answers, within a window; `SNAPSHOT` sends a snapshot in pieces because the entries are gone.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

from raftlog.raft.core.errors import RaftViolation
from raftlog.raft.core.ids import Term

INFLIGHT_BYTES_MAX = 8 * 1024 * 1024
"""Entries sent to one node and not yet acknowledged: what a slow node may cost the leader in its socket's queue."""
INFLIGHT_MESSAGES_MAX = 256
INSTALL_BYTES = 256 * 1024
"""A snapshot goes in pieces of this size, so that heartbeats and entries of others are never behind a large message."""
INSTALLS_INFLIGHT_MAX = 4
NEVER = float("-inf")


class Mode(Enum):
    """What the leader does with a node."""

    PROBE = "probe"
    REPLICATE = "replicate"
    SNAPSHOT = "snapshot"


class OutgoingSnapshot(NamedTuple):
    """A snapshot as bytes."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    term: Term
    data: bytes


class Sent(NamedTuple):
    """A message under way: the last entry in it, its size, when it left."""

    last_index: int
    size: int
    at: float


class Progress:
    """One node, as its leader sees it.

    Invariants: `match` < `next`; `match` only grows while the node keeps its directory.
    """

    __slots__ = (
        "acknowledged_offset",
        "acknowledged_sequence",
        "caught_up_at",
        "inflight",
        "inflight_bytes",
        "match",
        "mode",
        "next",
        "probe_at",
        "probe_sequence",
        "sent_commit",
        "sent_offset",
        "sent_sequence",
        "snapshot",
        "stale_sequence",
    )

    def __init__(self, next_index: int) -> None:
        self.match = 0
        self.next = next_index
        self.sent_commit = 0
        self.caught_up_at = NEVER
        self.stale_sequence = 0  # what was asked up to here went over an earlier connection
        self.acknowledged_sequence = 0
        self.sent_sequence = 0
        self.inflight: deque[Sent] = deque()
        self.snapshot: OutgoingSnapshot | None = None
        self.probe(next_index)

    def check_invariants(self, last_index: int, committed: int) -> None:
        """Raises RaftViolation when an invariant does not hold; `last_index` and `committed` are the leader's."""
        if not self.match < self.next <= last_index + 1:
            raise RaftViolation(f"match {self.match}, next {self.next} in a log that ends at {last_index}")
        if self.sent_commit > min(self.match, committed):
            raise RaftViolation(f"{self.sent_commit} was told as committed, match {self.match}, commit {committed}")
        if self.inflight and self.mode is not Mode.REPLICATE:
            raise RaftViolation(f"{len(self.inflight)} messages are under way to a node in mode {self.mode.value}")
        if self.acknowledged_offset > self.sent_offset or self.acknowledged_sequence > self.sent_sequence:
            raise RaftViolation("more is acknowledged than was sent")

    # -- modes -------------------------------------------------------------------------------------

    def probe(self, next_index: int) -> None:
        """Look for where the logs agree, from before `next_index`."""
        self.mode = Mode.PROBE
        self.next = max(next_index, self.match + 1)
        self.probe_sequence = 0
        self.probe_at = NEVER
        self.snapshot = None
        self.sent_offset = self.acknowledged_offset = 0
        self.inflight.clear()
        self.inflight_bytes = 0

    def send_snapshot(self) -> None:
        """The entries that this node needs are gone."""
        self.probe(self.next)
        self.mode = Mode.SNAPSHOT

    # -- what happens ------------------------------------------------------------------------------

    def has_room(self) -> bool:
        """Whether more entries may be sent ahead."""
        return self.inflight_bytes < INFLIGHT_BYTES_MAX and len(self.inflight) < INFLIGHT_MESSAGES_MAX

    def sent(self, last_index: int, size: int, now: float) -> None:
        """Entries left for the node."""
        self.inflight.append(Sent(last_index, size, now))
        self.inflight_bytes += size
        self.next = last_index + 1

    def matched(self, index: int) -> None:
        """The node has everything up to `index`."""
        self.match = max(self.match, index)
        while self.inflight and self.inflight[0].last_index <= self.match:
            self.inflight_bytes -= self.inflight.popleft().size
        if self.mode is Mode.PROBE or (self.snapshot is not None and self.snapshot.index <= self.match):
            self.probe(self.match + 1)
            self.mode = Mode.REPLICATE
        self.next = max(self.next, self.match + 1)

    def rejected(self, sequence: int, previous_index: int, agreement: int) -> bool:
        """The logs agree at `agreement` at most; False when the rejection is an old one that says nothing now."""
        if previous_index <= self.match or self.mode is Mode.SNAPSHOT:
            return False
        if self.mode is Mode.PROBE and sequence != self.probe_sequence:
            return False
        self.probe(min(agreement + 1, previous_index))
        return True

    def snapshot_acknowledged(self, index: int, offset: int) -> None:
        """`offset` bytes of the snapshot are there."""
        if self.snapshot is not None and self.snapshot.index == index:
            self.acknowledged_offset = max(self.acknowledged_offset, min(offset, len(self.snapshot.data)))
            self.sent_offset = max(self.sent_offset, self.acknowledged_offset)

    def retry(self, now: float, timeout: float) -> None:
        """Send again what was not answered within `timeout` seconds."""
        if self.mode is Mode.REPLICATE and self.inflight and self.inflight[0].at < now - timeout:
            self.probe(self.match + 1)
        elif self.mode is not Mode.REPLICATE and self.probe_at < now - timeout:
            self.probe_sequence = 0
            self.sent_offset = self.acknowledged_offset
