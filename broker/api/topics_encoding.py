"""The topics of a Metadata response, encoded by hand: ten thousand partitions have to take a few milliseconds.

Keeps the encoding of all topics until the image changes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from struct import Struct

from raftlog.metadata.image import NO_LEADER, MetadataImage, TopicImage
from raftlog.wire.errors import ErrorCode
from raftlog.wire.varint import encode_unsigned_varint

FLEXIBLE_FROM = 9
NO_OPERATIONS = -(2**31)
"""Authorized operations that were not asked for."""

TOPIC_OPERATIONS = 0xDF8
"""READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS and ALTER_CONFIGS, one bit each (KIP-430)."""

CACHED_VERSIONS_MAX = 3
"""Clients of this many versions at once are served from the cache; each costs about 60 bytes a partition."""

_SHORT = Struct(">h")
_INT = Struct(">i")
_SHORTS = Struct(">hh")
_PARTITION = Struct(">hii")  # error code, index, leader
_PARTITION_WITH_EPOCH = Struct(">hiii")

_LEADER_NOT_AVAILABLE = int(ErrorCode.LEADER_NOT_AVAILABLE)
_REPLICA_NOT_AVAILABLE = int(ErrorCode.REPLICA_NOT_AVAILABLE)

NO_SUSPECTS: frozenset[int] = frozenset()

_cache: dict[int, tuple[MetadataImage, bytes]] = {}


def encode_length(count: int, version: int) -> bytes:
    """The length before an array of `count` elements."""
    return encode_unsigned_varint(count + 1) if version >= FLEXIBLE_FROM else _INT.pack(count)


def encode_all_topics(image: MetadataImage, version: int, suspects: frozenset[int] = NO_SUSPECTS) -> bytes:
    """Every topic of the image without authorized operations, with the array's length in front."""
    if suspects:
        topics = encode_topics(image, image.topics.values(), version, suspects=suspects)
        return encode_length(len(image.topics), version) + topics
    cached = _cache.get(version)
    if cached is not None and cached[0] is image:
        return cached[1]
    body = encode_length(len(image.topics), version) + encode_topics(image, image.topics.values(), version)
    _cache.pop(version, None)
    while len(_cache) >= CACHED_VERSIONS_MAX:
        del _cache[next(iter(_cache))]
    _cache[version] = (image, body)
    return body


def encode_topics(
    image: MetadataImage,
    topics: Iterable[TopicImage],
    version: int,
    operations: int = NO_OPERATIONS,
    *,
    suspects: frozenset[int] = NO_SUSPECTS,
) -> bytes:
    """These topics, one after the other, without a length in front. `suspects` lead nothing for the moment."""
    tails = _ReplicaTails(image, version)
    leading = tails.usable - suspects
    lengths = _short_lengths(version)
    topic_tail = _topic_tail(operations, version)
    pieces: list[bytes] = []
    add = pieces.append
    for topic in topics:
        name = topic.name.encode()
        if version >= FLEXIBLE_FROM:
            add(b"\0\0" + lengths[len(name)])
        else:
            add(_SHORTS.pack(0, len(name)))
        add(name)
        if version >= 10:
            add(topic.topic_id)
        if version >= 1:
            add(b"\1" if topic.internal else b"\0")
        count = len(topic.partitions)
        add(lengths[count] if count < len(lengths) else encode_length(count, version))
        _add_partitions(add, topic, tails, leading)
        add(topic_tail)
    return b"".join(pieces)


def encode_topic_error(name: str | None, topic_id: bytes, error: ErrorCode, version: int) -> bytes:
    """A topic that cannot be described. Before v12 a name cannot be null, and an unknown one is empty."""
    text = None if name is None and version >= 12 else (name or "").encode()
    pieces = [_SHORT.pack(error)]
    if version >= FLEXIBLE_FROM:
        pieces.append(b"\0" if text is None else encode_length(len(text), version) + text)
    else:
        pieces.append(_SHORT.pack(len(text or b"")) + (text or b""))
    if version >= 10:
        pieces.append(topic_id)
    if version >= 1:
        pieces.append(b"\0")
    pieces.append(encode_length(0, version))
    pieces.append(_topic_tail(NO_OPERATIONS, version))
    return b"".join(pieces)


def _add_partitions(
    add: Callable[[bytes], None], topic: TopicImage, tails: _ReplicaTails, leading: frozenset[int]
) -> None:
    usable, version = tails.usable, tails.version
    for partition in topic.partitions:
        leader, error, replicas = partition.leader, 0, partition.replicas
        if leader not in leading:
            leader, error = NO_LEADER, _LEADER_NOT_AVAILABLE
        elif version == 0 and not usable.issuperset(replicas):
            error = _REPLICA_NOT_AVAILABLE
        if version >= 7:
            add(_PARTITION_WITH_EPOCH.pack(error, partition.partition_id, leader, partition.leader_epoch))
        else:
            add(_PARTITION.pack(error, partition.partition_id, leader))
        key = (replicas, partition.isr)
        add(tails[key] if key in tails else tails.add(*key))


@functools.cache
def _short_lengths(version: int) -> tuple[bytes, ...]:
    """The lengths that names and most partition counts have, encoded once."""
    return tuple(encode_length(count, version) for count in range(256))


class _ReplicaTails(dict[tuple[tuple[int, ...], tuple[int, ...]], bytes]):
    """What follows the leader in a partition: replicas, ISR, offline replicas. Most partitions share a few of them."""

    def __init__(self, image: MetadataImage, version: int) -> None:
        super().__init__()
        self.usable = frozenset(broker.broker_id for broker in image.brokers.values() if not broker.fenced)
        self.version = version

    def add(self, replicas: tuple[int, ...], isr: tuple[int, ...]) -> bytes:
        """Encode one tail and keep it."""
        shown = replicas
        if self.version == 0:
            # Clients of v0 take every replica for one that they can reach.
            shown = tuple(broker for broker in replicas if broker in self.usable)
            isr = tuple(broker for broker in isr if broker in self.usable)
        pieces = [self._brokers(shown), self._brokers(isr)]
        if self.version >= 5:
            pieces.append(self._brokers(tuple(broker for broker in replicas if broker not in self.usable)))
        if self.version >= FLEXIBLE_FROM:
            pieces.append(b"\0")
        tail = self[replicas, isr] = b"".join(pieces)
        return tail

    def _brokers(self, brokers: tuple[int, ...]) -> bytes:
        return encode_length(len(brokers), self.version) + b"".join(map(_INT.pack, brokers))


def _topic_tail(operations: int, version: int) -> bytes:
    if version >= FLEXIBLE_FROM:
        return _INT.pack(operations) + b"\0"
    return _INT.pack(operations) if version >= 8 else b""
