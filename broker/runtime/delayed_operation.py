"""Waiting for a partition to move: Kafka's DelayedOperation, watched at the partition."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Protocol

from raftlog.wire.errors import ErrorCode


class Mark(IntEnum):
    """The offsets of a partition that move on, and that somebody may wait for."""

    LOG_END = 0
    HIGH_WATERMARK = 1
    """With it: the log's start, the ISR."""
    FLUSHED = 2
    """What is on the disk. To wait for it is to ask for a flush."""
    LOW_WATERMARK = 3
    """The least log start of all replicas that can be reached (KIP-107)."""


class DelayedOperation(Protocol):
    """What waits for marks of a partition."""

    def try_complete(self, mark: Mark) -> bool:
        """The mark has moved, or the partition's role or state has changed. True when nothing more is waited for."""


class Watchable(Protocol):
    """What has marks that can be waited for."""

    def wait(self, mark: Mark, offset: int, callback: Callable[[ErrorCode], None]) -> DelayedOperation:
        """Call back with NONE once `mark` is at least `offset`, or with why it never will be; at once if that is known.
        Who waits no more has to `unwatch` what is returned.
        """

    def unwatch(self, mark: Mark, operation: DelayedOperation) -> None:
        """Wait no more."""


class OffsetWait:
    """Waits for one mark to come to an offset, once.

    `reached(mark, offset)` is NONE if it has, another error if it never will, None while that is open.
    """

    __slots__ = ("_callback", "_offset", "_reached")

    def __init__(
        self, offset: int, reached: Callable[[Mark, int], ErrorCode | None], callback: Callable[[ErrorCode], None]
    ) -> None:
        self._offset = offset
        self._reached = reached
        self._callback: Callable[[ErrorCode], None] | None = callback

    def try_complete(self, mark: Mark) -> bool:
        """See DelayedOperation."""
        callback = self._callback
        if callback is not None:
            outcome = self._reached(mark, self._offset)
            if outcome is None:
                return False
            # First: the callback may append to the partition, and then this is tried again.
            self._callback = None
            callback(outcome)
        return True
