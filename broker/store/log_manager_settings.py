"""How often the store looks after its logs, from the broker's settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raftlog.broker.store.store import PRODUCER_EXPIRATION_MS
from raftlog.metadata.config_definition import DOUBLE_MAX, LONG_MAX


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """Broker settings of the store, with Kafka's defaults; names are Kafka's without the first word."""

    retention_check_interval_ms: int = 300_000
    """log.retention.check.interval.ms"""
    flush_offset_checkpoint_interval_ms: int = 60_000
    """log.flush.offset.checkpoint.interval.ms"""
    flush_start_offset_checkpoint_interval_ms: int = 60_000
    """log.flush.start.offset.checkpoint.interval.ms"""
    high_watermark_checkpoint_interval_ms: int = 5_000
    """replica.high.watermark.checkpoint.interval.ms"""
    producer_expiration_ms: int = PRODUCER_EXPIRATION_MS
    """producer.id.expiration.ms"""
    producer_expiration_check_interval_ms: int = 600_000
    """producer.id.expiration.check.interval.ms"""
    cleaner_enable: bool = True
    """log.cleaner.enable"""
    cleaner_backoff_ms: int = 15_000
    """log.cleaner.backoff.ms"""
    cleaner_dedupe_buffer_size: int = 134_217_728
    """log.cleaner.dedupe.buffer.size"""
    cleaner_io_max_bytes_per_second: float = DOUBLE_MAX
    """log.cleaner.io.max.bytes.per.second"""
    moves_bytes_per_second: int = LONG_MAX
    """replica.alter.log.dirs.io.max.bytes.per.second"""
    cordoned: tuple[str, ...] = ()
    """cordoned.log.dirs"""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> LogManagerSettings:
        """Read from resolved broker configurations, by Kafka's names."""
        return cls(
            retention_check_interval_ms=config["log.retention.check.interval.ms"],
            flush_offset_checkpoint_interval_ms=config["log.flush.offset.checkpoint.interval.ms"],
            flush_start_offset_checkpoint_interval_ms=config["log.flush.start.offset.checkpoint.interval.ms"],
            producer_expiration_ms=config["producer.id.expiration.ms"],
            high_watermark_checkpoint_interval_ms=config["replica.high.watermark.checkpoint.interval.ms"],
            cleaner_enable=config["log.cleaner.enable"],
            cleaner_backoff_ms=config["log.cleaner.backoff.ms"],
            cleaner_dedupe_buffer_size=config["log.cleaner.dedupe.buffer.size"],
            cleaner_io_max_bytes_per_second=config["log.cleaner.io.max.bytes.per.second"],
            cordoned=config["cordoned.log.dirs"],
            moves_bytes_per_second=config["replica.alter.log.dirs.io.max.bytes.per.second"],
        )
