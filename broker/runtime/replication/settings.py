"""What an operator sets about replication, by Kafka's names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class FetcherSettings(NamedTuple):
    """Kafka's names with underscores, without `replica`. Bytes and milliseconds."""

    fetch_max_bytes: int = 1_048_576
    fetch_min_bytes: int = 1
    fetch_response_max_bytes: int = 10_485_760
    fetch_wait_max_ms: int = 500
    fetch_backoff_ms: int = 1000
    socket_timeout_ms: int = 30_000


class ReplicationSettings(NamedTuple):
    """`listener_name` is inter.broker.listener.name."""

    listener_name: str
    lag_time_max_ms: int = 30_000
    fetcher: FetcherSettings = FetcherSettings()

    @classmethod
    def from_config(cls, config: Mapping[str, Any], listener_name: str) -> ReplicationSettings:
        """From resolved broker settings."""
        return cls(
            listener_name,
            config["replica.lag.time.max.ms"],
            FetcherSettings(*(config[f"replica.{name.replace('_', '.')}"] for name in FetcherSettings._fields)),
        )
