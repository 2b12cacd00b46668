"""A commit of many partitions of a topic: the same records and the same state as one by one, in less time."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.records import CommittedOffset, OffsetRecord, TopicOffsets, encode_record
from raftlog.broker.core.group.topic_offsets import (
    RECORDS_MAX_BYTES,
    TOGETHER_MIN,
    commit_together,
    pack_topic_offsets,
)
from raftlog.metadata.image import TopicImage
from raftlog.wire.batch import Record, decode_batch, encode_batch, encode_packed_batch
from raftlog.wire.messages.offset_commit import OffsetCommitRequestPartition
from tests.effort import examples

NOW = Now(5, 1_700_000_000_000)
TOPIC_ID = b"0123456789abcdef"


def topic(count: int, name: str = "t") -> TopicImage:
    return TopicImage(name, TOPIC_ID, (None,) * count)  # type: ignore[arg-type]


def partitions(count: int, **odd: object) -> list[OffsetCommitRequestPartition]:
    made = [
        OffsetCommitRequestPartition(
            partition_index=i, committed_offset=i * 7, committed_leader_epoch=i % 3 - 1, committed_metadata=""
        )
        for i in range(count)
    ]
    for name, value in odd.items():
        setattr(made[count // 2], name, value)
    return made


def one_by_one(record: TopicOffsets) -> bytes:
    """The bytes of a batch of the same offsets."""
    return encode_batch(
        [
            Record(n, NOW.wall_ms, *encode_record(OffsetRecord(record.group_id, record.topic, partition, each)))
            for n, (partition, each) in enumerate(record.offsets.items())
        ]
    )


OFFSETS = st.builds(
    CommittedOffset,
    st.integers(0, 2**63 - 1),
    st.integers(-1, 2**31 - 1),
    metadata=st.just(""),
    commit_timestamp_ms=st.just(NOW.wall_ms),
    expire_timestamp_ms=st.just(-1),
    topic_id=st.just(TOPIC_ID),
)


@settings(max_examples=examples(50))
@given(st.text("gé", min_size=1), st.dictionaries(st.integers(0, 2**31 - 1), OFFSETS, min_size=1, max_size=100))
def test_the_log_gets_the_same_bytes_as_if_each_offset_were_a_record_of_its_own(
    group_id: str, offsets: dict[int, CommittedOffset]
) -> None:
    record = TopicOffsets(group_id, "t", offsets)
    packed = pack_topic_offsets(record)
    assert packed.records == len(offsets)
    assert encode_packed_batch(packed.pack(0), packed.records, NOW.wall_ms) == one_by_one(record)


@pytest.mark.parametrize("first", [0, 60, 8_190])
def test_offset_deltas_of_every_width_are_counted_on(first: int) -> None:
    (record,) = commit_together("g", topic(500), partitions(500), NOW)
    fillers = [Record(n, NOW.wall_ms, b"k", b"v") for n in range(first)]
    before = encode_batch(fillers)[61:] if fillers else b""
    batch = encode_packed_batch(before + pack_topic_offsets(record).pack(first), first + 500, NOW.wall_ms)
    records = decode_batch(batch)
    assert [each.offset for each in records] == list(range(first + 500))
    expected = [encode_record(OffsetRecord("g", "t", n, each)) for n, each in record.offsets.items()]
    assert [(each.key, each.value) for each in records[first:]] == expected


def test_a_commit_is_kept_whole_as_one_record_with_what_the_request_says() -> None:
    (record,) = commit_together("g", topic(20), partitions(20), NOW)
    assert record.offsets[5] == CommittedOffset(35, 1, "", NOW.wall_ms, -1, TOPIC_ID)  # type: ignore[arg-type]
    assert list(record.offsets) == list(range(20))


@pytest.mark.parametrize(
    "odd", [{"partition_index": 20}, {"partition_index": -1}, {"committed_metadata": "where I was"}]
)
def test_a_commit_with_anything_particular_in_it_is_looked_at_one_by_one(odd: dict[str, object]) -> None:
    assert commit_together("g", topic(20), partitions(20, **odd), NOW) == []
    assert commit_together("g", topic(20), partitions(TOGETHER_MIN - 1), NOW) == []


def test_a_commit_larger_than_a_batch_may_be_becomes_several_records() -> None:
    records = commit_together("g" * 1_000, topic(1_000), partitions(1_000), NOW)
    assert len(records) > 3
    assert [partition for record in records for partition in record.offsets] == list(range(1_000))
    assert all(pack_topic_offsets(record).size <= RECORDS_MAX_BYTES for record in records)
