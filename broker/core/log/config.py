"""The settings of one partition log: what a topic's configuration says about how its records are kept.

Settings of tiered storage (`remote.*`, `local.retention.*`) never get here: `raftlog.metadata.configs` refuses them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Final, TypeAlias

ConfigValue: TypeAlias = "str | int | float | bool | Iterable[str] | None"

LONG_MAX: Final = 2**63 - 1
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS

# Kafka's names end in the unit; ours are the same words with underscores.
_BOOLEANS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """One partition log's settings, with Kafka 4.3's defaults. Sizes in bytes, times in milliseconds.

    `retention_bytes` and `retention_ms` are -1 for "no limit". `cleanup_policy` holds "delete", "compact", both or
    neither; an empty policy keeps everything.
    """

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = LONG_MAX
    flush_ms: int = LONG_MAX
    index_interval_bytes: int = 4096
    max_compaction_lag_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = HOUR_MS
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_type: str = "CreateTime"
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * DAY_MS
    segment_bytes: int = 1 << 30
    segment_index_bytes: int = 10 << 20
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * DAY_MS

    @property
    def compact(self) -> bool:
        """Whether old values of a key are removed (cleanup.policy has "compact")."""
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        """Whether old segments are removed by age and size (cleanup.policy has "delete")."""
        return "delete" in self.cleanup_policy

    @property
    def log_append_time(self) -> bool:
        """Whether the broker stamps batches with its own clock (message.timestamp.type)."""
        return self.message_timestamp_type == "LogAppendTime"

    @classmethod
    def from_mapping(cls, resolved: Mapping[str, Any]) -> LogConfig:
        """From resolved topic settings by Kafka's dotted names; values as text or as their own type.

        Names that are not about the log are passed over; a value that cannot be read raises ValueError.
        """
        values: dict[str, Any] = {}
        for field in fields(cls):
            name = field.name.replace("_", ".")
            value = resolved.get(name)
            if value is not None:
                values[field.name] = _convert(name, value, field.default)
        config = cls(**values)
        if config.compact and 0 < config.max_compaction_lag_ms < config.segment_ms:
            # The active segment is never compacted, so it must not be active for longer than that (KIP-354).
            config = replace(config, segment_ms=config.max_compaction_lag_ms)
        return config


def _convert(name: str, value: ConfigValue, default: object) -> object:
    if isinstance(default, tuple):
        parts = value.split(",") if isinstance(value, str) else value
        assert isinstance(parts, Iterable)
        return tuple(part.strip() for part in parts if part.strip())
    if isinstance(default, bool):
        return _boolean(name, value)
    if isinstance(default, int | float):
        try:
            return type(default)(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise ValueError(f"{name}: {value!r} is not a number") from None
    return str(value)


def _boolean(name: str, value: ConfigValue) -> bool:
    if isinstance(value, bool):
        return value
    try:
        return _BOOLEANS[str(value).strip().lower()]
    except KeyError:
        raise ValueError(f"{name}: {value!r} is neither true nor false") from None
