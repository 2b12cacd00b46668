"""How long a request about metadata may wait for a quorum that has no leader at the moment."""

from __future__ import annotations

SHARE = 0.8
"""The client has to get the answer within its time-out, or it never learns why."""

SECONDS_MIN = 1.0
"""A time-out of 0 means to Kafka: do not wait for the topic to be ready; we answer when the change is committed."""

SECONDS_MAX = 15.0


def metadata_timeout_seconds(timeout_ms: int) -> float:
    """For how long to try."""
    return min(SECONDS_MAX, max(SECONDS_MIN, timeout_ms / 1000 * SHARE))
