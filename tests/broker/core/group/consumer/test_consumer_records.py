"""Records of consumer groups as Kafka 4.3.1 wrote them."""

from __future__ import annotations

import pytest

from raftlog.broker.core.group.consumer.member import ClassicMetadata, CurrentAssignment, Subscription
from raftlog.broker.core.group.consumer.records import (
    CurrentRecord,
    GroupEpoch,
    GroupEpochRecord,
    MemberRecord,
    PartitionMetadataRecord,
    TargetEpoch,
    TargetEpochRecord,
    TargetRecord,
)
from raftlog.broker.core.group.consumer.state import MemberState
from raftlog.broker.core.group.records import CoordinatorRecord, decode_record, encode_record

TOPIC_ID = bytes.fromhex("74a5944b338b4f26b68e52e47683b108")
HOST = "/127.0.0.1"
MEMBER = Subscription(client_id="wire", client_host=HOST, topics=frozenset({"wt"}), rebalance_timeout_ms=30_000)

# What Kafka wrote (key, value), and what it says. The first member's last tagged field is a null.
WRITTEN: list[tuple[str, str, CoordinatorRecord]] = [
    (
        "0003000a77676533316132323464",
        "000000000002010008968afdfbabcfd9ef",
        GroupEpochRecord("wge31a224d", GroupEpoch(2, int.from_bytes(bytes.fromhex("968afdfbabcfd9ef"), signed=True))),
    ),
    (
        "0005000a7767653331613232346400016d",
        "0000000005776972650b2f3132372e302e302e310203777401000075300001000100",
        MemberRecord("wge31a224d", "m", MEMBER),
    ),
    (
        "0005000a7767653331613232346400027331",
        "000002690005776972650b2f3132372e302e302e310203777401000075300001000100",
        MemberRecord("wge31a224d", "s1", MEMBER._replace(instance_id="i")),
    ),
    (
        "0006000a77676533316132323464",
        "000000000002010008000001a207a2a4c6",
        TargetEpochRecord("wge31a224d", TargetEpoch(2, 0x1A207A2A4C6)),
    ),
    (
        "0007000a7767653331613232346400016d",
        "00000274a5944b338b4f26b68e52e47683b10805000000000000000100000002000000030000",
        TargetRecord("wge31a224d", "m", {TOPIC_ID: (0, 1, 2, 3)}),
    ),
    (
        "0008000a7767653331613232346400016d",
        "00000000000200000002010274a5944b338b4f26b68e52e47683b1080300000000000000010100090300000002000000020274a5944b338b"
        "4f26b68e52e47683b10803000000020000000301000903000000020000000200",
        CurrentRecord(
            "wge31a224d",
            "m",
            CurrentAssignment(
                2, 2, MemberState.UNREVOKED_PARTITIONS, {TOPIC_ID: {0: 2, 1: 2}}, {TOPIC_ID: {2: 2, 3: 2}}
            ),
        ),
    ),
]
IDS = [f"{type(record).__name__}-{number}" for number, (_, _, record) in enumerate(WRITTEN)]


@pytest.mark.parametrize("key, value, record", WRITTEN, ids=IDS)
def test_what_kafka_wrote_is_read(key: str, value: str, record: CoordinatorRecord) -> None:
    assert decode_record(bytes.fromhex(key), bytes.fromhex(value)) == record
    assert decode_record(bytes.fromhex(key), None) == record._replace(value=None)  # type: ignore[union-attr, call-arg]


@pytest.mark.parametrize("key, value, record", WRITTEN, ids=IDS)
def test_what_we_write_is_what_kafka_writes(key: str, value: str, record: CoordinatorRecord) -> None:
    written_key, written = encode_record(record)  # type: ignore[arg-type]
    assert written_key.hex() == key and written is not None
    # Kafka writes out the null that says that a member does not use the classic protocol; it reads both.
    expected = value.removesuffix("01000100") + "00" if isinstance(record, MemberRecord) else value
    assert written.hex() == expected


def test_a_member_that_uses_the_classic_protocol_is_read_and_written_as_kafka_does() -> None:
    protocol = ("range", bytes.fromhex("00030000000100017400000000"))
    subscription = MEMBER._replace(classic=ClassicMetadata(45_000, (protocol,)))
    written = encode_record(MemberRecord("g", "m", subscription))[1]
    assert written is not None and written.hex().endswith(
        "01001c010000afc8020672616e67650e000300000001000174000000000000"
    )
    assert decode_record(b"\0\5\0\1g\0\1m", written) == MemberRecord("g", "m", subscription)


def test_before_kip_1251_partitions_had_the_epoch_of_the_member() -> None:
    head = "0000" + "00000003" + "00000002" + "00"
    partitions = "02" + TOPIC_ID.hex() + "03" + "00000000" + "00000001" + "00"
    read = decode_record(b"\0\x08\0\1g\0\1m", bytes.fromhex(head + partitions + "01" + "00"))
    assert read == CurrentRecord("g", "m", CurrentAssignment(3, 2, assigned={TOPIC_ID: {0: 3, 1: 3}}))


def test_partition_metadata_of_kafka_4_0_is_known_to_be_there() -> None:
    assert decode_record(b"\0\4\0\1g", b"\0\0\1\0") == PartitionMetadataRecord("g", True)
