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
    dynamic,
    elements_of,
    fixed,
    one_of,
    own_dynamic,
)

_BOOLEAN, _STRING, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST = ConfigType.DOUBLE, ConfigType.LIST

LOG_CONFIGS = (
    fixed("log.dirs", _LIST, None, None, "The data directories, separated by commas."),
    fixed("log.dir", _LIST, None, None, "The data directory, when log.dirs is not set."),
    own_dynamic(
        "cordoned.log.dirs", _LIST, (), ALL_OR_SOME,
        "Those of the data directories that get no more partitions, or * for all of them.",
    ),
    dynamic(
        "log.cleanup.policy", _LIST, ("delete",), elements_of("compact", "delete"),
        "What happens to old records: delete, compact, or both.",
    ),
    dynamic(
        "log.retention.ms", _LONG, None, FOREVER_OR_POSITIVE,
        "How long a segment is kept after its newest record; -1 is for ever.",
    ),
    fixed(
        "log.retention.minutes", _INT, None, FOREVER_OR_POSITIVE,
        "The same in minutes, when log.retention.ms is not set.",
    ),
    fixed(
        "log.retention.hours", _INT, 168, FOREVER_OR_POSITIVE,
        "The same in hours, when log.retention.minutes is not set.",
    ),
    dynamic(
        "log.retention.bytes", _LONG, -1, None,
        "How many bytes a partition may hold before its oldest segments go; -1 is no limit.",
    ),
    fixed(
        "log.retention.check.interval.ms", _LONG, 300_000, at_least(1),
        "How often segments are looked at for removal.",
    ),
    dynamic("log.segment.bytes", _INT, 1_073_741_824, at_least(1024 * 1024), "The size of a segment."),
    dynamic(
        "log.segment.delete.delay.ms", _LONG, 60_000, at_least(0),
        "How long the files of a deleted segment stay on the disk.",
    ),
    dynamic(
        "log.roll.ms", _LONG, None, at_least(1)._replace(description=None), "After how long a new segment begins.",
    ),
    fixed("log.roll.hours", _INT, 168, at_least(1), "The same in hours, when log.roll.ms is not set."),
    dynamic(
        "log.roll.jitter.ms", _LONG, None, at_least(0)._replace(description=None),
        "By how much, at random, that time is shortened.",
    ),
    fixed(
        "log.roll.jitter.hours", _INT, 0, at_least(0), "The same in hours, when log.roll.jitter.ms is not set.",
    ),
    dynamic(
        "log.flush.interval.messages", _LONG, LONG_MAX, at_least(1),
        "After how many records a log is forced to the disk.",
    ),
    dynamic("log.flush.interval.ms", _LONG, None, None, "After how long a record is forced to the disk."),
    fixed(
        "log.flush.scheduler.interval.ms", _LONG, LONG_MAX, None,
        "How often logs are looked at for flushing; stands in for log.flush.interval.ms when that is not set.",
    ),
    fixed(
        "log.flush.offset.checkpoint.interval.ms", _INT, 60_000, at_least(0),
        "How often the recovery points are written.",
    ),
    fixed(
        "log.flush.start.offset.checkpoint.interval.ms", _INT, 60_000, at_least(0),
        "How often the log start offsets are written.",
    ),
    dynamic("log.index.interval.bytes", _INT, 4096, at_least(0), "Bytes between two offset index entries."),
    dynamic("log.index.size.max.bytes", _INT, 10_485_760, at_least(4), "The largest index file."),
    dynamic("log.preallocate", _BOOLEAN, False, None, "Whether a new segment gets its full size at once."),
    dynamic(
        "log.message.timestamp.type", _STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps a record: the producer's or the broker's.",
    ),
    dynamic(
        "log.message.timestamp.before.max.ms", _LONG, LONG_MAX, at_least(0),
        "How far a timestamp may lie behind the broker's clock.",
    ),
    dynamic(
        "log.message.timestamp.after.max.ms", _LONG, 3_600_000, at_least(0),
        "How far a timestamp may lie ahead of the broker's clock.",
    ),
    dynamic(
        "log.cleaner.delete.retention.ms", _LONG, 86_400_000, at_least(0),
        "How long a compacted log keeps the marker of a deleted key.",
    ),
    dynamic(
        "log.cleaner.min.compaction.lag.ms", _LONG, 0, at_least(0),
        "The shortest time that a record stays out of reach of compaction.",
    ),
    dynamic(
        "log.cleaner.max.compaction.lag.ms", _LONG, LONG_MAX, at_least(1),
        "The longest time that a record stays out of reach of compaction.",
    ),
    dynamic(
        "log.cleaner.min.cleanable.ratio", _DOUBLE, 0.5, between(0, 1),
        "Which share of a log must be new before it is compacted again.",
    ),
    fixed("log.cleaner.enable", _BOOLEAN, True, None, "Whether compacted topics are compacted at all."),
    dynamic(
        "log.cleaner.dedupe.buffer.size", _LONG, 134_217_728, at_least(1024 * 1024)._replace(description=None),
        "How many bytes one compaction may use to remember keys.",
    ),
    fixed(
        "replica.high.watermark.checkpoint.interval.ms", _LONG, 5000, None,
        "How often the high watermarks are written.",
    ),
    dynamic(
        "log.cleaner.io.max.bytes.per.second", _DOUBLE, DOUBLE_MAX, at_least(0)._replace(description=None),
        "How many bytes a second compaction reads and writes together.",
    ),
    dynamic(
        "replica.alter.log.dirs.io.max.bytes.per.second", _LONG, LONG_MAX, at_least(0),
        "How many bytes a second of logs are copied to other directories of this broker.",
    ),
    dynamic(
        "log.cleaner.backoff.ms", _LONG, 15_000, at_least(0),
        "How long compaction rests when there is nothing to do.",
    ),
    dynamic(
        "producer.id.expiration.ms", _INT, 86_400_000, at_least(1),
        "After how long without a record a partition forgets a producer's sequence numbers.",
    ),
)  # fmt: skip
