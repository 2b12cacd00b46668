"""Why logs may begin later than they did: a record is gone only by a rule that somebody asked for.

The rules are DeleteRecords, retention.ms and retention.bytes, each of them below what is committed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Protocol

from raftlog.broker.store.partition_log import PartitionLog


class Committed(Protocol):
    """A committed batch, as the invariants know it."""

    @property
    def base_offset(self) -> int: ...
    @property
    def end_offset(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def size(self) -> int: ...


class LogStarts:
    """All logs of a cluster. `asked`: up to where clients have asked to delete records, by topic and partition.

    `highest`: the greatest start that a rule has given any replica, by partition; others may take it over.
    """

    def __init__(self) -> None:
        self.asked: defaultdict[tuple[str, int], int] = defaultdict(int)
        self.highest: defaultdict[tuple[str, int, bytes], int] = defaultdict(int)

    def taken(self, key: tuple[str, int, bytes], start: int) -> None:
        """A replica's log begins here, and nobody can say why: its disk is bad."""
        self.highest[key] = max(self.highest[key], start)

    def moved(
        self,
        key: tuple[str, int, bytes],
        log: PartitionLog,
        committed: Sequence[Committed],
        now_ms: int,
        *,
        is_found: bool,
    ) -> str | None:
        """A replica's log begins where it did not; what is wrong with that. `now_ms`: its own wall clock.

        `is_found`: it began there when its broker started. When retention.bytes let records go, the log may have been
        longer than what a crash has left of it.
        """
        start = log.log_start_offset
        if start <= self.highest[key]:
            return None
        if start > log.high_watermark:
            return f"the log starts at {start}, and only what is below {log.high_watermark} is known to be committed"
        allowed = max(self.highest[key], self.asked[key[:2]])
        self.highest[key] = start
        if start <= allowed or (is_found and log.config.retention_bytes >= 0):
            return None
        gone = [batch for batch in committed if batch.end_offset > allowed and batch.base_offset < start]
        return _kept_too_short(gone, log, now_ms)


def _kept_too_short(gone: Sequence[Committed], log: PartitionLog, now_ms: int) -> str | None:
    """Nobody asked for these batches to be deleted: retention must have taken them."""
    config = log.config
    young = [b for b in gone if config.retention_ms < 0 or now_ms - b.max_timestamp <= config.retention_ms]
    if not young:
        return None
    # When the last of them went, those behind it were still there.
    later = sum(batch.size for batch in gone if batch.base_offset > young[-1].base_offset)
    left = later + sum(segment.size for segment in log.opened.segments)
    if config.delete and 0 <= config.retention_bytes <= left:
        return None
    first = young[0]
    return (
        f"the log starts at {log.log_start_offset}; {len(young)} batches from {first.base_offset} on were not to go:"
        f" {left} bytes are left, and the first was of {now_ms - first.max_timestamp} ms ago"
    )
