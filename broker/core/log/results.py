"""What a partition log answers: the outcome of an append, a range of a file, and why it cannot serve."""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple, Protocol

from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import LeaderEpoch


class AppendOrigin(IntEnum):
    """Who appends; it decides how much is checked (Kafka's AppendOrigin)."""

    CLIENT = 0
    """A produce request: everything is checked, sequence numbers too."""
    COORDINATOR = 1
    """The group or transaction coordinator of this broker: no sequence numbers, control batches allowed."""
    REPLICATION = 2
    """A follower copying its leader, or recovery: what the leader accepted is accepted."""


class RecordError(NamedTuple):
    """One record that made its batch be refused (KIP-467)."""

    batch_index: int
    message: str | None


class AppendResult(NamedTuple):
    """The outcome of an append. With an error nothing was written and the offsets are -1."""

    error: ErrorCode
    base_offset: int
    last_offset: int
    log_append_time_ms: int
    """The broker's time given to the records, -1 under message.timestamp.type=CreateTime."""
    log_start_offset: int
    message: str | None = None
    record_errors: tuple[RecordError, ...] = ()
    duplicate: bool = False
    """True if these records were in the log already; the offsets are those of the first time (KIP-98)."""

    @classmethod
    def refused(
        cls,
        error: ErrorCode,
        message: str | None = None,
        record_errors: tuple[RecordError, ...] = (),
        *,
        log_start_offset: int = -1,
    ) -> AppendResult:
        """Nothing was written. The log start is -1 where no log was asked."""
        return cls(error, -1, -1, -1, log_start_offset, message, record_errors)


TAKES_LONG: Final = AppendResult.refused(ErrorCode.REQUEST_TIMED_OUT)
"""Nothing was done with the batch of a client: to check it would keep others waiting."""


class OpenFile(Protocol):
    """An open file that stays open as long as this object is referred to."""

    fd: int
    failure: OSError | None

    def read(self, length: int, position: int, /) -> bytes:
        """`length` bytes, or fewer if the file ends. Raises OSError."""


class FileRange(NamedTuple):
    """Whole batches (the last one perhaps cut short) as a range of a segment file, for sendfile or to be read.

    The bytes stay readable as long as the range is referred to, even when the segment is deleted meanwhile.
    """

    file: OpenFile
    position: int
    length: int

    def fileno(self) -> int:
        return self.file.fd

    def failed(self, error: OSError) -> None:
        """The disk has not given the bytes: who reads the file next is told."""
        self.file.failure = error

    def read(self) -> bytes:
        """The bytes, through the disk port; fewer if the file ends. Raises OSError."""
        return self.file.read(self.length, self.position)


class FoundOffset(NamedTuple):
    """A record found by its time. `timestamp` in ms since 1970; `leader_epoch` -1 if it is not known."""

    offset: int
    timestamp: int
    leader_epoch: LeaderEpoch


class LogUnavailable(Exception):
    """The log cannot do what was asked; clients get `error`. An expected outcome, not a bug."""

    error = ErrorCode.KAFKA_STORAGE_ERROR


class OffsetOutOfRange(LogUnavailable):
    """The offset is below the log start or above the log end."""

    error = ErrorCode.OFFSET_OUT_OF_RANGE


class LogDamaged(LogUnavailable):
    """Bytes that were known to be whole are not any more. The message names file, position and what to do."""
