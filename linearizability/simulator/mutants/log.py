"""Faults put back on purpose into what removes records: retention, DeleteRecords, compaction and deleted topics; and
into what brokers remember of producers and groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from weakref import WeakSet

from raftlog.broker.core.log import compaction, retention
from raftlog.broker.core.log.offset_map import OffsetMap
from raftlog.broker.core.log.producers import ProducerEntry, ProducerStates, Verdict
from raftlog.broker.core.log.results import AppendResult
from raftlog.broker.runtime.coordinator_host import CoordinatorHost
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.runtime.partition_manager import PartitionManager
from raftlog.broker.store import cleaner, open_log
from raftlog.broker.store.cleaner import LogCleaner
from raftlog.broker.store.log_manager import LogManager
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator.mutants.mutants import Mutant, patch
from raftlog.wire.batch import BatchHeader
from raftlog.wire.errors import ErrorCode


def cleaner_drops_last_values() -> AbstractContextManager[None]:
    """Compaction takes a record for superseded by itself: the last value of a key goes too."""
    def get(self: OffsetMap, key: bytes) -> int:
        return real(self, key) + 1

    real = OffsetMap.get
    return patch(OffsetMap, "get", get)


@contextmanager
def cleaner_ahead_of_the_disk() -> Iterator[None]:
    """Compaction takes away values whose successors are not on the disk yet."""

    def clean(self: LogCleaner, log: PartitionLog, safe_offset: int) -> Any:
        return real_clean(self, log, log.log_end_offset)

    def range_of(log: PartitionLog, now_ms: int, safe_offset: int) -> Any:
        return real_range(log, now_ms, log.log_end_offset)

    async def flush(self: LogManager, log: PartitionLog, *, rolled_only: bool = False) -> None:
        if not rolled_only:
            await real_flush(self, log)

    real_clean, real_range, real_flush = LogCleaner.clean, cleaner.range_of, LogManager.flush_once
    with (
        patch(LogCleaner, "clean", clean),
        patch(cleaner, "range_of", range_of),
        patch(LogManager, "flush_once", flush),
    ):
        yield


def cleaner_above_the_high_watermark() -> AbstractContextManager[None]:
    """Compaction takes away values whose successors are not committed yet."""
    def found(segments: Any, config: Any, **facts: Any) -> Any:
        return real(segments, config, **{**facts, "decided_offset": segments[-1].end_offset})

    real = compaction.cleanable_range
    return patch(cleaner, "cleanable_range", found)


def retention_above_the_high_watermark() -> AbstractContextManager[None]:
    """Retention removes old segments whether they are committed or not."""

    def to_remove(segments: Any, config: Any, **facts: Any) -> Any:
        return real(segments, config, **{**facts, "high_watermark": 1 << 62})

    real = retention.segments_to_remove
    return patch(open_log, "segments_to_remove", to_remove)


def retention_of_young_segments() -> AbstractContextManager[None]:
    """A segment is as old as its first record."""

    def facts(self: Any, *, with_times: bool) -> Any:
        found = real(self, with_times=with_times)
        return [each._replace(largest_timestamp=each.largest_timestamp - 300) for each in found]

    real = open_log.OpenLog._facts
    return patch(open_log.OpenLog, "_facts", facts)


def deletion_answered_by_the_leader_alone() -> AbstractContextManager[None]:
    """DeleteRecords is answered before the followers have deleted anything."""

    def own_start(self: Partition) -> int:
        return self.log.log_start_offset

    return patch(Partition, "low_watermark", property(own_start))


def deletion_not_followed() -> AbstractContextManager[None]:
    """Followers keep what their leader has deleted."""

    def follow(self: Partition, high_watermark: int, log_start_offset: int) -> None:
        real(self, high_watermark, 0)

    real = Partition.follow_leader
    return patch(Partition, "follow_leader", follow)


def earlier_topic_is_taken_over() -> AbstractContextManager[None]:
    """A topic that was made anew begins with what a broker still has of the one that was deleted."""

    def check(self: LogManager, key: Any, log: PartitionLog, topic_id: bytes) -> PartitionLog:
        log.topic_id = topic_id
        return log

    return patch(LogManager, "_check_topic_id", check)


def orphans_are_deleted() -> AbstractContextManager[None]:
    """A broker that starts takes its metadata for damaged and begins with none, and so takes all its logs for orphans
    and deletes them.
    """
    def publish(self: PartitionManager, delta: Any, image: Any) -> None:
        if self not in started:
            started.add(self)
            for log in list(self._logs):
                self._logs.delete(log.topic, log.index)
        real(self, delta, image)

    started: WeakSet[PartitionManager] = WeakSet()
    real = PartitionManager.publish
    return patch(PartitionManager, "publish", publish)


def produce_by_id_goes_by_name() -> AbstractContextManager[None]:
    """What is sent to a deleted topic by its id ends in its successor."""
    def find(self: PartitionManager, topic_id: bytes, index: int) -> Any:
        name = names.get(topic_id)
        found = real(self, topic_id, index)
        if isinstance(found, Partition):
            names[topic_id] = found.topic
        elif found is ErrorCode.UNKNOWN_TOPIC_ID and name is not None:
            return self.find_by_name(name.encode(), index)
        return found

    names: dict[bytes, str] = {}
    real = PartitionManager.find_by_id
    return patch(PartitionManager, "find_by_id", find)


def producers_forgotten_at_failover() -> AbstractContextManager[None]:
    """Followers do not remember the batches of producers: a new leader knows no duplicate."""

    def replay(self: PartitionLog, opened: Any, header: Any, batch: Any) -> None:
        if header.attributes & 0x20:
            real(self, opened, header, batch)

    real = PartitionLog._replay
    return patch(PartitionLog, "_replay", replay)


def producers_never_compared() -> AbstractContextManager[None]:
    """Sequences are not looked at: a batch that is sent again is appended again."""
    return patch(ProducerStates, "check", lambda self, *_: None)


def one_batch_remembered() -> AbstractContextManager[None]:
    """Of each producer only the last batch is remembered: one that others have followed since is no duplicate."""

    def duplicate(self: ProducerStates, entry: ProducerEntry, header: BatchHeader) -> Verdict | None:
        found = real(self, entry, header)
        return None if found is not None and found.duplicate is not entry.batches[-1] else found

    real = ProducerStates._duplicate
    return patch(ProducerStates, "_duplicate", duplicate)


def answered_before_committed() -> AbstractContextManager[None]:
    """A coordinator answers as soon as it has appended."""

    def on_committed(self: CoordinatorHost[Any], callback: Callable[[ErrorCode], None]) -> None:
        callback(ErrorCode.NONE)

    return patch(CoordinatorHost, "on_committed", on_committed)


def offset_0_on_error() -> AbstractContextManager[None]:
    """What is not acknowledged has the offset 0 and not -1."""

    def refused(error: ErrorCode, *arguments: Any, **facts: Any) -> AppendResult:
        return real(error, *arguments, **facts)._replace(base_offset=0)

    real = AppendResult.refused
    return patch(AppendResult, "refused", staticmethod(refused))


_ALL: Sequence[tuple[str, str, Callable[[], AbstractContextManager[None]]]] = (
    ("cleaner-drops-last-values", "compaction", cleaner_drops_last_values),
    ("cleaner-ahead-of-disk", "compaction", cleaner_ahead_of_the_disk),
    ("cleaner-above-high-watermark", "compaction", cleaner_above_the_high_watermark),
    ("retention-above-high-watermark", "trims", retention_above_the_high_watermark),
    ("retention-too-early", "trims", retention_of_young_segments),
    ("deletion-by-leader-alone", "trims", deletion_answered_by_the_leader_alone),
    ("deletion-not-followed", "trims", deletion_not_followed),
    ("earlier-topic-taken-over", "deletions", earlier_topic_is_taken_over),
    ("orphans-deleted", "", orphans_are_deleted),
    ("id-goes-by-name", "deletions", produce_by_id_goes_by_name),
    ("producers-forgotten", "", producers_forgotten_at_failover),
    ("producers-not-compared", "", producers_never_compared),
    ("one-batch-remembered", "bursts", one_batch_remembered),
    ("answered-before-committed", "members", answered_before_committed),
    ("offset-0-on-error", "", offset_0_on_error),
)
LOG_MUTANTS: tuple[Mutant, ...] = tuple(
    Mutant(name, ("cluster",), str(put.__doc__), put, workload) for name, workload, put in _ALL
)
