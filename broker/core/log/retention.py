"""Which old segments may go, by age, by size and by the log start offset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raftlog.broker.core.log.config import LogConfig


class SegmentFacts(NamedTuple):
    """`end_offset` is the next segment's base offset, or the log end for the last. Sizes in bytes."""

    base_offset: int
    end_offset: int
    size: int
    largest_timestamp: int
    """Greatest timestamp of its records, or when the file was last changed if they have none; ms since 1970."""


class Removal(NamedTuple):
    """How many of the oldest segments go, and why, for the log."""

    number: int
    reason: str


def segments_to_remove(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    log_start_offset: int,
    high_watermark: int,
    now_ms: int,
) -> Removal:
    """The longest run of oldest segments of which each may go for one of the reasons.

    Nothing at or above the high watermark goes: followers may still need it. An empty last segment stays.
    """
    total = sum(segment.size for segment in segments)
    reasons: list[str] = []
    count = 0
    for segment in segments:
        empty_active = segment.size == 0 and segment is segments[-1]
        if empty_active or segment.end_offset > high_watermark:
            break
        reason = _reason(segment, config, total, log_start_offset, now_ms)
        if reason is None:
            break
        if reason not in reasons:
            reasons.append(reason)
        total -= segment.size
        count += 1
    return Removal(count, ", ".join(reasons))


def _reason(segment: SegmentFacts, config: LogConfig, total: int, log_start_offset: int, now_ms: int) -> str | None:
    if segment.end_offset <= log_start_offset:
        return f"its end is at or below the log start offset {log_start_offset}"
    if not config.delete:
        return None
    if config.retention_ms >= 0 and now_ms - segment.largest_timestamp > config.retention_ms:
        return f"retention.ms={config.retention_ms}"
    if config.retention_bytes >= 0 and total - config.retention_bytes >= segment.size:
        return f"retention.bytes={config.retention_bytes}"
    return None
