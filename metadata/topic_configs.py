"""Every setting of a topic: Kafka's 33 names, with the broker settings that stand in where a topic has no
value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from raftlog.metadata.config_definition import (
    LONG_MAX,
    THROTTLED_REPLICAS,
    ConfigDefinition,
    ConfigType,
    InvalidConfig,
    Validator,
    Value,
    at_least,
    between,
    between_or,
    elements_of,
    one_of,
)

_BOOLEAN, _STRING, _INT = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT
_LONG, _DOUBLE, _LIST = ConfigType.LONG, ConfigType.DOUBLE, ConfigType.LIST

_NO_TIERED_STORAGE = "it has no tiered storage"

COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")


class Synonym(NamedTuple):
    """A broker setting that gives a topic its value; a number is multiplied by `factor` on the way."""

    name: str
    factor: int = 1


def _topic(
    name: str,
    kind: ConfigType,
    default: Value,
    validator: Validator | None,
    documentation: str,
    *,
    unsupported: str | None = None,
) -> ConfigDefinition:
    return ConfigDefinition(name, kind, default, documentation, validator, unsupported=unsupported)


_DEFINITIONS = (
    _topic(
        "cleanup.policy", _LIST, ("delete",), elements_of("compact", "delete"),
        "What happens to old records: delete removes old segments by age and size, compact keeps the"
        " newest record"
        " of every key, both do both, and an empty list keeps everything.",
    ),
    _topic(
        "compression.gzip.level", _INT, -1, between_or(1, 9, -1),
        "How hard gzip tries when the broker compresses; -1 is the library's choice.",
    ),
    _topic(
        "compression.lz4.level", _INT, 9, between(1, 17),
        "How hard lz4 tries when the broker compresses.",
    ),
    _topic(
        "compression.type", _STRING, "producer", one_of(*COMPRESSION_TYPES),
        "How records are compressed on disk: producer keeps what the producer sent; anything else makes"
        " the broker"
        " compress again what comes otherwise.",
    ),
    _topic(
        "compression.zstd.level", _INT, 3, between(-131072, 22),
        "How hard zstd tries when the broker compresses.",
    ),
    _topic(
        "delete.retention.ms", _LONG, 86_400_000, at_least(0),
        "How long a compacted topic keeps the marker of a deleted key: a reader that starts at offset 0"
        " has to"
        " finish within this time to see all deletions.",
    ),
    _topic(
        "file.delete.delay.ms", _LONG, 60_000, at_least(0),
        "How long the files of a deleted segment stay on the disk, for readers that are still in them.",
    ),
    _topic(
        "flush.messages", _LONG, LONG_MAX, at_least(1),
        "After how many records the log is forced to the disk; 1 is after every batch. By default the"
        " operating"
        " system decides.",
    ),
    _topic(
        "flush.ms", _LONG, LONG_MAX, at_least(0),
        "After how long a record is forced to the disk. By default the operating system decides.",
    ),
    _topic(
        "follower.replication.throttled.replicas", _LIST, (), THROTTLED_REPLICAS,
        "Replicas whose fetching is throttled on the follower's side.",
    ),
    _topic(
        "index.interval.bytes", _INT, 4096, at_least(0),
        "How many bytes of records lie between two entries of the offset index.",
    ),
    _topic(
        "leader.replication.throttled.replicas", _LIST, (), THROTTLED_REPLICAS,
        "Replicas whose fetching is throttled on the leader's side.",
    ),
    _topic(
        "local.retention.bytes", _LONG, -2, at_least(-2),
        "How many bytes stay on the broker once they are in remote storage.", unsupported=_NO_TIERED_STORAGE,
    ),
    _topic(
        "local.retention.ms", _LONG, -2, at_least(-2),
        "How long records stay on the broker once they are in remote storage.", unsupported=_NO_TIERED_STORAGE,
    ),
    _topic(
        "max.compaction.lag.ms", _LONG, LONG_MAX, at_least(1),
        "The longest time that a record stays out of reach of compaction.",
    ),
    _topic(
        "max.message.bytes", _INT, 1_048_588, at_least(0),
        "The largest record batch, in bytes as it is stored (after compression).",
    ),
    _topic(
        "message.timestamp.after.max.ms", _LONG, 3_600_000, at_least(0),
        "How far a record's timestamp may lie ahead of the broker's clock, with"
        " message.timestamp.type=CreateTime.",
    ),
    _topic(
        "message.timestamp.before.max.ms", _LONG, LONG_MAX, at_least(0),
        "How far a record's timestamp may lie behind the broker's clock, with"
        " message.timestamp.type=CreateTime.",
    ),
    _topic(
        "message.timestamp.type", _STRING, "CreateTime", one_of("CreateTime", "LogAppendTime"),
        "Whose clock stamps a record: the producer's (CreateTime) or the broker's at append (LogAppendTime).",
    ),
    _topic(
        "min.cleanable.dirty.ratio", _DOUBLE, 0.5, between(0, 1),
        "Which share of a compacted log must be new before it is compacted again.",
    ),
    _topic(
        "min.compaction.lag.ms", _LONG, 0, at_least(0),
        "The shortest time that a record stays out of reach of compaction.",
    ),
    _topic(
        "min.insync.replicas", _INT, 1, at_least(1),
        "How many in-sync replicas must have a record before a producer with acks=all hears so; with fewer"
        " in sync,"
        " such a producer is refused.",
    ),
    _topic(
        "preallocate", _BOOLEAN, False, None,
        "Whether a new segment's file is given its full size at once.",
    ),
    _topic(
        "remote.log.copy.disable", _BOOLEAN, False, None,
        "Whether tiered data of the topic is read-only.", unsupported=_NO_TIERED_STORAGE,
    ),
    _topic(
        "remote.log.delete.on.disable", _BOOLEAN, False, None,
        "Whether tiered data goes when tiering is switched off.", unsupported=_NO_TIERED_STORAGE,
    ),
    _topic(
        "remote.storage.enable", _BOOLEAN, False, None,
        "Whether the topic's segments go to remote storage.", unsupported=_NO_TIERED_STORAGE,
    ),
    _topic(
        "retention.bytes", _LONG, -1, None,
        "How many bytes a partition may hold before its oldest segments go; -1 is no limit.",
    ),
    _topic(
        "retention.ms", _LONG, 604_800_000, at_least(-1),
        "How long a segment is kept after its newest record; -1 is for ever.",
    ),
    _topic(
        "segment.bytes", _INT, 1_073_741_824, at_least(1024 * 1024),
        "At which size a new segment begins.",
    ),
    _topic(
        "segment.index.bytes", _INT, 10_485_760, at_least(4),
        "How large an index file may grow before a new segment begins.",
    ),
    _topic(
        "segment.jitter.ms", _LONG, 0, at_least(0),
        "By how much, at random, segment.ms is shortened, so that partitions do not roll all at once.",
    ),
    _topic(
        "segment.ms", _LONG, 604_800_000, at_least(1),
        "After how long a new segment begins even when the old one is not full.",
    ),
    _topic(
        "unclean.leader.election.enable", _BOOLEAN, False, None,
        "Whether a replica that is not in sync may become leader when no other is left, at the price of"
        " records.",
    ),
)  # fmt: skip

TOPIC_CONFIGS: Mapping[str, ConfigDefinition] = {definition.name: definition for definition in _DEFINITIONS}
"""All topic settings by name, in alphabetical order."""

_HOUR_MS, _MINUTE_MS = 3_600_000, 60_000

SYNONYMS: Mapping[str, tuple[Synonym, ...]] = {
    "cleanup.policy": (Synonym("log.cleanup.policy"),),
    "compression.gzip.level": (Synonym("compression.gzip.level"),),
    "compression.lz4.level": (Synonym("compression.lz4.level"),),
    "compression.type": (Synonym("compression.type"),),
    "compression.zstd.level": (Synonym("compression.zstd.level"),),
    "delete.retention.ms": (Synonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (Synonym("log.segment.delete.delay.ms"),),
    "flush.messages": (Synonym("log.flush.interval.messages"),),
    "flush.ms": (Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (Synonym("log.index.interval.bytes"),),
    "max.compaction.lag.ms": (Synonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (Synonym("message.max.bytes"),),
    "message.timestamp.after.max.ms": (Synonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (Synonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.type": (Synonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (Synonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (Synonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (Synonym("min.insync.replicas"),),
    "preallocate": (Synonym("log.preallocate"),),
    "retention.bytes": (Synonym("log.retention.bytes"),),
    "retention.ms": (
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (Synonym("log.segment.bytes"),),
    "segment.index.bytes": (Synonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (Synonym("unclean.leader.election.enable"),),
}
"""Where a topic's value comes from when the topic has none, in the order in which Kafka looks."""


def check_together(values: Mapping[str, Value]) -> None:
    """Conditions between settings of one topic, on its effective values. Raises InvalidConfig."""
    low, high = values.get("min.compaction.lag.ms"), values.get("max.compaction.lag.ms")
    if isinstance(low, int) and isinstance(high, int) and low > high:
        raise InvalidConfig(
            f"conflict topic config setting min.compaction.lag.ms ({low}) > max.compaction.lag.ms ({high})"
        )
