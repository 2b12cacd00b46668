"""What a fetch asks for, and what one partition contributes to its answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.fetch.session import FetchedPartition
    from raftlog.broker.core.log.results import FileRange
    from raftlog.broker.core.log.transactions import AbortedTransaction
    from raftlog.broker.runtime.partition import Partition


class FetchParams(NamedTuple):
    """How much a fetch asks for, how long it may wait, and what it may see. The first batch comes whole in any case."""

    wait_seconds: float
    bytes_min: int
    bytes_max: int
    read_committed: bool
    whole_answer: bool  # answer about every partition, not only those that have changed


class PartitionRead:
    """What one partition contributes to a reply. Offsets are -1 with an error.

    `records` is None for nothing, of `size` bytes; a few are read before they are sent: bytes then. `aborted` is
    None unless committed records alone were asked for. `diverging` is an epoch and its end offset (KIP-595),
    `preferred_replica` where the client should read instead (KIP-392), `leader` the leader and its epoch for a client
    that asked the wrong broker (KIP-951). `more` says that there is something to read, though the limits left no room.
    """

    __slots__ = (
        "aborted",
        "diverging",
        "entry",
        "error",
        "high_watermark",
        "last_stable_offset",
        "leader",
        "log_start_offset",
        "more",
        "partition",
        "preferred_replica",
        "records",
        "size",
    )

    def __init__(self, entry: FetchedPartition, error: ErrorCode) -> None:
        self.entry = entry
        self.error = error
        self.high_watermark = self.last_stable_offset = self.log_start_offset = -1
        self.records: FileRange | bytes | None = None
        self.size = 0
        self.aborted: Sequence[AbortedTransaction] | None = None
        self.diverging: tuple[int, int] | None = None
        self.preferred_replica = -1
        self.leader: tuple[int, int] | None = None
        self.more = False
        self.partition: Partition | None = None

    @classmethod
    def of(cls, entry: FetchedPartition, partition: Partition) -> PartitionRead:
        """Where its log is; no records yet."""
        read = cls(entry, ErrorCode.NONE)
        read.partition, log = partition, partition.log
        read.high_watermark = log.high_watermark
        read.last_stable_offset = log.last_stable_offset
        read.log_start_offset = log.log_start_offset
        return read

    def add(self, records: FileRange | None) -> None:
        """There are records, or none after all."""
        if records is not None:
            self.records = records
            self.size = records.length

    @property
    def cannot_wait(self) -> bool:
        """Whether it is told at once, however few the records are."""
        return self.error is not ErrorCode.NONE or self.diverging is not None or self.preferred_replica >= 0

    @property
    def has_changed(self) -> bool:
        """Whether its reader does not know where the log is."""
        entry = self.entry
        return self.high_watermark != entry.sent_high_watermark or self.log_start_offset != entry.sent_log_start_offset

    def note_sent(self) -> None:
        """It goes out."""
        entry, size, partition = self.entry, self.size, self.partition
        entry.sent_high_watermark = self.high_watermark
        entry.sent_log_start_offset = self.log_start_offset
        if not size or partition is None:
            return
        if entry.session.is_follower:
            partition.traffic.replication_bytes_out += size
        else:
            partition.traffic.bytes_out += size
