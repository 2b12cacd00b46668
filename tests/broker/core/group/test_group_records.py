"""Group records as bytes: what Kafka 4.3.1 writes, and what older ones wrote."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from raftlog.broker.core.coordinator.loading import CoordinatorLogReader
from raftlog.broker.core.group.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupMetadata,
    GroupRecord,
    MemberMetadata,
    OffsetRecord,
    UnreadableRecord,
    decode_record,
    encode_record,
)
from raftlog.wire.batch import Record, decode_batch, iterate_batches
from raftlog.wire.internal import encode_internal
from raftlog.wire.internal.offset_commit import OffsetCommitKey, OffsetCommitValue
from raftlog.wire.schema import ZERO_UUID

# The log of a group as Kafka 4.3.1 left it: created, a static member, two commits of t-0, empty.
KAFKA_LOG = bytes.fromhex(
    "00000000000000000000005600000000022c0fba48000000000000000001a1fc0ab564000001a1fc0ab564ffffffffffffffffffff00"
    "00000000000001480000000c000200026731300003000000000000ffffffff000001a1fc0ab559000000000000000000000000010000"
    "011000000000020ce0c5e1000000000000000001a1fc0ab57d000001a1fc0ab57dffffffffffffffffffff0000000000000001ba0300"
    "00000c000200026731a00300030008636f6e73756d657200000001000572616e6765002a696e7374312d38616566613939622d626636"
    "622d346232382d383063662d656138336664633238636235000001a1fc0ab56f00000001002a696e7374312d38616566613939622d62"
    "6636622d346232382d383063662d6561383366646332386362350005696e7374310002636c000a2f3132372e302e302e31000493e000"
    "00177000000018000300000001000274310000000000000000ffffffff00000000001600000000000100027431000000010000000000"
    "0000000000000000000000020000007000000000020cb0a0b4000000000000000001a1fc0ab62c000001a1fc0ab62cffffffffffffff"
    "ffffff00000000000000017c0000001c0001000267310002743100000000540004000000000000000a0000000001000001a1fc0ab627"
    "010010ab246cbc14aa4515aad8ceb7458b73fb00000000000000000300000077000000000236c477d4000000000000000001a1fc0ab6"
    "35000001a1fc0ab635ffffffffffffffffffff000000000000000188010000001c000100026731000274310000000060000400000000"
    "00000005ffffffff0768656c6c6f00000001a1fc0ab635010010ab246cbc14aa4515aad8ceb7458b73fb000000000000000004000000"
    "5e00000000027fedc3d1000000000000000001a1fc0acda8000001a1fc0acda8ffffffffffffffffffff000000000000000158000000"
    "0c0002000267314000030008636f6e73756d657200000002ffffffff000001a1fc0acda70000000000"
)

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=200)
SHORT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.just(ZERO_UUID) | st.binary(min_size=16, max_size=16)
OFFSETS = st.builds(CommittedOffset, INT64, INT32, TEXT, INT64, st.just(-1), IDS)
MEMBERS = st.builds(
    MemberMetadata, SHORT, st.none() | SHORT, SHORT, SHORT, INT32, INT32, st.binary(max_size=40), st.binary(max_size=40)
)
GROUPS = st.builds(
    GroupMetadata, SHORT, INT32, st.none() | SHORT, st.none() | SHORT, INT64, st.lists(MEMBERS, max_size=3).map(tuple)
)
RECORDS: st.SearchStrategy[CoordinatorRecord] = st.one_of(
    st.builds(OffsetRecord, SHORT, SHORT, INT32, st.none() | OFFSETS), st.builds(GroupRecord, SHORT, st.none() | GROUPS)
)


@given(RECORDS)
def test_every_record_comes_back_from_its_bytes(record: CoordinatorRecord) -> None:
    assert decode_record(*encode_record(record)) == record


@given(SHORT, SHORT, INT32, OFFSETS)
def test_the_commit_packed_by_hand_equals_the_one_of_the_schema(
    group: str, topic: str, partition: int, value: CommittedOffset
) -> None:
    key, packed = encode_record(OffsetRecord(group, topic, partition, value))
    assert key == encode_internal(OffsetCommitKey(group=group, topic=topic, partition=partition), 1)
    expected = OffsetCommitValue(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp=value.commit_timestamp_ms,
        topic_id=value.topic_id,
    )
    assert packed == encode_internal(expected, 4)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_values_of_all_versions_are_read(version: int) -> None:
    key = encode_internal(OffsetCommitKey(group="g", topic="t", partition=3), min(version, 1))
    value = OffsetCommitValue(offset=7, metadata="m", commit_timestamp=11)
    if version == 1:
        value.expire_timestamp = 99
    if version >= 3:
        value.leader_epoch = 5
    record = decode_record(key, encode_internal(value, version))
    epoch, expiry = (5 if version >= 3 else -1), (99 if version == 1 else -1)
    assert record == OffsetRecord("g", "t", 3, CommittedOffset(7, epoch, "m", 11, expiry))


def test_a_commit_with_its_own_expiry_is_written_as_version_1() -> None:
    _, value = encode_record(OffsetRecord("g", "t", 0, CommittedOffset(1, 2, "", 10, 20)))
    assert value is not None and value[:2] == b"\x00\x01"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00", None),
        (b"\x00\x01\x00\x05ab", None),
        (b"\x00\x01\xff\xff\x00\x00\x00\x00\x00\x00", None),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00\x00", None),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x04\x00"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x09" + bytes(40)),
        (b"\x00\x01\x00\x01\xff\x00\x01t\x00\x00\x00\x00", None),
        (b"\x00\x02\x00\x01g", b"\x00\x63"),
        (b"\x00\x02\x00\x09g", None),
    ],
)
def test_what_cannot_be_read_is_refused_and_not_guessed(key: bytes, value: bytes | None) -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(key, value)


def test_records_of_other_protocols_are_passed_over() -> None:
    assert decode_record(b"\x00\x0b\x00\x01g", b"\x00\x00") is None


def kafka_records() -> list[Record]:
    return [r for at, header in iterate_batches(KAFKA_LOG) for r in decode_batch(KAFKA_LOG[at : at + header.size])]


def test_what_kafka_wrote_is_what_we_write() -> None:
    records = kafka_records()
    assert len(records) == 5
    for record in records:
        assert record.key is not None
        decoded = decode_record(record.key, record.value)
        assert decoded is not None
        assert encode_record(decoded) == (record.key, record.value)


def test_a_group_that_kafka_wrote_is_understood() -> None:
    reader = CoordinatorLogReader(0)
    reader.feed(KAFKA_LOG)
    left = [decode_record(key, value) for key, value in reader.survivors()]
    group, offset = sorted(left, key=lambda record: isinstance(record, OffsetRecord))
    assert isinstance(group, GroupRecord) and isinstance(offset, OffsetRecord)
    assert group.value == GroupMetadata("consumer", 2, None, None, 1795229928871, ())
    assert offset.value is not None
    assert (offset.topic, offset.partition, offset.value.offset, offset.value.leader_epoch) == ("t1", 0, 5, -1)
    assert offset.value.topic_id.hex() == "ab246cbc14aa4515aad8ceb7458b73fb"
    second = kafka_records()[1]
    assert second.key is not None
    stable = decode_record(second.key, second.value)
    assert isinstance(stable, GroupRecord) and stable.value is not None
    (member,) = stable.value.members
    assert (member.group_instance_id, member.client_host, member.session_timeout_ms) == ("inst1", "/127.0.0.1", 6000)
    assert stable.value.leader == member.member_id
