"""Which leader epoch began at which offset, and so where two replicas' logs part (KIP-101, KIP-279, KIP-320)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

from raftlog.wire.errors import InvariantViolation
from raftlog.wire.ids import LeaderEpoch

UNDEFINED: Final = LeaderEpoch(-1)
"""Kafka's word for "no such epoch" and "no such offset" in OffsetForLeaderEpoch."""


class LeaderEpochs:
    """The epochs of one partition log, oldest first.

    Invariant: epochs and start offsets both rise strictly.
    """

    __slots__ = ("_epochs", "_saved", "_starts", "latest")

    def __init__(self, entries: Iterable[tuple[LeaderEpoch, int]] = ()) -> None:
        self._epochs: list[LeaderEpoch] = []
        self._starts: list[int] = []
        self.latest = UNDEFINED
        for epoch, start in entries:
            self.assign(epoch, start)
        self._saved = list(self)

    def __iter__(self) -> Iterator[tuple[LeaderEpoch, int]]:
        return iter(zip(self._epochs, self._starts, strict=True))

    def __len__(self) -> int:
        return len(self._epochs)

    @property
    def latest_start(self) -> int:
        """Where the latest epoch began; -1 if none is known."""
        return self._starts[-1] if self._starts else UNDEFINED

    def assign(self, epoch: LeaderEpoch, start_offset: int) -> None:
        """`epoch` begins at `start_offset`. What contradicts it (a later epoch or a later start) is dropped.

        An epoch that is known already, or none (-1), changes nothing.
        """
        if epoch < 0 or epoch == self.latest:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self.latest = epoch

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[LeaderEpoch, int]:
        """(largest known epoch that is not above `epoch`, where it ended), or (-1, -1) if unknown.

        The latest epoch ends at the log end (KIP-320). An epoch before the first one known ends where that begins.
        """
        if epoch == UNDEFINED or not self._epochs or epoch > self.latest:
            return UNDEFINED, UNDEFINED
        if epoch == self.latest:
            return self.latest, log_end_offset
        above = bisect_right(self._epochs, epoch)
        if above == 0:
            return LeaderEpoch(epoch), self._starts[0]
        return self._epochs[above - 1], self._starts[above]

    def epoch_of(self, offset: int) -> LeaderEpoch:
        """The epoch in which the record at `offset` was written; -1 if it is before all that is known."""
        at = bisect_right(self._starts, offset)
        return self._epochs[at - 1] if at else UNDEFINED

    def truncate_from(self, end_offset: int) -> None:
        """Forget the epochs that began at `end_offset` or later: the log ends there now."""
        while self._starts and self._starts[-1] >= end_offset:
            self._epochs.pop()
            self._starts.pop()
        self.latest = self._epochs[-1] if self._epochs else UNDEFINED

    def truncate_before(self, start_offset: int) -> None:
        """Forget what ended before `start_offset`; the epoch that holds it begins there now."""
        kept = bisect_right(self._starts, start_offset) - 1
        if kept < 0 or (self._starts[kept] == start_offset and kept == 0):
            return
        del self._epochs[:kept], self._starts[:kept]
        self._starts[0] = start_offset

    def differ_from_file(self, log_end_offset: int) -> bool:
        """Whether the file should be written: epochs that have records have changed.

        An epoch without records is not worth a file: its leader begins a new one after a restart.
        """
        return self.with_records(log_end_offset) != self._saved

    def save(self, log_end_offset: int) -> list[tuple[LeaderEpoch, int]]:
        """What the file shall hold; from now on it counts as written."""
        self._saved = self.with_records(log_end_offset)
        return self._saved

    def with_records(self, log_end_offset: int) -> list[tuple[LeaderEpoch, int]]:
        """(epoch, start) of those that the file should hold."""
        return [(epoch, start) for epoch, start in self if start < log_end_offset]

    def clear(self) -> None:
        self.truncate_from(0)

    def check_invariants(self) -> None:
        """Raises InvariantViolation unless epochs and starts rise strictly and `latest` is the last."""
        for values in (self._epochs, self._starts):
            if any(later <= earlier for earlier, later in pairwise(values)):
                raise InvariantViolation(f"leader epochs do not rise: {list(self)}")
        if self.latest != (self._epochs[-1] if self._epochs else UNDEFINED):
            raise InvariantViolation(f"latest epoch {self.latest} is not the last of {list(self)}")
