"""Which partitions the fetch sessions watch: from what a client names to what is hosted here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.fetch.session import FetchedPartition, FetchSession
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.runtime.partition_manager import PartitionManager

Wake = Callable[["FetchSession"], None]


class PartitionWatch:
    """A DelayedOperation that is never complete: it tells a fetch session that one of its partitions has moved. A
    consumer's when more is committed, a follower's at each append.
    """

    __slots__ = ("_entry", "_is_follower", "_session", "_wake", "partition")

    def __init__(self, entry: FetchedPartition, partition: Partition, wake: Wake) -> None:
        self._entry = entry
        self._session = entry.session
        self._is_follower = entry.session.is_follower
        self._wake = wake
        self.partition = partition
        partition.watch(Mark.HIGH_WATERMARK, self)
        if self._is_follower:
            partition.watch(Mark.LOG_END, self)

    def try_complete(self, mark: Mark) -> bool:
        """See DelayedOperation. A follower hears of the high watermark with its next answer, and is seldom woken for
        that."""
        session = self._session
        if mark is Mark.HIGH_WATERMARK and self._is_follower:
            session.dirty[self._entry] = None
            if not session.wakes_when_dirty:
                return False
        else:
            session.ready[self._entry] = None
        if session.is_waiting:
            self._wake(session)
        return False

    def end(self) -> None:
        """Watch no more."""
        self.partition.unwatch(Mark.HIGH_WATERMARK, self)
        self.partition.unwatch(Mark.LOG_END, self)


class SessionWatches:
    """The watches of all sessions. `wake(session)` is called when a session that waits has something to look at."""

    def __init__(self, partitions: PartitionManager, wake: Wake) -> None:
        self._partitions = partitions
        self._wake = wake
        self._watches: dict[FetchedPartition, PartitionWatch] = {}

    def __contains__(self, entry: FetchedPartition) -> bool:
        return entry in self._watches

    def resolve(self, entry: FetchedPartition) -> Partition | ErrorCode:
        """The partition to read from, which a session that is watched hears of from now on; or why there is none."""
        watch = self._watches.get(entry)
        if watch is not None:
            partition = watch.partition
            if partition.error is ErrorCode.NONE or (
                entry.session.reads_replicas and partition.read_error is ErrorCode.NONE
            ):
                return partition
        find = self._partitions.find_replica if entry.session.reads_replicas else self._partitions.find
        found = find(entry.topic.name, entry.topic.topic_id, entry.index)
        if not entry.session.is_watched:
            return found
        if watch is None or found is not watch.partition:
            self.release(entry)
            if not isinstance(found, ErrorCode):
                # Where a follower is was said to what it was read from before: its log was offline meanwhile.
                entry.acknowledged = False
                self._watches[entry] = PartitionWatch(entry, found, self._wake)
        return found

    def find(self, entry: FetchedPartition) -> Partition | ErrorCode:
        """The partition that it was read from, which is not watched from now on."""
        return self._partitions.find_replica(entry.topic.name, entry.topic.topic_id, entry.index)

    def release(self, entry: FetchedPartition) -> None:
        """Stop watching."""
        watch = self._watches.pop(entry, None)
        if watch is not None:
            watch.end()
