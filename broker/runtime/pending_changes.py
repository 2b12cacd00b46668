"""What this node has proposed while it leads, and what is not committed yet: the next decision is made on top of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import Record
from raftlog.raft.seam import MetadataLog
from raftlog.wire.errors import InvariantViolation


class PendingChange(NamedTuple):
    """One entry, and what it makes of the image before it."""

    entry_index: int
    entry: bytes
    delta: MetadataDelta
    image: MetadataImage


class PendingChanges:
    """In the order in which they were proposed, each on top of the one before."""

    def __init__(self, metadata_log: MetadataLog) -> None:
        self._log = metadata_log
        self._changes: deque[PendingChange] = deque()
        self._term = -1

    def __bool__(self) -> bool:
        return bool(self._changes)

    def newest(self, committed: MetadataImage) -> MetadataImage:
        """The image with all that is pending."""
        changes, last_index = self._changes, self._log.last_index
        # What the log has not taken, or has given up, is gone. What was proposed before that may still be committed.
        while changes and changes[-1].entry_index > last_index:
            changes.pop()
        if changes and (changes[-1].entry_index != last_index or self._term != self._log.term):
            # Another node leads now.
            changes.clear()
        return changes[-1].image if changes else committed

    def add(self, committed: MetadataImage, records: Sequence[Record], entry: bytes) -> None:
        """`entry`, which holds these records, is proposed next."""
        delta = MetadataDelta(self.newest(committed))
        for record in records:
            delta.replay(record)
        if delta.anomalies:
            raise InvariantViolation(f"a decision contradicts the metadata: {'; '.join(delta.anomalies)}")
        index = self._log.last_index + 1
        self._term = self._log.term
        self._changes.append(PendingChange(index, entry, delta, delta.apply(index)))

    def committed(self, index: int, entry: bytes) -> PendingChange | None:
        """The change that this committed entry is; None when it is somebody else's, and then ours never will be."""
        if not self._changes:
            return None
        first = self._changes[0]
        # The bytes are compared: after a change of leaders another entry may stand in this place.
        if first.entry_index == index and first.entry == entry:
            return self._changes.popleft()
        self._changes.clear()
        return None

    def clear(self) -> None:
        """This node does not lead any more: its proposals fail, and what follows is decided by another node."""
        self._changes.clear()
