"""Committed offsets while a coordinator loads: a million of them are alike, and are not made records of one by one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raftlog.broker.core.group.records import CommittedOffset, OffsetRecord, common_offset, decode_record
from raftlog.broker.core.group.shard import GroupCoordinatorShard

OFFSETS_A_STEP = 500
"""How many are replayed in one step: a third of a millisecond."""

REMEMBERED_TOPICS_MAX = 8_192
"""For how many topics of groups it is remembered where their offsets are kept."""

_PARTITION_BYTES = 4


def replay_common_offsets(
    shard: GroupCoordinatorShard, pairs: Iterable[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes, bytes] | None]:
    """Replay commits of the common form, in steps: None at the end of each. Yields the pairs of key and value that are
    something else. What is pending in transactions comes after all these. Raises UnreadableRecord.
    """
    # By the key without the partition.
    known: dict[bytes, dict[int, CommittedOffset]] = {}
    partition_of = int.from_bytes
    count = 0
    for pair in pairs:
        key, value = pair
        offset = common_offset(value) if key[:2] == b"\0\1" else None
        if offset is None:
            yield pair
            continue
        prefix = key[:-_PARTITION_BYTES]
        partitions = known.get(prefix)
        if partitions is None:
            if len(known) >= REMEMBERED_TOPICS_MAX:
                known.clear()
            known[prefix] = _first_of_topic(shard, key, value)
        else:
            partitions[partition_of(key[-_PARTITION_BYTES:], "big", signed=True)] = offset
        count += 1
        if not count % OFFSETS_A_STEP:
            yield None


def _first_of_topic(shard: GroupCoordinatorShard, key: bytes, value: bytes) -> dict[int, CommittedOffset]:
    """Replay the offset in the usual way. Returns where the offsets of its topic are."""
    record = decode_record(key, value)
    assert isinstance(record, OffsetRecord)
    shard.replay(record)
    return shard.groups[record.group_id].offsets.by_topic[record.topic]
