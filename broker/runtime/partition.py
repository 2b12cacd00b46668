"""One partition that this broker hosts: its log, its epoch, and who waits for it to move.

Knows when an append is committed and whom to tell. Refuses to know requests and files. With one replica the
high watermark follows the log's end (or, with flush.messages, what is on the disk); with followers it will
follow the slowest of the in-sync replicas, and nothing that uses this class will notice.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from raftlog.broker.core.log.results import AppendOrigin
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.store.partition_log import AppendResult, PartitionLog


class Watcher(Protocol):
    """Told that a partition's readable end, start or state may have changed."""

    def on_progress(self) -> None: ...


class Partition:
    """A hosted partition.

    Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; `error` is NONE
    exactly when this broker leads the partition and its log can be used.
    """

    __slots__ = (
        "_commit_waiters",
        "_flush",
        "error",
        "error_message",
        "flushing",
        "index",
        "internal",
        "isr_size",
        "leader_epoch",
        "log",
        "min_isr",
        "topic",
        "topic_id",
        "watchers",
    )

    def __init__(
        self, topic: str, topic_id: bytes, index: int, log: PartitionLog, flush: Callable[[Partition], None]
    ) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.leader_epoch = 0
        # A topic of the broker's own, which clients read and do not write.
        self.internal = False
        self.isr_size = 1
        self.min_isr = 1
        # A flush is under way, and what was appended is not acknowledged before it ends.
        self.flushing = False
        self.error = ErrorCode.NONE
        self.error_message: str | None = None
        # Insertion-ordered, so that who waits longest is told first.
        self.watchers: dict[Watcher, None] = {}
        self._commit_waiters: list[tuple[int, Callable[[ErrorCode], None]]] = []
        self._flush = flush

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def append_from_client(self, records: memoryview, now_ms: int) -> AppendResult:
        """Append what a produce request brought; it is readable once it is committed.

        An I/O error takes the partition offline and is answered with KAFKA_STORAGE_ERROR.
        """
        result = self.log.append_as_leader(records, self.leader_epoch, now_ms)
        if result.error is ErrorCode.NONE:
            self._appended()
        return result

    def append(self, records: bytes, now_ms: int) -> AppendResult:
        """Append for a coordinator of this broker."""
        result = self.log.append_as_leader(records, self.leader_epoch, now_ms, origin=AppendOrigin.COORDINATOR)
        if result.error is ErrorCode.NONE:
            self._appended()
        return result

    def _appended(self) -> None:
        log = self.log
        if log.flush_due:
            self._flush(self)
        else:
            self.advance(log.log_end_offset)

    def advance(self, committed_offset: int) -> None:
        """Move the high watermark to what is committed and tell who waits."""
        self.log.update_high_watermark(committed_offset)
        self.notify()

    def notify(self) -> None:
        """Something that readers or committers wait for has changed."""
        if self._commit_waiters:
            self._complete_commits()
        if self.watchers:
            for watcher in list(self.watchers):
                watcher.on_progress()

    def when_committed(self, end_offset: int, callback: Callable[[ErrorCode], None]) -> None:
        """Call back with NONE once the high watermark is at least `end_offset`, or with why it never will be."""
        if self.error is not ErrorCode.NONE:
            callback(self.error)
        elif self.log.high_watermark >= end_offset:
            callback(ErrorCode.NONE)
        else:
            self._commit_waiters.append((end_offset, callback))

    def fail(self, error: ErrorCode, message: str) -> None:
        """Take it out of service; everybody who waits hears why."""
        self.error = error
        self.error_message = message
        self.notify()

    def _complete_commits(self) -> None:
        high_watermark = self.log.high_watermark
        waiters, self._commit_waiters = self._commit_waiters, []
        for end_offset, callback in waiters:
            if self.error is not ErrorCode.NONE:
                callback(self.error)
            elif high_watermark >= end_offset:
                callback(ErrorCode.NONE)
            else:
                self._commit_waiters.append((end_offset, callback))

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """Compare an epoch that a client knows (-1: none) with ours (KIP-320)."""
        if epoch < 0 or epoch == self.leader_epoch:
            return ErrorCode.NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
