"""Which part of a log is to be compacted, when, and into how many segments (cleanup.policy=compact): Kafka's rules of
dirty ratio, compaction lags and grouping of small segments.

A log is a clean part, in which each key is there once, a dirty part behind it, and what may not be touched yet:
the active segment, what is not decided, and what is too young.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.index import RELATIVE_OFFSET_MAX

LONG_MAX: Final = 2**63 - 1


class CleanableSegment(NamedTuple):
    """`end_offset` is the next segment's base offset, or the log end for the last. Sizes in bytes, times in ms.

    `first_timestamp` is the greatest of the first batch, `largest_timestamp` that of all; both are looked at only
    when a compaction lag is set, and -1 means that there is none.
    """

    base_offset: int
    end_offset: int
    size: int
    offset_index_size: int = 0
    time_index_size: int = 0
    first_timestamp: int = -1
    largest_timestamp: int = -1


class CleanableRange(NamedTuple):
    """What compaction would work on: [first_dirty_offset, end_offset) is dirty, everything below is clean.

    `end_offset` is where a segment begins. `overdue` says that something is older than max.compaction.lag.ms.
    """

    first_dirty_offset: int
    end_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def dirty_ratio(self) -> float:
        """Which part of the bytes that may be touched is dirty, 0 to 1."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, config: LogConfig) -> bool:
        """Whether min.cleanable.dirty.ratio or max.compaction.lag.ms asks for it."""
        if self.dirty_bytes == 0:
            return False
        return self.overdue or self.dirty_ratio > config.min_cleanable_dirty_ratio


def cleanable_range(
    segments: Sequence[CleanableSegment],
    config: LogConfig,
    *,
    cleaned_offset: int,
    log_start_offset: int,
    decided_offset: int,
    now_ms: int,
) -> CleanableRange:
    """The dirty part of a log whose segments are `segments`, the last one active.

    `cleaned_offset` is where the last compaction ended (cleaner-offset-checkpoint), whatever has happened since: one
    that cannot be right any more means that all is dirty. Nothing at or above `decided_offset` is touched: what comes
    there is part of an open transaction, or may still be lost.
    """
    first_dirty = cleaned_offset
    if not log_start_offset <= cleaned_offset <= segments[-1].end_offset:
        first_dirty = log_start_offset
    limit = min(decided_offset, segments[-1].base_offset)
    if config.min_compaction_lag_ms > 0:
        young = now_ms - config.min_compaction_lag_ms
        dirty = (segment for segment in segments[:-1] if segment.end_offset > first_dirty)
        limit = min((segment.base_offset for segment in dirty if segment.largest_timestamp > young), default=limit)
        limit = min(limit, decided_offset, segments[-1].base_offset)
    end_offset = max((segment.base_offset for segment in segments if segment.base_offset <= limit), default=first_dirty)
    end_offset = max(end_offset, first_dirty)
    return CleanableRange(
        first_dirty,
        end_offset,
        sum(segment.size for segment in segments if segment.end_offset <= first_dirty),
        sum(s.size for s in segments if s.end_offset > first_dirty and s.end_offset <= end_offset),
        _overdue(segments, config, first_dirty, now_ms),
    )


def _overdue(segments: Sequence[CleanableSegment], config: LogConfig, first_dirty: int, now_ms: int) -> bool:
    if config.max_compaction_lag_ms >= LONG_MAX:
        return False
    oldest = min(
        (s.first_timestamp for s in segments[:-1] if s.end_offset > first_dirty and s.first_timestamp > 0),
        default=LONG_MAX,
    )
    return oldest < now_ms - config.max_compaction_lag_ms


def group_segments(segments: Sequence[CleanableSegment], config: LogConfig) -> list[list[int]]:
    """Neighbouring segments (by number) that go into one new segment each, so that segments do not shrink to nothing.

    Sums of log and index sizes stay within segment.bytes and segment.index.bytes, offsets within an int32.
    """
    groups: list[list[int]] = []
    size = offset_index_size = time_index_size = base_offset = 0
    for number, segment in enumerate(segments):
        size += segment.size
        offset_index_size += segment.offset_index_size
        time_index_size += segment.time_index_size
        if (
            groups
            and size <= config.segment_bytes
            and offset_index_size <= config.segment_index_bytes
            and time_index_size <= config.segment_index_bytes
            and segment.end_offset - 1 - base_offset <= RELATIVE_OFFSET_MAX
        ):
            groups[-1].append(number)
            continue
        groups.append([number])
        size, base_offset = segment.size, segment.base_offset
        offset_index_size, time_index_size = segment.offset_index_size, segment.time_index_size
    return groups
