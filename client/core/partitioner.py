"""Which partition a record goes to: murmur2 of its key, as in the Java client, or sticky without one (KIP-794)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from raftlog.wire.schema import Bytes

_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C
_MASK = 0xFFFFFFFF
KEYS_REMEMBERED = 65536
"""Hashes of so many keys are kept: hashing costs more than looking up."""


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed of Kafka's clients; unsigned."""
    length = len(data)
    hashed = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _MASK
        word = (word ^ word >> 24) * _MULTIPLIER & _MASK
        hashed = (hashed * _MULTIPLIER & _MASK) ^ word
    if length > whole:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _MASK
    hashed = (hashed ^ hashed >> 13) * _MULTIPLIER & _MASK
    return hashed ^ hashed >> 15


@lru_cache(KEYS_REMEMBERED)
def _positive_hash(key: bytes) -> int:
    return murmur2(key) & 0x7FFFFFFF


def partition_for_key(key: Bytes, partitions: int) -> int:
    """The partition, of `partitions`, that every record with this key goes to."""
    return _positive_hash(bytes(key)) % partitions


class StickyPartitioner:
    """For records without a key: one partition of a topic until `batch_bytes` went there, then another by chance.

    Whole batches go to one broker, and over time all partitions get the same. `random_below(n)`: 0 to n - 1.
    """

    def __init__(self, batch_bytes: int, random_below: Callable[[int], int]) -> None:
        self._batch_bytes = batch_bytes
        self._random_below = random_below
        self._current: dict[str, tuple[int, int]] = {}

    def choose(self, topic: str, partitions: int, size: int) -> int:
        """The partition for a record of `size` bytes."""
        partition, sent = self._current.get(topic, (-1, 0))
        if partition < 0 or sent >= self._batch_bytes or partition >= partitions:
            others = partitions - 1 if 0 <= partition < partitions else partitions
            before = partition
            partition = self._random_below(others) if others else 0
            if 0 <= before <= partition and others:
                partition += others < partitions
            sent = 0
        self._current[topic] = (partition, sent + size)
        return partition
