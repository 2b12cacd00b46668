"""Records, their bytes, and images made of them: what is replayed is what was recorded, whatever it was."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.metadata import records as r
from raftlog.metadata.codec import MalformedRecord, UnsupportedRecord, decode_records, encode_records
from raftlog.metadata.delta import MetadataDelta
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.snapshot import PARTITIONS_PER_CHUNK, decode_snapshot, encode_snapshot
from tests.effort import examples
from tests.metadata import strategies


def replay(image: MetadataImage, *records: Any) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply(image.version + 1)


def contents(image: MetadataImage) -> object:
    """Everything in an image, comparable."""
    return (
        image.cluster_id,
        dict(image.brokers),
        dict(image.topics),
        dict(image.topics_by_id),
        {key: dict(value) for key, value in image.configs.items()},
        dict(image.features),
        image.next_producer_id,
        image.last_broker_epoch,
        dict(image.colliding_names),
    )


@given(st.lists(strategies.records, max_size=5))
def test_records_survive_their_bytes(records: list[Any]) -> None:
    decoded = decode_records(encode_records(records))
    assert decoded == records
    assert [type(record) for record in decoded] == [type(record) for record in records]


@settings(max_examples=examples(50))
@given(st.lists(st.lists(strategies.records, max_size=4), max_size=8))
def test_replay_takes_any_records_and_the_image_stays_consistent(entries: list[list[Any]]) -> None:
    image = MetadataImage()
    for entry in entries:
        before = contents(image)
        following = replay(image, *entry)
        following.check_invariants()
        assert contents(image) == before, "an older image changed"
        image = following


@settings(max_examples=examples(50))
@given(st.lists(strategies.records, max_size=20))
def test_one_entry_or_many_make_the_same_image(records: list[Any]) -> None:
    at_once = replay(MetadataImage(), *records)
    one_by_one = MetadataImage()
    for record in records:
        one_by_one = replay(one_by_one, record)
    assert contents(at_once) == contents(one_by_one)


@settings(max_examples=examples(50))
@given(st.lists(strategies.records, max_size=20))
def test_a_snapshot_gives_the_image_back(records: list[Any]) -> None:
    image = replay(MetadataImage(), *records)
    chunks = list(encode_snapshot(image))
    again = decode_snapshot(chunks, image.version)
    assert contents(again) == contents(image)
    assert again.version == image.version
    assert list(encode_snapshot(again)) == chunks


def test_a_huge_topic_is_cut_into_chunks() -> None:
    count = 3 * PARTITIONS_PER_CHUNK + 1
    partitions = tuple(r.PartitionState(i, 1, 0, 0, (1,), (1,)) for i in range(count))
    image = replay(MetadataImage(), r.TopicRecord("t", b"1" * 16, partitions))
    chunks = list(encode_snapshot(image))
    assert len(chunks) == 4
    assert contents(decode_snapshot(chunks, 1)) == contents(image)


def test_long_configs_are_cut_into_chunks() -> None:
    value = "x" * 30_000
    configs = [r.ConfigRecord(r.ResourceType.GROUP, f"group {n}", {"a": value, "b": value}) for n in range(20)]
    image = replay(MetadataImage(), *configs)
    chunks = list(encode_snapshot(image))
    assert max(map(len, chunks)) < 4 * len(value) + 1000
    assert contents(decode_snapshot(chunks, 1)) == contents(image)


@given(st.binary(max_size=40))
def test_bytes_that_are_no_entry_are_refused(data: bytes) -> None:
    with pytest.raises((MalformedRecord, UnsupportedRecord)):
        decode_records(b"\xc1" + data)


@given(
    st.recursive(
        st.none() | st.integers(-5, 20) | st.binary(max_size=3),
        lambda inner: st.lists(inner, max_size=5),
        max_leaves=12,
    )
)
def test_entries_of_another_shape_are_refused_and_nothing_else_happens(value: Any) -> None:
    try:
        decode_records(msgpack.packb(value))
    except (MalformedRecord, UnsupportedRecord):
        return


@pytest.mark.parametrize("count", [0, 3, 5, 7, 11, 13])
def test_a_partition_of_so_many_fields_is_refused(count: int) -> None:
    fields = (*r.PartitionState(0, 1, 0, 0, (1,), (1,)), 0)[:count]
    with pytest.raises(MalformedRecord):
        decode_records(msgpack.packb((1, [(8, 0, b"1" * 16, [fields])])))


def test_the_partitions_of_an_entry_share_what_is_equal_and_keep_what_is_not() -> None:
    directories = (b"1" * 16, b"2" * 16)
    states = [r.PartitionState(i, 1 + i % 2, i, 2 * i, (1, 2), (1, 2)[: 1 + i % 2], directories) for i in range(40)]
    (record,) = decode_records(encode_records([r.PartitionChangeRecord(b"1" * 16, tuple(states))]))
    assert isinstance(record, r.PartitionChangeRecord)
    assert list(record.partitions) == states
    assert len({id(state.directories) for state in record.partitions}) == 1
    assert len({id(state.isr) for state in record.partitions}) == 2


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        ((2, []), "an entry of format 2"),
        ((1, [(999, 0)]), "a record of type 999"),
        ((1, [(1, 1, "cluster")]), "version 1 of a record of type 1"),
    ],
)
def test_what_a_newer_version_wrote_is_refused_and_named(entry: object, what: str) -> None:
    with pytest.raises(UnsupportedRecord, match=what):
        decode_records(msgpack.packb(entry))


def test_a_delta_says_what_changed() -> None:
    def partition(index: int, epoch: int = 0) -> r.PartitionState:
        return r.PartitionState(index, 1, epoch, epoch, (1,), (1,))

    image = replay(
        MetadataImage(),
        r.TopicRecord("old", b"1" * 16, (partition(0),)),
        r.TopicRecord("grows", b"2" * 16, (partition(0),)),
        r.TopicRecord("stays", b"3" * 16, (partition(0),)),
    )
    delta = MetadataDelta(image)
    for record in (
        r.RemoveTopicRecord(b"1" * 16),
        r.TopicRecord("new", b"4" * 16, (partition(0),)),
        r.NewPartitionsRecord(b"2" * 16, (partition(1),)),
        r.PartitionChangeRecord(b"2" * 16, (partition(0, 7),)),
        r.ConfigRecord(r.ResourceType.TOPIC, "stays", {"retention.ms": "1"}),
        r.TopicRecord("passing", b"5" * 16, (partition(0),)),
        r.RemoveTopicRecord(b"5" * 16),
    ):
        delta.replay(record)
    after = delta.apply(2)
    assert [topic.name for topic in delta.created_topics] == ["new"]
    assert [topic.name for topic in delta.deleted_topics] == ["old"]
    assert delta.changed_topics == ("grows",)
    assert after.topics["grows"].partitions == (partition(0, 7), partition(1))
    assert list(delta.topics_with_changed_configs(after)) == ["stays"]
    assert not delta.anomalies
    assert after.topics["stays"] is image.topics["stays"]


def test_a_topic_made_again_under_its_name_is_another_topic() -> None:
    state = (r.PartitionState(0, 1, 0, 0, (1,), (1,)),)
    image = replay(
        MetadataImage(),
        r.TopicRecord("t", b"1" * 16, state),
        r.ConfigRecord(r.ResourceType.TOPIC, "t", {"retention.ms": "1"}),
    )
    delta = MetadataDelta(image)
    delta.replay(r.RemoveTopicRecord(b"1" * 16))
    delta.replay(r.TopicRecord("t", b"2" * 16, state))
    after = delta.apply(2)
    after.check_invariants()
    assert after.topics["t"].topic_id == b"2" * 16
    assert not after.configs_of(r.ResourceType.TOPIC, "t")
    assert [t.topic_id for t in delta.deleted_topics] == [b"1" * 16]
    assert [t.topic_id for t in delta.created_topics] == [b"2" * 16]


def test_changed_settings_of_all_brokers_touch_all_topics() -> None:
    state = (r.PartitionState(0, 1, 0, 0, (1,), (1,)),)
    image = replay(MetadataImage(), r.TopicRecord("t", b"1" * 16, state))
    delta = MetadataDelta(image)
    delta.replay(r.ConfigRecord(r.ResourceType.BROKER, "", {"log.retention.ms": "1"}))
    assert list(delta.topics_with_changed_configs(delta.apply(2))) == ["t"]


def test_producer_ids_never_go_back() -> None:
    image = replay(MetadataImage(), r.ProducerIdsRecord(1, 1, 2000), r.ProducerIdsRecord(1, 1, 1000))
    assert image.next_producer_id == 2000
