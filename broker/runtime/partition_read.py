"""What one partition contributes to the answer to a fetch.

Knows the shape only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from raftlog.broker.core.fetch.session import FetchedPartition
    from raftlog.broker.core.log.results import FileRange
    from raftlog.broker.core.log.transactions import AbortedTransaction
    from raftlog.broker.runtime.fetching import PartitionWatch
    from raftlog.wire.errors import ErrorCode

Entry: TypeAlias = "FetchedPartition[PartitionWatch]"


class PartitionRead(NamedTuple):
    """What one partition contributes to a reply. `records` is None for nothing."""

    entry: Entry
    error: ErrorCode
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    records: FileRange | None
    aborted: Sequence[AbortedTransaction] | None
    diverging: tuple[int, int] | None = None  # epoch, end offset (KIP-595)
    preferred_replica: int = -1  # where the reader should read instead (KIP-392)
    leader: tuple[int, int] | None = None  # leader and its epoch, told to who asked the wrong broker (KIP-951)
    more: bool = False  # there is something to read, though the limits left no room for it
