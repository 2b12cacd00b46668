"""Committed offsets are loaded in two ways, a quick one for nearly all of them: to the same end."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import example, given, settings

from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.loading import OFFSETS_A_STEP, replay_common_offsets
from raftlog.broker.core.group.member import MemoryBudget
from raftlog.broker.core.group.records import (
    CommittedOffset,
    GroupMetadata,
    GroupRecord,
    OffsetRecord,
    StoredRecord,
    decode_record,
    encode_record,
)
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.metadata.image import MetadataImage
from raftlog.wire.ids import LeaderEpoch, Offset
from tests.effort import examples

VALUES = st.builds(
    CommittedOffset,
    offset=st.integers(0, 2**63 - 1).map(Offset),
    leader_epoch=st.integers(-1, 9).map(LeaderEpoch),
    metadata=st.sampled_from(["", "", "", "m", "é" * 80]),
    commit_timestamp_ms=st.integers(0, 2**40),
    expire_timestamp_ms=st.sampled_from([-1, -1, -1, 7]),
    topic_id=st.sampled_from([b"a" * 16, b"b" * 16, bytes(16)]),
)
OFFSETS = st.builds(
    OffsetRecord,
    group_id=st.sampled_from(["g", "h", "", "gruppe-ä"]),
    topic=st.sampled_from(["t", "u"]),
    partition=st.sampled_from([0, 1, 255, 256, 2**31 - 1]),
    value=VALUES,
)
GROUPS = st.builds(
    GroupRecord, group_id=st.sampled_from(["g", "x"]), value=st.just(GroupMetadata("consumer", 3, None, None, 5, ()))
)


def empty_shard() -> GroupCoordinatorShard:
    settings_of = ConsumerGroupSettings()
    return GroupCoordinatorShard(GroupConfig(), MemoryBudget(), MetadataImage(), lambda image, group_id: settings_of)


@settings(max_examples=examples(60))
@given(records=st.lists(OFFSETS | GROUPS, max_size=30))
@example(records=[OffsetRecord("g", "t", n, CommittedOffset(Offset(n), topic_id=b"a" * 16)) for n in range(1_200)])
def test_what_is_loaded_in_steps_is_what_is_replayed_one_by_one(records: list[StoredRecord]) -> None:
    pairs = [(key, value) for key, value in map(encode_record, records) if value is not None]
    quick, slow = empty_shard(), empty_shard()
    steps = 0
    for pair in replay_common_offsets(quick, iter(pairs)):
        steps += pair is None
        record = None if pair is None else decode_record(*pair)
        if record is not None:
            quick.replay(record)
    for key, value in pairs:
        record = decode_record(key, value)
        assert record is not None
        slow.replay(record)
    assert {name: group.offsets for name, group in quick.groups.items()} == {
        name: group.offsets for name, group in slow.groups.items()
    }
    assert steps <= len(pairs) // OFFSETS_A_STEP
    quick.check_invariants()
