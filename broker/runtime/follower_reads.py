"""What a follower is sent of a partition: all records; where it fetches is what it acknowledges."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.core.replica.following import UNDEFINED, is_diverging
from raftlog.broker.runtime.partition_read import PartitionRead
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.fetch.session import FetchedPartition, FetchSession
    from raftlog.broker.core.replica.throttle import Throttles
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.runtime.partition_manager import PartitionManager
    from raftlog.broker.runtime.session_watches import SessionWatches
    from raftlog.broker.runtime.timer_wheel import TimerWheel

HELD_BACK_MS_MAX = 1000
"""After this time a throttled follower is looked at again: the rate may have changed."""


class FollowerReads:
    """Reads for followers. `held_back` are partitions that are throttled, or not yet opened here: each is looked at
    again later, and `wake(session)` called when its session waits."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        partitions: PartitionManager,
        watches: SessionWatches,
        wake: Callable[[FetchSession], None],
    ) -> None:
        self._loop = loop
        self._timers = timers
        self._partitions = partitions
        self._watches = watches
        self._wake = wake
        self.held_back: dict[FetchedPartition, None] = {}

    def read(self, entry: FetchedPartition, bytes_max: int, min_one: bool) -> PartitionRead:
        """At most `bytes_max`; with `min_one` the first batch whole. A new position is taken as acknowledgement."""
        partition = self._watches.resolve(entry)
        if isinstance(partition, ErrorCode):
            return PartitionRead(entry, partition)
        error = partition.check_leader_epoch(entry.leader_epoch)
        if error is not ErrorCode.NONE:
            return PartitionRead(entry, error)
        log = partition.log
        if not entry.acknowledged:
            refusal = self._acknowledge(entry, partition)
            if refusal is not None:
                return refusal
        if entry.fetch_offset < log.log_start_offset:
            # What it was to fetch next has expired while it was away, or waited.
            return PartitionRead(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
        read = PartitionRead.of(entry, partition)
        read.more = entry.fetch_offset < log.log_end_offset
        throttles = self._throttles_of(entry, partition)
        if throttles is not None and self._hold_back(throttles, entry):
            read.more = False
        bytes_max = min(entry.partition_bytes_max, bytes_max)
        if read.more and (bytes_max > 0 or min_one):
            try:
                read.add(log.read(entry.fetch_offset, bytes_max, log.log_end_offset, min_one=min_one))
            except LogUnavailable as failure:
                self._partitions.storage_failed(partition, failure)
                return PartitionRead(entry, ErrorCode.KAFKA_STORAGE_ERROR)
            if throttles is not None:
                throttles.leaders.used(read.size, self._now_ms())
        return read

    @staticmethod
    def _acknowledge(entry: FetchedPartition, partition: Partition) -> PartitionRead | None:
        """Take note of where the follower is, unless it is where we have never been; then what to tell it."""
        session, leadership = entry.session, partition.leadership
        if leadership is None:
            # It knows of followers and we do not, yet.
            return PartitionRead(entry, ErrorCode.UNKNOWN_LEADER_EPOCH)
        follower = leadership.follower(session.replica_id, session.replica_epoch)
        if isinstance(follower, ErrorCode):
            return PartitionRead(entry, follower)
        log, offset = partition.log, entry.fetch_offset
        if entry.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(entry.last_fetched_epoch)
            if epoch == UNDEFINED or offset < log.log_start_offset:
                return PartitionRead(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
            if is_diverging(epoch, end_offset, entry.last_fetched_epoch, offset):
                read = PartitionRead.of(entry, partition)
                read.diverging = epoch, end_offset
                return read
        if not log.log_start_offset <= offset <= log.log_end_offset:
            return PartitionRead(entry, ErrorCode.OFFSET_OUT_OF_RANGE)
        entry.acknowledged = True
        follower.heard(session, session.replica_epoch)
        partition.acknowledged(follower, offset, entry.log_start_offset)
        return None

    # Held back ---------------------------------------------------------------------------------------

    def _throttles_of(self, entry: FetchedPartition, partition: Partition) -> Throttles | None:
        """What holds the follower back: nothing when it is in sync (KIP-73)."""
        throttles, replica_id = self._partitions.throttles, entry.session.replica_id
        if throttles is None or replica_id in partition.isr:
            return None
        return throttles if throttles.on_leader(partition.topic, partition.index, replica_id) else None

    def _hold_back(self, throttles: Throttles, entry: FetchedPartition) -> bool:
        wait_ms = throttles.leaders.wait_ms(self._now_ms())
        if wait_ms > 0 and entry not in self.held_back:
            self.held_back[entry] = None
            self._timers.add_after(_HeldBack(self, entry), min(wait_ms, HELD_BACK_MS_MAX) / 1000)
        return wait_ms > 0

    def awaits_opening(self, entry: FetchedPartition) -> bool:
        """Whether the partition has yet to be opened, in its turn; it is looked at again then.

        A follower that comes back asks for thousands at once, and need not be told of each in its first answer.
        """
        topic_id, opening = entry.topic.topic_id, self._partitions.opening
        if entry in self._watches or (topic_id, entry.index) not in opening:
            return False
        if entry not in self.held_back:
            self.held_back[entry] = None
            opening.on_open(topic_id, entry.index, partial(self.look_again, entry))
        return True

    def look_again(self, entry: FetchedPartition) -> None:
        """What held it back may be over."""
        del self.held_back[entry]
        session = entry.session
        if session.partitions.get((entry.topic, entry.index)) is entry:
            session.ready[entry] = None
            if session.is_waiting:
                self._wake(session)

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)


class _HeldBack:
    """A partition that is held back, until its time is up."""

    __slots__ = ("_entry", "_reads")

    def __init__(self, reads: FollowerReads, entry: FetchedPartition) -> None:
        self._reads = reads
        self._entry = entry

    def expire(self) -> None:
        """See Expiring."""
        self._reads.look_again(self._entry)
