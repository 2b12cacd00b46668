"""Bytes that are not the message they should be end in RemoteProtocolError: never in another error, nor in memory."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from raftlog.wire.apis import APIS, ApiKey
from raftlog.wire.codec import decode, encode
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.internal import decode_internal, internal_version
from raftlog.wire.internal.consumer_protocol import ConsumerProtocolSubscription, decode_assignment, decode_subscription
from raftlog.wire.internal.offset_commit import OffsetCommitValue
from raftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from raftlog.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from raftlog.wire.messages.fetch import FetchRequest
from raftlog.wire.messages.heartbeat import HeartbeatRequest
from raftlog.wire.messages.list_groups import ListGroupsRequest
from raftlog.wire.messages.metadata import MetadataRequest, MetadataResponse
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest
from raftlog.wire.messages.produce import ProduceRequest
from raftlog.wire.schema import Message
from tests.raftlog.wire.message_values import API_MESSAGES, INTERNAL, REQUESTS, name_of, samples, versions_of

HUGE_VARINT = b"\xff\xff\xff\xff\x07"  # 2**31 - 1
ALLOCATED_FOR_NOTHING_MAX = 64 * 1024
SAMPLES = 5


def both_kinds_of_versions(cls: type[Message]) -> list[int]:
    """The newest version and, if it is flexible, the newest that is not."""
    older = [version for version in range(cls.versions.first, cls.versions.last) if not cls.is_flexible(version)]
    return [cls.versions.last, *older[-1:]]


CASES = [
    (cls, version)
    for cls in (*API_MESSAGES, *(cls for cls in INTERNAL if not cls.open_ended))
    for version in both_kinds_of_versions(cls)
]


@pytest.mark.parametrize("cls, version", CASES, ids=name_of)
def test_a_message_that_ends_too_early_or_too_late_is_refused(cls: type[Message], version: int) -> None:
    randomness = random.Random(f"{cls.__name__} {version}")
    for message in samples(cls, version, SAMPLES):
        data = encode(message, version)
        for _ in range(10 if data else 0):
            with pytest.raises(RemoteProtocolError):
                decode(cls, version, data[: randomness.randrange(len(data))])
        with pytest.raises(RemoteProtocolError, match="too many"):
            decode(cls, version, data + b"\0")


@pytest.mark.parametrize("cls, version", CASES, ids=name_of)
def test_a_damaged_message_is_read_or_refused(cls: type[Message], version: int) -> None:
    randomness = random.Random(f"{cls.__name__} {version}")
    for message in samples(cls, version, SAMPLES):
        data = encode(message, version)
        for _ in range(20 if data else 0):
            damaged = bytearray(data)
            for _ in range(randomness.randint(1, 3)):
                position = randomness.randrange(len(damaged))
                patch = randomness.choice([b"\0", b"\xff", b"\x7f", b"\xff\xff\xff\xff", HUGE_VARINT, b"\x80"])
                damaged[position : position + len(patch)] = patch
            try_to_decode(cls, version, bytes(damaged))


@pytest.mark.parametrize("cls, version", versions_of(*REQUESTS), ids=name_of)
def test_random_bytes_are_read_or_refused(cls: type[Message], version: int) -> None:
    randomness = random.Random(f"{cls.__name__} {version}")
    for size in range(60):
        try_to_decode(cls, version, randomness.randbytes(size))
        # Small bytes get further: they are plausible lengths.
        try_to_decode(cls, version, bytes(randomness.choices(range(4), k=size)))


def try_to_decode(cls: type[Message], version: int, data: bytes) -> None:
    try:
        message = decode(cls, version, data)
    except RemoteProtocolError:
        return
    encode(message, version)


@pytest.mark.parametrize("cls, version", versions_of(*REQUESTS), ids=name_of)
def test_nothing_is_allocated_for_lengths_that_lie(cls: type[Message], version: int) -> None:
    lies = [bytes(padding) + lie for padding in range(24) for lie in (HUGE_VARINT * 12, b"\x7f\xff\xff\xff" * 12)]
    for data in lies[:2]:
        try_to_decode(cls, version, data)  # compiled outside of the measurement
    tracemalloc.start()
    try:
        for data in lies:
            try_to_decode(cls, version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < ALLOCATED_FOR_NOTHING_MAX


def refusal(cls: type[Message], version: int, data: bytes) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        decode(cls, version, data)
    return str(caught.value)


def test_the_error_names_the_message_the_version_and_the_field() -> None:
    assert refusal(MetadataRequest, 1, b"\0\0\0\x05\0\x01a") == (
        "MetadataRequest v1, topics: an array of 5 elements, but 3 bytes are left"
    )
    assert refusal(MetadataRequest, 1, b"\0\0\0\x01\0\x09a") == (
        "MetadataRequest v1, topics.name: a length of 9 bytes, but 1 are left"
    )
    assert refusal(HeartbeatRequest, 0, b"\0\x01g\0\0").endswith(
        "generation_id to member_id: the message ends too early"
    )


def test_null_is_refused_where_it_is_not_allowed() -> None:
    assert "topics.name: null" in refusal(MetadataRequest, 1, b"\0\0\0\x01\xff\xff")
    assert "topics.name: null" in refusal(MetadataRequest, 9, b"\x02\0\0\0\0\0")
    assert "topics: null" in refusal(MetadataRequest, 0, b"\xff\xff\xff\xff")
    assert "group_id: null" in refusal(HeartbeatRequest, 4, b"\0")
    assert "states_filter: null" in refusal(ListGroupsRequest, 4, b"\0\0")


def test_negative_lengths_are_refused() -> None:
    assert "a length of -2" in refusal(MetadataRequest, 1, b"\0\0\0\x01\xff\xfe")
    assert "group_id: a length of -32768" in refusal(HeartbeatRequest, 0, b"\x80\0")


def test_text_that_is_not_utf_8_is_refused() -> None:
    assert "group_id: not UTF-8" in refusal(HeartbeatRequest, 0, b"\0\x02\xc3\x28\0\0\0\0\0\0")
    assert "transactional_id: not UTF-8" in refusal(ProduceRequest, 9, b"\x02\xff" + bytes(20))


@pytest.mark.parametrize("varint", [b"\x80\x80\x80\x80\x80\x01", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f"])
def test_a_varint_that_is_too_long_or_too_large_is_refused(varint: bytes) -> None:
    assert "varint" in refusal(HeartbeatRequest, 4, varint + bytes(100))
    assert "varint" in refusal(MetadataRequest, 9, varint + bytes(100))


def test_a_string_longer_than_a_string_may_be_is_refused() -> None:
    assert "group_id" in refusal(HeartbeatRequest, 4, b"\x81\x80\x02" + b"g" * 32_768 + bytes(7))
    decode(HeartbeatRequest, 4, b"\x80\x80\x02" + b"g" * 32_767 + bytes(4) + b"\x01\0\0")


def test_an_array_of_the_smallest_elements_is_believed_only_as_far_as_there_are_bytes() -> None:
    assert "group_ids: an array of 50 elements" in refusal(ConsumerGroupDescribeRequest, 0, b"\x33" + bytes([1] * 49))
    group_ids = decode(ConsumerGroupDescribeRequest, 0, b"\x33" + b"\x01" * 50 + b"\0\0").group_ids
    assert group_ids == [""] * 50


# The tagged fields of FetchRequest 17: cluster_id (tag 0) and replica_state (tag 1).
FETCH_17 = encode(FetchRequest(), 17)[:-1]
CLUSTER_A, CLUSTER_B = b"\x00\x02\x02A", b"\x00\x02\x02B"
REPLICA_STATE = b"\x01\x0d" + (5).to_bytes(4, "big") + (6).to_bytes(8, "big") + b"\0"


def test_unknown_tagged_fields_are_skipped() -> None:
    data = FETCH_17 + b"\x03" + CLUSTER_A + b"\x09\x03abc" + b"\xff\xff\x03\x00"
    assert decode(FetchRequest, 17, data) == FetchRequest(cluster_id="A")
    assert decode(ApiVersionsRequest, 3, b"\x02a\x02b\x02\x00\x01x\x7f\x00").client_software_name == "a"


def test_tagged_fields_may_repeat_and_come_in_any_order_as_in_kafka() -> None:
    decoded = decode(FetchRequest, 17, FETCH_17 + b"\x03" + REPLICA_STATE + CLUSTER_A + CLUSTER_B)
    assert decoded.cluster_id == "B"
    assert (decoded.replica_state.replica_id, decoded.replica_state.replica_epoch) == (5, 6)


@pytest.mark.parametrize(
    "section",
    [
        b"\x01\x00\x03\x02A",  # the field ends one byte before its size
        b"\x01\x00\x01\x02A",  # and one byte behind it
        b"\x01\x00\x7f\x02A",
        b"\x01\x09" + HUGE_VARINT + b"abc",
        b"\x02" + CLUSTER_A,  # a second one announced
        HUGE_VARINT + CLUSTER_A,
        b"\x01" + HUGE_VARINT,
    ],
)
def test_tagged_fields_that_lie_about_their_size_are_refused(section: bytes) -> None:
    assert "FetchRequest v17" in refusal(FetchRequest, 17, FETCH_17 + section)


@pytest.mark.parametrize("cls, version, data", [
    (MetadataRequest, 1, b"\0\0\0\x04" + b"\0\x01t" * 4),  # structs
    (ConsumerGroupDescribeRequest, 0, b"\x05" + b"\x01" * 4 + b"\0\0"),  # text
    (OffsetFetchRequest, 1, b"\0\x01g\0\0\0\x01\0\x01t\0\0\0\x03" + bytes(12)),  # numbers in a struct
    (OffsetFetchRequest, 6, b"\x02g\x02\x02t\x04" + bytes(12) + b"\0\0"),
    (FetchRequest, 17, FETCH_17 + b"\x04" + CLUSTER_A * 4),  # tagged fields, some of which are known
    (ApiVersionsRequest, 3, b"\x02a\x02b\x04" + b"\x09\0" * 4),  # and where none is
])  # fmt: skip
def test_elements_of_all_arrays_and_tagged_fields_count_together(cls: type[Message], version: int, data: bytes) -> None:
    decode(cls, version, data, elements_max=4)
    with pytest.raises(RemoteProtocolError, match="more elements, together with those before"):
        decode(cls, version, data, elements_max=3)


def test_a_large_array_of_numbers_counts_as_much_as_it_has() -> None:
    data = b"\0\x01g\0\0\0\x01\0\x01t" + (1_000).to_bytes(4, "big") + bytes(4_000)
    decode(OffsetFetchRequest, 1, data, elements_max=1_001)
    with pytest.raises(RemoteProtocolError, match="partition_indexes: more elements"):
        decode(OffsetFetchRequest, 1, data, elements_max=1_000)


def test_a_subscription_to_very_many_topics_is_refused() -> None:
    topics = 100_001
    with pytest.raises(RemoteProtocolError, match="topics: more elements"):
        decode_subscription(b"\0\0" + topics.to_bytes(4, "big") + bytes(2 * topics) + b"\xff\xff\xff\xff")


def test_a_version_that_does_not_exist_is_refused() -> None:
    assert "has no version 14" in refusal(MetadataRequest, 14, b"")
    assert "has no version -1" in refusal(MetadataRequest, -1, b"")


def test_an_offset_behind_the_data_is_refused() -> None:
    with pytest.raises(RemoteProtocolError):
        decode(MetadataRequest, 0, b"\0\0\0\0", 5)


def test_a_subscription_of_a_newer_version_is_read_as_the_newest_known_one() -> None:
    newest = ConsumerProtocolSubscription(topics=["t"], generation_id=4, rack_id="r")
    body = encode(newest, 3)
    assert decode_subscription(b"\0\x03" + body) == newest
    assert decode_subscription(b"\0\x09" + body + b"what version 9 added") == newest
    assert decode_assignment(b"\0\x09" + bytes(4) + b"\xff\xff\xff\xff").user_data is None
    for data in (b"\xff\xff" + body, b"\0\x03" + body[:-1], b"\0", b""):
        with pytest.raises(RemoteProtocolError):
            decode_subscription(data)


def test_an_internal_record_of_an_unknown_version_is_refused() -> None:
    assert internal_version(b"\0\x07rest") == 7
    with pytest.raises(RemoteProtocolError, match="no version 7"):
        decode_internal(OffsetCommitValue, b"\0\x07" + bytes(30))
    with pytest.raises(RemoteProtocolError):
        decode_internal(OffsetCommitValue, b"\0")


def test_the_answer_to_an_unknown_version_of_api_versions_can_be_read_by_everybody() -> None:
    api = APIS[ApiKey.API_VERSIONS]
    assert api.is_flexible(99)
    assert api.response_header_version(99) == 0
    assert decode(ApiVersionsResponse, 0, encode(ApiVersionsResponse(error_code=35), 0)).error_code == 35


def test_a_large_honest_message_is_read() -> None:
    topics = 50_000
    data = (topics).to_bytes(4, "big") + b"\0\x01t" * topics
    decoded = decode(MetadataRequest, 1, data)
    assert decoded.topics is not None
    assert len(decoded.topics) == topics
    assert decode(MetadataResponse, 0, bytes(8)).topics == []
