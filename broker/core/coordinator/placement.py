"""Which partition of a coordinator's topic keeps a key: a group id in `__consumer_offsets`, and so on."""

from __future__ import annotations

GROUP_TOPIC = "__consumer_offsets"


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
