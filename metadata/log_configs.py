"""Settings of a broker about its logs: directories, segments, flushing, retention, compaction, moves."""

from __future__ import annotations

from raftlog.metadata.config_definition import (
    ALL_OR_SOME,
    DOUBLE_MAX,
    FOREVER_OR_POSITIVE,
    LONG_MAX,
    ConfigType,
    at_least,
    between,
    elements_of,
    one_of,
)
from raftlog.metadata.config_definition import dynamic as _dynamic
from raftlog.metadata.config_definition import fixed as _fixed
from raftlog.metadata.config_definition import own_dynamic as _own_dynamic

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST


LOG_CONFIGS = (
    _fixed("log.dirs", _LIST, None, None, "The data directories, separated by commas."),
    _fixed("log.dir", _LIST, None, None, "The data directory, when log.dirs is not set."),
    _own_dynamic(
        "cordoned.log.dirs", _LIST, (), ALL_OR_SOME,
        "Those of the data directories that get no more partitions, or * for all of them.",
    ),
    _dynamic(
        "log.cleanup.policy", _LIST, ("delete",), elements_of("compact", "delete"),
        "What happens to old records: delete, compact, or both.",
    ),
    _dynamic(
        "log.retention.ms", _LONG, None, FOREVER_OR_POSITIVE,
        "How long a segment is kept after its newest record; -1 is for ever.",
    ),
    _fixed(
        "log.retention.minutes", _INT, None, FOREVER_OR_POSITIVE,
        "The same in minutes, when log.retention.ms is not set.",
    ),
    _fixed(
        "log.retention.hours", _INT, 168, FOREVER_OR_POSITIVE,
        "The same in hours, when log.retention.minutes is not set.",
    ),
    _dynamic(
        "log.retention.bytes", _LONG, -1, None,
        "How many bytes a partition may hold before its oldest segments go; -1 is no limit.",
    ),
    _fixed(
        "log.retention.check.interval.ms", _LONG, 300_000, at_least(1),
        "How often segments are looked at for removal.",
    ),
    _dynamic("log.segment.bytes", _INT, 1_073_741_824, at_least(1024 * 1024), "The size of a segment."),
    _dynamic(
        "log.segment.delete.delay.ms", _LONG, 60_000, at_least(0),
        "How long the files of a deleted segment stay on the disk.",
    ),
    _dynamic(
        "log.roll.ms", _LONG, None, at_least(1)._replace(description=None), "After how long a new segment begins.",
    ),
    _fixed("log.roll.hours", _INT, 168, at_least(1), "The same in hours, when log.roll.ms is not set."),
    _dynamic(
        "log.roll.jitter.ms", _LONG, None, at_least(0)._replace(description=None),
        "By how much, at random, that time is shortened.",
    ),
    _fixed(
        "log.roll.jitter.hours", _INT, 0, at_least(0), "The same in hours, when log.roll.jitter.ms is not set.",
    ),
    _dynamic(
        "log.flush.interval.messages", _LONG, LONG_MAX, at_least(1),
        "After how many records a log is forced to the disk.",
    ),
    _dynamic("log.flush.interval.ms", _LONG, None, None, "After how long a record is forced to the disk."),
    _fixed(
        "log.flush.scheduler.interval.ms", _LONG, LONG_MAX, None,
        "How often logs are looked at for flushing; stands in for log.flush.interval.ms when that is not set.",
    ),
    _fixed(
        "log.flush.offset.checkpoint.interval.ms", _INT, 60_000, at_least(0),
        "How often the recovery points are written.",
    ),
    _fixed(
        "log.flush.start.offset.checkpoint.interval.ms", _INT, 60_000, at_least(0),
        "How often the log start offsets are written.",
    ),
    _dynamic("log.index.interval.bytes", _INT, 4096, at_least(0), "Bytes between two offset index entries."),
    _dynamic("log.index.size.max.bytes", _INT, 10_485_760, at_least(4), "The largest index file."),
    _dynamic("log.preallocate", _BOOLEAN, False, None, "Whether a new segment gets its full size at once."),
    _dynamic(
        "log.message.timestamp.type", _STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps a record: the producer's or the broker's.",
    ),
    _dynamic(
        "log.message.timestamp.before.max.ms", _LONG, LONG_MAX, at_least(0),
        "How far a timestamp may lie behind the broker's clock.",
    ),
    _dynamic(
        "log.message.timestamp.after.max.ms", _LONG, 3_600_000, at_least(0),
        "How far a timestamp may lie ahead of the broker's clock.",
    ),
    _dynamic(
        "log.cleaner.delete.retention.ms", _LONG, 86_400_000, at_least(0),
        "How long a compacted log keeps the marker of a deleted key.",
    ),
    _dynamic(
        "log.cleaner.min.compaction.lag.ms", _LONG, 0, at_least(0),
        "The shortest time that a record stays out of reach of compaction.",
    ),
    _dynamic(
        "log.cleaner.max.compaction.lag.ms", _LONG, LONG_MAX, at_least(1),
        "The longest time that a record stays out of reach of compaction.",
    ),
    _dynamic(
        "log.cleaner.min.cleanable.ratio", _DOUBLE, 0.5, between(0, 1),
        "Which share of a log must be new before it is compacted again.",
    ),
    _fixed("log.cleaner.enable", _BOOLEAN, True, None, "Whether compacted topics are compacted at all."),
    _dynamic(
        "log.cleaner.dedupe.buffer.size", _LONG, 134_217_728, at_least(1024 * 1024)._replace(description=None),
        "How many bytes one compaction may use to remember keys.",
    ),
    _fixed(
        "replica.high.watermark.checkpoint.interval.ms", _LONG, 5000, None,
        "How often the high watermarks are written.",
    ),
    _dynamic(
        "log.cleaner.io.max.bytes.per.second", _DOUBLE, DOUBLE_MAX, at_least(0)._replace(description=None),
        "How many bytes a second compaction reads and writes together.",
    ),
    _dynamic(
        "replica.alter.log.dirs.io.max.bytes.per.second", _LONG, LONG_MAX, at_least(0),
        "How many bytes a second of logs are copied to other directories of this broker.",
    ),
    _dynamic(
        "log.cleaner.backoff.ms", _LONG, 15_000, at_least(0),
        "How long compaction rests when there is nothing to do.",
    ),
    _dynamic(
        "producer.id.expiration.ms", _INT, 86_400_000, at_least(1),
        "After how long without a record a partition forgets a producer's sequence numbers.",
    ),
)  # fmt: skip
