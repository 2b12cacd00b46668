"""What the codec writes, it reads: every message in every version, from every kind of buffer."""

from __future__ import annotations

import array
from typing import Any

import pytest

from raftlog.wire.codec import decode, decode_in_steps, encode, encode_in_steps, encode_parts
from raftlog.wire.errors import NotEncodable, UnsupportedVersionField
from raftlog.wire.internal import decode_internal, encode_internal
from raftlog.wire.messages.create_topics import CreateTopicsRequest
from raftlog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    ForgottenTopic,
    PartitionData,
)
from raftlog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from raftlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest
from raftlog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from raftlog.wire.schema import Message
from raftlog.wire.source import ELEMENTS_PER_STEP
from tests.raftlog.wire.message_values import API_MESSAGES, INTERNAL, name_of, samples, versions_of

SAMPLES = 12


@pytest.mark.parametrize("cls, version", versions_of(*API_MESSAGES, *INTERNAL), ids=name_of)
def test_a_message_comes_back_as_it_was(cls: type[Message], version: int) -> None:
    for number, message in enumerate(samples(cls, version, SAMPLES)):
        prefix = b"abc"[: number % 4]
        data = encode(message, version, prefix)
        assert decode(cls, version, data, len(prefix)) == message
        assert decode(cls, version, memoryview(bytearray(data)), len(prefix)) == message
    assert encode(cls(), version) == encode(decode(cls, version, encode(cls(), version)), version)


@pytest.mark.parametrize("cls, version", versions_of(*API_MESSAGES), ids=name_of)
def test_in_steps_it_is_the_same_message_and_the_same_bytes(cls: type[Message], version: int) -> None:
    for message in samples(cls, version, SAMPLES // 3):
        data = encode(message, version)
        assert all_steps(encode_in_steps(message, version))[0] == data
        assert all_steps(decode_in_steps(cls, version, data))[0] == message


def test_a_step_ends_after_so_many_elements_however_deep_they_lie() -> None:
    topics = [MetadataRequestTopic(name=f"t{number}") for number in range(4 * ELEMENTS_PER_STEP + 1)]
    request = MetadataRequest(topics=topics)
    data, steps = all_steps(encode_in_steps(request, 9))
    assert steps == 4 and all_steps(decode_in_steps(MetadataRequest, 9, data)) == (request, 4)
    partitions = [MetadataResponsePartition(partition_index=index) for index in range(2)]
    response = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=partitions)] * ELEMENTS_PER_STEP)
    data, steps = all_steps(encode_in_steps(response, 9))
    assert steps == 3 and all_steps(decode_in_steps(MetadataResponse, 9, data)) == (response, 3)


def all_steps(work: Any) -> tuple[Any, int]:
    """The result, and how often it gave way."""
    count = 0
    while True:
        try:
            work.send(None)
        except StopIteration as ended:
            return ended.value, count
        count += 1


@pytest.mark.parametrize("cls, version", versions_of(*INTERNAL), ids=name_of)
def test_an_internal_record_begins_with_its_version(cls: type[Message], version: int) -> None:
    for record in samples(cls, version, SAMPLES):
        data = encode_internal(record, version)
        assert data[:2] == version.to_bytes(2, "big")
        assert decode_internal(cls, data) == record


@pytest.mark.parametrize("count", [0, 1, 62, 63, 64, 126, 127, 128, 300, 20_000])
@pytest.mark.parametrize("version", [8, 9])
def test_arrays_of_numbers_of_any_length_come_back(version: int, count: int) -> None:
    partition = MetadataResponsePartition(
        replica_nodes=list(range(count)), isr_nodes=[7], offline_replicas=list(range(count, 0, -1))
    )
    message = MetadataResponse(topics=[MetadataResponseTopic(name="t", partitions=[partition, partition])])
    assert decode(MetadataResponse, version, encode(message, version)) == message


@pytest.mark.parametrize("size", [0, 1, 126, 127, 128, 16_382, 16_383, 16_384, 32_767])
@pytest.mark.parametrize("version", [8, 9])
def test_strings_of_any_length_come_back(version: int, size: int) -> None:
    message = MetadataResponse(brokers=[MetadataResponseBroker(host="h" * size, rack="r" * size)])
    assert decode(MetadataResponse, version, encode(message, version)) == message


@pytest.mark.parametrize("version", [8, 9])
def test_a_string_that_no_version_can_carry_is_refused(version: int) -> None:
    with pytest.raises(NotEncodable):
        encode(MetadataResponse(brokers=[MetadataResponseBroker(host="h" * 32_768)]), version)


def produce_request(records: Any) -> ProduceRequest:
    data = PartitionProduceData(index=3, records=records)
    return ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="t", partition_data=[data])])


@pytest.mark.parametrize("version", [8, 9])
def test_a_byte_field_takes_any_buffer(version: int) -> None:
    raw = bytes(range(256)) * 40
    expected = encode(produce_request(raw), version)
    assert len(expected) > len(raw)
    for buffer in (bytearray(raw), memoryview(raw), array.array("Q", raw), memoryview(array.array("Q", raw))):
        assert encode(produce_request(buffer), version) == expected
    for wrong in ("text", [1, 2], 7):
        with pytest.raises(NotEncodable, match=r"ProduceRequest|in place of bytes"):
            encode(produce_request(wrong), version)


def test_what_stands_in_the_place_of_a_text_is_named() -> None:
    for version in (8, 9):
        with pytest.raises(NotEncodable, match=r"topic_data.name: bytes in place of text"):
            encode(ProduceRequest(topic_data=[TopicProduceData(name=b"t")]), version)  # type: ignore[arg-type]


def test_decoded_bytes_are_a_view_of_the_data_and_see_what_is_written_there() -> None:
    data = bytearray(encode(produce_request(b"abcdef"), 9))
    records = decode(ProduceRequest, 9, data).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert not records.readonly
    records[0] = ord("X")
    assert b"Xbcdef" in data


def test_parts_carry_large_buffers_and_file_ranges_uncopied() -> None:
    class FileRange:
        def __len__(self) -> int:
            return 300

    large, lazy = memoryview(bytes(100_000)), FileRange()
    partitions = [PartitionData(records=large), PartitionData(records=b"small"), PartitionData(records=lazy)]  # type: ignore[arg-type]
    parts = encode_parts(FetchResponse(responses=[FetchableTopicResponse(partitions=partitions)]), 16, b"head")
    assert parts[0][:4] == b"head"
    assert parts[1] is large
    assert parts[3] is lazy
    whole = b"".join(bytes(300) if part is lazy else part for part in parts)[4:]
    decoded = decode(FetchResponse, 16, whole).responses[0].partitions
    assert [partition.records for partition in decoded] == [large, b"small", bytes(300)]


def test_a_value_that_an_old_version_cannot_carry_is_refused_unless_ignorable() -> None:
    with pytest.raises(UnsupportedVersionField, match=r"FetchRequest v6 has no forgotten_topics_data"):
        encode(FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1])]), 6)
    # rack_id is ignorable: the version without it just leaves it out.
    assert decode(FetchRequest, 6, encode(FetchRequest(rack_id="r"), 6)).rack_id == ""
    assert decode(FetchRequest, 11, encode(FetchRequest(rack_id="r"), 11)).rack_id == "r"


def test_our_own_tagged_fields_are_on_the_wire_only_when_they_are_set() -> None:
    group = ListedGroup(group_id="g", members=3, lag=2**40, lag_ms=7)
    told = encode(ListGroupsResponse(groups=[group]), 5)
    assert decode(ListGroupsResponse, 5, told).groups == [group]
    plain = encode(ListGroupsResponse(groups=[ListedGroup(group_id="g")]), 5)
    # Group and response end with a count of tagged fields, and there are none.
    assert plain[-2:] == bytes(2) and len(plain) < len(told)
    for cls, version in ((ListGroupsRequest, 3), (OffsetFetchRequest, 7)):
        assert decode(cls, version, encode(cls(with_lag=True), version)).with_lag
        assert not decode(cls, version, encode(cls(), version)).with_lag
        # Versions without tagged fields, and those that name several groups, leave it out.
        assert not decode(cls, 2, encode(cls(with_lag=True), 2)).with_lag


def test_null_is_refused_where_the_version_has_none() -> None:
    assert encode(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
    with pytest.raises(NotEncodable, match=r"MetadataRequest v0, topics"):
        encode(MetadataRequest(topics=None), 0)
    with pytest.raises(NotEncodable, match=r"MetadataRequest v9, topics.name"):
        encode(MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 9)


def test_a_number_out_of_range_is_refused_with_the_name_of_its_field() -> None:
    with pytest.raises(NotEncodable, match=r"CreateTopicsRequest v5, timeout_ms"):
        encode(CreateTopicsRequest(timeout_ms=2**31), 5)


def test_an_id_of_the_wrong_length_is_refused() -> None:
    with pytest.raises(NotEncodable, match=r"MetadataRequest v12, topics.topic_id: an id has 16 bytes"):
        encode(MetadataRequest(topics=[MetadataRequestTopic(topic_id=b"short")]), 12)


def test_a_version_that_does_not_exist_is_refused() -> None:
    with pytest.raises(NotEncodable, match="no version 14"):
        encode(MetadataRequest(), 14)
    with pytest.raises(NotEncodable, match="no version 3"):
        encode(FetchRequest(), 3)
