"""Offsets of one topic that a group commits together: checked, kept and packed as a whole.

A consumer of a thousand partitions commits them all in one request. One by one this would take four times as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import islice
from struct import Struct

from raftlog.broker.core.coordinator.packed_records import PackedRecords
from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.records import (
    NO_EXPIRY,
    CommittedOffset,
    OffsetRecord,
    TopicOffsets,
    encode_record,
)
from raftlog.metadata.image import TopicImage
from raftlog.wire.messages.offset_commit import OffsetCommitRequestPartition
from raftlog.wire.varint import encode_varint

TOGETHER_MIN = 16
"""Fewer partitions of a topic are committed one by one."""

RECORDS_MAX_BYTES = 256 << 10
"""What the keys and values of one record of this kind may take: half of what goes into a batch."""

# Of a key the partition comes last; of a value the offset and its leader epoch come behind the version.
_INT32_SIZE, _OFFSET_AT, _OFFSET_AND_EPOCH_SIZE = 4, 2, 12

_WIDTHS = ((1, 1 << 6), (2, 1 << 13), (3, 1 << 20), (4, 1 << 27))
"""How many bytes an offset delta takes, and below which number."""


def commit_together(
    group_id: str, topic: TopicImage, partitions: list[OffsetCommitRequestPartition], now: Now
) -> list[TopicOffsets]:
    """The records of a commit of many partitions of a topic; none if it has to be looked at one by one: something is
    wrong with a partition, or goes with an offset.
    """
    count = len(topic.partitions)
    if len(partitions) < TOGETHER_MIN:
        return []
    if [each for each in partitions if not 0 <= each.partition_index < count or each.committed_metadata]:
        return []
    topic_id, now_ms = topic.topic_id, now.wall_ms
    # Not by the constructor, which takes twice as long.
    make = tuple.__new__
    offsets: dict[int, CommittedOffset] = {
        each.partition_index: make(
            CommittedOffset, (each.committed_offset, each.committed_leader_epoch, "", now_ms, NO_EXPIRY, topic_id)
        )
        for each in partitions
    }
    key, value = encode_record(OffsetRecord(group_id, topic.name, 0, next(iter(offsets.values()))))
    records_max = max(1, RECORDS_MAX_BYTES // (len(key) + len(value or b"")))
    if len(offsets) <= records_max:
        return [TopicOffsets(group_id, topic.name, offsets)]
    items = iter(offsets.items())
    return [
        TopicOffsets(group_id, topic.name, part)
        for _ in range(0, len(offsets), records_max)
        if (part := dict(islice(items, records_max)))
    ]


def pack_topic_offsets(record: TopicOffsets) -> PackedRecords:
    """The log records, of the same bytes as if each offset were a record of its own."""
    group_id, topic, offsets = record
    key, value = encode_record(OffsetRecord(group_id, topic, 0, next(iter(offsets.values()))))
    assert value is not None
    size = (len(key) + len(value)) * len(offsets)
    return PackedRecords(len(offsets), size, lambda first: b"".join(_packed(key, value, offsets, first)))


def _packed(key: bytes, value: bytes, offsets: dict[int, CommittedOffset], first: int) -> Iterator[bytes]:
    """`key` and `value` are those of the first one: the others differ in partition, offset and leader epoch."""
    delta, end = first, first + len(offsets)
    items = iter(offsets.items())
    for width, limit in _WIDTHS:
        if delta < limit and delta < end:
            stop = min(end, limit)
            pack, head, middle, inner, tail = _form(width, key[:-4], value)
            for number, (partition, each) in zip(_deltas(delta, stop), items, strict=False):
                yield pack(head, number, middle, partition, inner, each[0], each[1], tail)
            delta = stop


def _form(width: int, key_prefix: bytes, value: bytes) -> tuple[Callable[..., bytes], bytes, bytes, bytes, bytes]:
    """How to pack a record with an offset delta of `width` bytes, and what is the same in all of them."""
    middle = encode_varint(len(key_prefix) + _INT32_SIZE) + key_prefix
    inner = encode_varint(len(value)) + value[:_OFFSET_AT]
    tail = value[_OFFSET_AT + _OFFSET_AND_EPOCH_SIZE :] + b"\0"
    size = 2 + width + len(middle) + _INT32_SIZE + len(inner) + _OFFSET_AND_EPOCH_SIZE + len(tail)
    # Attributes and timestamp delta are zero.
    head = encode_varint(size) + b"\0\0"
    return _struct(len(head), width, len(middle), len(inner), len(tail)).pack, head, middle, inner, tail


@lru_cache(maxsize=256)
def _struct(head: int, width: int, middle: int, inner: int, tail: int) -> Struct:
    return Struct(f">{head}s{width}s{middle}si{inner}sqi{tail}s")


@lru_cache(maxsize=64)
def _deltas(start: int, stop: int) -> tuple[bytes, ...]:
    return tuple([encode_varint(number) for number in range(start, stop)])
