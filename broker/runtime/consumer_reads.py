"""What a consumer is sent of a partition: committed records, up to its limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.core.replica.following import is_diverging
from raftlog.broker.runtime.partition_read import FetchParams, PartitionRead
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId

if TYPE_CHECKING:
    from raftlog.broker.core.fetch.session import FetchedPartition
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.runtime.partition_manager import PartitionManager
    from raftlog.broker.runtime.session_watches import SessionWatches


class ConsumerReads:
    """Reads for consumers. `rack_of`: with replica.selector.class, the rack of a broker that clients can use."""

    def __init__(self, partitions: PartitionManager, watches: SessionWatches) -> None:
        self._partitions = partitions
        self._watches = watches
        self.rack_of: Callable[[BrokerId], str | None] | None = None

    def read(self, entry: FetchedPartition, params: FetchParams, budget: int, min_one: bool) -> PartitionRead:
        """At most `budget` bytes; with `min_one` the first batch whole."""
        partition = self._watches.resolve(entry)
        if isinstance(partition, ErrorCode):
            return PartitionRead(entry, partition)
        refusal = self._check_position(partition, entry)
        if refusal is not None:
            # Readers go back, or begin again, when they hear that a log is not where they are, and only a leader knows
            # where it is: a follower, or a leader that may have been deposed, sends them to ask who leads.
            is_about_log = refusal.diverging is not None or refusal.error is ErrorCode.OFFSET_OUT_OF_RANGE
            if is_about_log and not partition.leads_for_certain:
                return PartitionRead(entry, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            return refusal
        log, start = partition.log, entry.fetch_offset
        read = PartitionRead.of(entry, partition)
        if entry.session.rack:
            read.preferred_replica = self._closest_replica(partition, entry)
            if read.preferred_replica >= 0:
                return read
        bound = log.last_stable_offset if params.read_committed else log.high_watermark
        read.more = start < bound
        bytes_max = min(entry.partition_bytes_max, budget)
        if read.more and bytes_max < 0 and min(params.bytes_max, entry.partition_bytes_max) < 0:
            return PartitionRead(entry, ErrorCode.UNKNOWN_SERVER_ERROR)
        if read.more and (bytes_max > 0 or min_one):
            try:
                found = log.read(start, bytes_max, bound, min_one=min_one)
                read.add(found)
                if params.read_committed and found is not None:
                    read.aborted = log.aborted_transactions(start, bound, found)
            except LogUnavailable as failure:
                self._partitions.storage_failed(partition, failure)
                return PartitionRead(entry, ErrorCode.KAFKA_STORAGE_ERROR)
        if params.read_committed and read.aborted is None:
            read.aborted = ()
        return read

    @staticmethod
    def _check_position(partition: Partition, entry: FetchedPartition) -> PartitionRead | None:
        """What to answer to a reader that is where our log is not."""
        log = partition.log
        error = partition.check_leader_epoch(entry.leader_epoch)
        if error is ErrorCode.NONE and entry.last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(entry.last_fetched_epoch)
            if epoch < 0:
                error = ErrorCode.OFFSET_OUT_OF_RANGE
            elif is_diverging(epoch, end_offset, entry.last_fetched_epoch, entry.fetch_offset):
                # KIP-595: the reader's last epoch ends earlier here, or is not known: it is told where to go back to.
                read = PartitionRead.of(entry, partition)
                read.diverging = epoch, end_offset
                return read
        if error is ErrorCode.NONE and not log.log_start_offset <= entry.fetch_offset <= log.log_end_offset:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        return None if error is ErrorCode.NONE else PartitionRead(entry, error)

    def _closest_replica(self, partition: Partition, entry: FetchedPartition) -> int:
        """The replica that a consumer should rather read from, -1 for us."""
        leadership, rack_of = partition.leadership, self.rack_of
        if leadership is None or rack_of is None:
            return -1
        from raftlog.broker.core.replica.selector import closest_replica

        own = rack_of(partition.leader_id)
        return closest_replica(leadership, entry.session.rack, entry.fetch_offset, leader_rack=own, rack_of=rack_of)
