"""Metrics of data directories, partitions' logs, recovery and compaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Final

from raftlog.broker.metrics.families import gauge, gauges, many_gauges

if TYPE_CHECKING:
    from prometheus_client.core import Metric

    from raftlog.broker.metrics.sources import Pauses
    from raftlog.broker.store.log_manager import LogManager
    from raftlog.broker.store.partition_log import PartitionLog
    from raftlog.broker.store.scheduled_tasks import ScheduledTasks

LOGS_MAX: Final = 1_000
"""Logs that have series of their own, the first that are open; four series each."""


def directory_families(logs: LogManager) -> Iterator[Metric]:
    """Of each data directory."""
    offline = sum(directory.offline_reason is not None for directory in logs.directories)
    manager = "kafka_log_logmanager"
    yield gauge(f"{manager}_offlinelogdirectorycount", "Data directories that have failed", offline)
    unrecovered = [([directory.path], directory.unrecovered) for directory in logs.directories]
    yield gauges(f"{manager}_remaininglogstorecover", "Logs that are not recovered yet", ["dir"], unrecovered)
    free, size = [], []
    for directory in logs.directories:
        if directory.offline_reason is None:
            try:
                total, usable = logs.store.disk.usage(directory.path)
            except OSError:
                continue
            free.append(([directory.path], float(usable)))
            size.append(([directory.path], float(total)))
    yield gauges("raftlog_data_directory_free_bytes", "Room on the volume of a data directory", ["dir"], free)
    yield gauges("raftlog_data_directory_size_bytes", "Size of the volume of a data directory", ["dir"], size)


async def log_families(logs: LogManager, pauses: Pauses) -> AsyncIterator[Metric]:
    """Of each log that is open, up to LOGS_MAX, and of all together."""
    shown: list[tuple[list[str], PartitionLog]] = []
    count = size = segments = 0
    for number, log in enumerate(list(logs)):
        if number % 64 == 0:
            await pauses.pause()
        if log.offline_reason is not None:
            continue
        opened = log.storage.opened
        if opened is None:
            continue
        count += 1
        size += opened.segments.size
        segments += len(opened.segments)
        if len(shown) < LOGS_MAX:
            shown.append(([log.topic, str(log.index)], log))
    labels = ["topic", "partition"]
    name = "kafka_log_log"
    opened_logs = [(key, log, opened) for key, log in shown if (opened := log.storage.opened) is not None]
    for part, what, values in (
        ("size", "Bytes of a partition's log", [(key, opened.segments.size) for key, _, opened in opened_logs]),
        ("numlogsegments", "Segments of a partition's log", [(key, len(o.segments)) for key, _, o in opened_logs]),
        ("logstartoffset", "Where a partition's log begins", [(key, o.log_start_offset) for key, o, _ in opened_logs]),
        ("logendoffset", "Where a partition's log ends", [(key, o.log_end_offset) for key, o, _ in opened_logs]),
    ):
        yield await many_gauges(f"{name}_{part}", what, labels, values, pauses)
    yield gauge("raftlog_open_logs", "Logs that are open", count)
    yield gauge("raftlog_open_logs_size_bytes", "Bytes of all logs that are open", size)
    yield gauge("raftlog_open_logs_segments", "Segments of all logs that are open", segments)


async def cleaner_families(logs: LogManager, tasks: ScheduledTasks, pauses: Pauses) -> AsyncIterator[Metric]:
    """What compaction has yet to do."""
    dirty = 0
    dirtiest = 0.0
    for number, log in enumerate(list(logs)):
        if number % 64 == 0:
            await pauses.pause()
        opened = log.storage.opened
        if opened is None or not log.config.compact or log.offline_reason is not None:
            continue
        complete = opened.segments[:-1]
        total = sum(segment.size for segment in complete)
        own = sum(segment.size for segment in complete if segment.base_offset >= log.cleaned_offset)
        dirty += own
        dirtiest = max(dirtiest, own / total if total else 0.0)
    manager = "kafka_log_logcleanermanager"
    yield gauge(f"{manager}_max_dirty_percent", "Of the dirtiest compacted log, what is not compacted", dirtiest * 100)
    given_up = "Logs that compaction has given up"
    yield gauge(f"{manager}_uncleanable_partitions_count", given_up, tasks.uncleanable)
    yield gauge("raftlog_log_cleaner_dirty_bytes", "Complete segments of compacted logs, not compacted yet", dirty)
