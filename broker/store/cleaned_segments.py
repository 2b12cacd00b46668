"""The segments that compaction writes, under names that a restart removes (`.cleaned`)."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from raftlog.broker.core.log.cleaned_batches import Step, offload
from raftlog.broker.core.log.index import RELATIVE_OFFSET_MAX
from raftlog.broker.core.log.transactions import AbortedTransaction
from raftlog.broker.store.files import Descriptor
from raftlog.broker.store.names import CLEANED_SUFFIX
from raftlog.broker.store.open_log import OpenLog
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.broker.store.segment import Segment
from raftlog.broker.store.transaction_index import TransactionIndex
from raftlog.wire.batch import BatchHeader

WRITE_BYTES: Final = 64 * 1024
"""Written at once to a new segment."""
SEGMENT_BYTES_LIMIT: Final = 2**31 - 1
"""Positions in an index are int32. Batches grow a little when they get a delete horizon, so a group may not fit."""


class CleanedSegments:
    """New segments of an open log; a second one only where one cannot take a whole group."""

    def __init__(self, opened: OpenLog, log: PartitionLog, base_offset: int, now_ms: int) -> None:
        self._opened = opened
        self._log = log
        self._now_ms = now_ms
        self.segments = [_create(opened, base_offset, now_ms)]
        self._waiting: list[bytes | bytearray | memoryview] = []
        self._headers: list[tuple[int, BatchHeader]] = []
        self._waiting_bytes = 0
        self._index_is_full = False

    def add(self, header: BatchHeader, batch: bytes | bytearray | memoryview) -> None:
        """Append a batch. Raises OSError."""
        segment = self.segments[-1]
        if (
            self._index_is_full
            or segment.size + self._waiting_bytes + header.size > SEGMENT_BYTES_LIMIT
            or header.last_offset - segment.base_offset > RELATIVE_OFFSET_MAX
        ):
            self._write()
            segment.finish()
            self.segments.append(_create(self._opened, header.base_offset, self._now_ms))
            self._index_is_full = False
        self._headers.append((self._waiting_bytes, header))
        self._waiting.append(batch)
        self._waiting_bytes += header.size
        if self._waiting_bytes >= WRITE_BYTES:
            self._write()

    def add_transaction(self, transaction: AbortedTransaction) -> None:
        """Keep an entry of the transaction index, in the segment that its marker goes to. Raises OSError."""
        self.segments[-1].transactions.add(transaction)

    def _write(self) -> None:
        if self._headers:
            data = b"".join(self._waiting)
            config, segment = self._log.config, self.segments[-1]
            segment.append_run(data, self._headers, config.index_interval_bytes)
            self._index_is_full = segment.is_full(config.segment_index_bytes)
            self._waiting, self._headers, self._waiting_bytes = [], [], 0

    def finish(self, changed_ms: int) -> Generator[Step, None, None]:
        """Everything is in the files and on stable storage. Raises OSError."""
        self._write()
        for segment in self.segments:
            segment.finish()
            # What a segment is as old as, for retention, if it has no timestamps.
            segment.changed_ms = changed_ms
            files = (segment.descriptor(), segment.offsets.file.open(), segment.times.file.open())
            yield from offload(partial(self._sync, files, segment.transactions), OSError)

    def _sync(self, files: Sequence[Descriptor], transactions: TransactionIndex) -> None:
        for descriptor in files:
            self._opened.store.disk.sync(descriptor.fd)
        transactions.sync()

    def discard(self) -> None:
        """Remove the segments that have not taken their place; a start would."""
        for segment in self.segments:
            with suppress(OSError):
                segment.remove()
        self.segments = []


def _create(opened: OpenLog, base_offset: int, now_ms: int) -> Segment:
    """An empty segment under a name that a restart removes. Raises OSError."""
    return Segment.create(opened.store.files, opened.directory, base_offset, now_ms=now_ms, suffix=CLEANED_SUFFIX)
