"""What a transaction index says, compared with the log: the file has no checksum.

A reader of committed records drops what is told to be aborted and takes the rest, so one bit would do. Entries are
compared when they are first needed, those that were in the file at the start; what this process has written itself is
not.
"""

from __future__ import annotations

from raftlog.broker.core.log.transactions import AbortedTransaction, contradiction
from raftlog.broker.store.log_segments import LogSegments
from raftlog.broker.store.segment import Segment
from raftlog.wire.batch import BatchHeader


def sound_entries(segment: Segment, end_offset: int) -> list[AbortedTransaction]:
    """The entries of a segment that ends at this offset, which do not contradict each other. Raises OSError,
    LogDamaged.
    """
    index = segment.transactions
    entries = index.entries
    if index.unchecked is None:
        what = contradiction(entries, segment.base_offset, end_offset)
        if what is None and index.has_more:
            what = "an entry is of a version that nobody writes"
        if what is not None:
            raise segment.transactions.damaged(what)
        index.unchecked = set(entries)
    return entries


def check_transaction(segments: LogSegments, segment: Segment, entry: AbortedTransaction) -> None:
    """Compare an entry of a segment with its batches. Raises OSError, LogDamaged."""
    unchecked = segment.transactions.unchecked
    if not unchecked or entry not in unchecked:
        return
    marker = _batch_at(segments, entry.last_offset)
    if marker is None or not marker.is_control or marker.producer_id != entry.producer_id:
        raise segment.transactions.damaged(f"{entry} has no marker")
    first = _batch_at(segments, entry.first_offset)
    if first is not None and not (_begins(first, entry.first_offset) and first.producer_id == entry.producer_id):
        raise segment.transactions.damaged(f"{entry} does not begin there")
    later = segments[segments.number_of(entry.last_offset) + 1 :]
    if any(each.transactions.first_offset < entry.last_stable_offset for each in later):
        raise segment.transactions.damaged(f"a later transaction began below the last stable offset of {entry}")
    if entry.last_stable_offset <= entry.last_offset:
        stable = _batch_at(segments, entry.last_stable_offset)
        if stable is not None and not _begins(stable, entry.last_stable_offset):
            raise segment.transactions.damaged(f"no transaction begins at the last stable offset of {entry}")
    unchecked.discard(entry)


def _batch_at(segments: LogSegments, offset: int) -> BatchHeader | None:
    """The header of the batch that holds an offset; None where retention or compaction has taken it."""
    if offset < segments[0].base_offset:
        return None
    number, position = segments.find(offset)
    header = next(segments[number].headers(position), (0, None))[1]
    return header if header is not None and header.base_offset <= offset else None


def _begins(batch: BatchHeader, offset: int) -> bool:
    """Whether a transaction may begin with the batch, at this offset."""
    return batch.base_offset == offset and batch.is_transactional and not batch.is_control

