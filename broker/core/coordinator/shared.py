"""What all coordinators share: the time as they are told it, where a key is kept, how a failed write is answered."""

from __future__ import annotations

from typing import NamedTuple

from raftlog.wire.errors import ErrorCode

GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"

NEVER = 1 << 62
"""A time that does not come (ms)."""


class Now(NamedTuple):
    """One instant on two clocks, in ms: `monotonic_ms` never jumps and is for deadlines, `wall_ms` is since 1970."""

    monotonic_ms: int
    wall_ms: int


def java_hash(text: str) -> int:
    """Java's String.hashCode: over UTF-16 units, as a signed 32-bit number."""
    value = 0
    if text.isascii():
        for byte in text.encode():
            value = value * 31 + byte & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for position in range(0, len(units), 2):
            value = value * 31 + int.from_bytes(units[position : position + 2], "big") & 0xFFFFFFFF
    return value - (1 << 32) if value & 1 << 31 else value


def coordinator_partition(key: str, partition_count: int) -> int:
    """The partition of a key. For the smallest number, whose absolute value Java does not have, Kafka takes 0."""
    value = java_hash(key)
    return (0 if value == -(1 << 31) else abs(value)) % partition_count


# What goes wrong with the log, in words that clients of the coordinator understand.
_WRITE_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    # Verifying a transaction failed on the way: who is told this comes again, and to the same coordinator.
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """The error of a failed write as the coordinator's clients are told."""
    return _WRITE_ERRORS.get(error, error)
