"""Traps in producing: acknowledgements, idempotence, what may stand in a batch."""

from __future__ import annotations

import struct
import time
import zlib

import pytest

from raftlog.wire.batch import Record, check_crc, encode_batch, parse_header
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.api_versions import ApiVersionsRequest
from raftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from raftlog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from raftlog.wire.messages.produce import PartitionProduceData
from tests.conftest import Broker
from tests.system.traps.batches import TIME_MS, Producer, everything, plain_batch, read, send, values_of
from tests.system.traps.conftest import MakeTopic, ours_only
from tests.system.traps.raw import RawConnection, wait_until_led
from tests.system.traps.sensible import Names, produce

VERSIONS = range(3, 14)
SEQUENCE_MAX = 2**31 - 1


@pytest.fixture
def connection(broker: Broker) -> RawConnection:
    return RawConnection(broker.bootstrap_servers)


@pytest.fixture
def producer(connection: RawConnection) -> Producer:
    return Producer.register(connection)


# ── acknowledgements ──────────────────────────────────────────────────────────────────────────────────────────


def test_acks_0_gets_no_reply_and_the_next_reply_is_the_next_request_s(
    connection: RawConnection, names: Names
) -> None:
    for _ in range(3):
        connection.send_request(produce(9, names, acks=0), 9)
    assert connection.ask(ApiVersionsRequest(), 0).error_code == ErrorCode.NONE
    assert len(everything(connection, names)) == 3


def test_an_error_with_acks_0_ends_the_connection_for_there_is_no_other_way_to_say_it(
    connection: RawConnection, names: Names
) -> None:
    batch = bytearray(plain_batch(b"x"))
    batch[-1] ^= 1
    connection.send_request(produce(9, names, records=bytes(batch), acks=0), 9)
    assert connection.wait_until_closed() == b""


@pytest.mark.parametrize("acks", [2, -2, 127, -32768])
def test_acks_that_do_not_exist_are_refused(connection: RawConnection, names: Names, acks: int) -> None:
    assert send(connection, names, plain_batch(b"x"), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS
    assert everything(connection, names) == []


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("acks", [1, -1])
def test_the_reply_tells_the_first_offset_in_every_version(
    connection: RawConnection, names: Names, version: int, acks: int
) -> None:
    first = send(connection, names, plain_batch(b"a", b"b"), version=version, acks=acks)
    second = send(connection, names, plain_batch(b"c"), version=version, acks=acks)
    assert (first.error_code, first.base_offset, second.base_offset) == (ErrorCode.NONE, 0, 2)
    assert first.log_append_time_ms == -1, "CreateTime"
    assert first.log_start_offset == (0 if version >= 5 else -1)


def test_one_bad_partition_does_not_keep_the_others_from_being_written(
    connection: RawConnection, make_topic: MakeTopic
) -> None:
    names = make_topic(partitions=2)
    request = produce(9, names)
    damaged = bytearray(plain_batch(b"x"))
    damaged[-1] ^= 1
    request.topic_data[0].partition_data += [
        PartitionProduceData(index=1, records=bytes(damaged)),
        PartitionProduceData(index=99, records=plain_batch(b"x")),
    ]
    (topic,) = connection.ask(request, 9).responses
    assert {partition.index: partition.error_code for partition in topic.partition_responses} == {
        0: ErrorCode.NONE,
        1: ErrorCode.CORRUPT_MESSAGE,
        99: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_a_topic_that_is_not_there_is_said_so_by_name_and_by_id(connection: RawConnection) -> None:
    nowhere = Names("not-there", b"\1" * 16, "")
    batch = plain_batch(b"x")
    assert send(connection, nowhere, batch, version=12).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert send(connection, nowhere, batch, version=13).error_code == ErrorCode.UNKNOWN_TOPIC_ID


# ── batches ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_base_offset_and_leader_epoch_are_set_and_the_checksum_and_all_else_stay(
    connection: RawConnection, names: Names
) -> None:
    batch = plain_batch(b"a", b"b", compression=Compression.LZ4)
    send(connection, names, plain_batch(b"first"))
    assert send(connection, names, batch).base_offset == 1
    fetched = bytes(read(connection, names, offset=1).records or b"")
    header = parse_header(fetched)
    assert (header.base_offset, header.partition_leader_epoch) == (1, 0)
    assert check_crc(fetched, 0, len(fetched)), "base offset and leader epoch lie outside the checksum"
    assert fetched[16:] == batch[16:], "the broker changed more than base offset and leader epoch"


def test_the_broker_s_time_is_told_where_the_topic_keeps_log_append_time(
    connection: RawConnection, make_topic: MakeTopic
) -> None:
    names = make_topic(settings={"message.timestamp.type": "LogAppendTime"})
    before = time.time_ns() // 1_000_000
    answer = send(connection, names, plain_batch(b"x"))
    assert before <= answer.log_append_time_ms <= time.time_ns() // 1_000_000
    header = parse_header(read(connection, names).records or b"")
    assert header.max_timestamp == answer.log_append_time_ms and header.attributes & 8


@pytest.mark.parametrize("version", [3, 6])
def test_zstd_is_refused_before_produce_v7(connection: RawConnection, names: Names, version: int) -> None:
    batch = plain_batch(b"x" * 100, compression=Compression.ZSTD)
    assert send(connection, names, batch, version=version).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert send(connection, names, batch, version=7).error_code == ErrorCode.NONE
    assert len(everything(connection, names)) == 1


def test_a_transactional_batch_without_a_transactional_id_is_refused(
    connection: RawConnection, names: Names, producer: Producer
) -> None:
    batch = producer.batch(0, transactional=True)
    error = send(connection, names, batch).error_code
    assert error == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "what Kafka answers, and what stops a client"
    assert everything(connection, names) == []


@pytest.mark.parametrize("magic", [0, 1])
def test_the_message_formats_before_2_are_refused(
    connection: RawConnection, names: Names, magic: int
) -> None:
    body = struct.pack(">bb", magic, 0) + (struct.pack(">q", TIME_MS) if magic else b"") + struct.pack(">ii", -1, 1)
    message = struct.pack(">I", zlib.crc32(body + b"v")) + body + b"v"
    answer = send(connection, names, struct.pack(">qi", 0, len(message)) + message)
    assert answer.error_code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("records", [pytest.param(None, marks=ours_only), b""])
def test_no_records_at_all_are_refused(connection: RawConnection, names: Names, records: bytes | None) -> None:
    assert send(connection, names, records).error_code == ErrorCode.INVALID_RECORD


# ── idempotence (KIP-98, KIP-360) ─────────────────────────────────────────────────────────────────────────────


def test_a_duplicate_is_answered_with_its_first_offset_and_written_once(
    connection: RawConnection, names: Names, producer: Producer
) -> None:
    batches = [producer.batch(sequence, 2) for sequence in (0, 2, 4, 6, 8)]
    offsets = [send(connection, names, batch).base_offset for batch in batches]
    again = [send(connection, names, batch) for batch in batches]
    assert [answer.error_code for answer in again] == [ErrorCode.NONE] * 5, "redpanda#3039"
    assert [answer.base_offset for answer in again] == offsets == [0, 2, 4, 6, 8]
    assert everything(connection, names) == [b"%d" % number for number in range(10)]


def test_only_the_last_five_batches_are_remembered(
    connection: RawConnection, names: Names, producer: Producer
) -> None:
    """Redpanda #5356: what was forgotten was answered as an unknown error, and the Java client sent it under a new
    number (KAFKA-14034). These two codes are final to it.
    """
    batches = [producer.batch(sequence) for sequence in range(6)]
    for batch in batches:
        assert send(connection, names, batch).error_code == ErrorCode.NONE
    error = send(connection, names, batches[0]).error_code
    assert error in (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    assert send(connection, names, batches[1]).base_offset == 1
    assert len(everything(connection, names)) == 6


def test_a_gap_in_the_sequence_is_an_error_and_nothing_is_written(
    connection: RawConnection, names: Names, producer: Producer
) -> None:
    send(connection, names, producer.batch(0))
    assert send(connection, names, producer.batch(2)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(connection, names, producer.batch(1)).base_offset == 1
    assert everything(connection, names) == [b"0", b"1"]


@ours_only
@pytest.mark.parametrize("version", [12, 13])
def test_nothing_is_stored_before_the_first_batch_of_a_producer_that_was_refused_for_now(
    connection: RawConnection, make_topic: MakeTopic, producer: Producer, version: int
) -> None:
    """Kafka stores the second, and the first is out of order for ever. librdkafka, which has both under way, reports it
    as delivered when it hears that the second is stored.
    """
    names = make_topic()

    def send_to_1(sequence: int) -> tuple[int, int]:
        request = produce(version, names, records=producer.batch(sequence), acks=-1)
        request.topic_data[0].partition_data[0].index = 1
        (answer,) = connection.ask(request, version).responses[0].partition_responses
        return answer.error_code, answer.base_offset

    assert send_to_1(0)[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    topics = [CreatePartitionsTopic(name=names.topic, count=2, assignments=None)]
    more = CreatePartitionsRequest(topics=topics, timeout_ms=30_000)
    assert connection.ask(more, 3).results[0].error_code == ErrorCode.NONE
    wait_until_led(connection, names.topic, 2)
    assert send_to_1(1)[0] == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert [send_to_1(sequence) for sequence in (0, 1)] == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 1)]


def test_a_newer_epoch_begins_at_0_and_fences_the_older_one(
    connection: RawConnection, names: Names, producer: Producer
) -> None:
    send(connection, names, producer.batch(0))
    newer = Producer(producer.producer_id, producer.epoch + 1)
    assert send(connection, names, newer.batch(5)).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert send(connection, names, newer.batch(0)).error_code == ErrorCode.NONE
    assert send(connection, names, producer.batch(1)).error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_sequence_goes_round_from_its_largest_number_to_0(
    connection: RawConnection, names: Names, producer: Producer
) -> None:
    assert send(connection, names, producer.batch(SEQUENCE_MAX - 1)).error_code == ErrorCode.NONE
    records = [Record(number, TIME_MS, None, b"v") for number in range(3)]
    over = encode_batch(records, producer_id=producer.producer_id, producer_epoch=0, base_sequence=SEQUENCE_MAX)
    assert send(connection, names, over).base_offset == 1
    assert send(connection, names, over).base_offset == 1, "a duplicate across the wrap"
    assert send(connection, names, producer.batch(2)).base_offset == 4


def test_pipelined_duplicates_are_each_answered_with_the_first_offset(
    connection: RawConnection, names: Names, producer: Producer
) -> None:
    for _ in range(4):
        connection.send_request(produce(9, names, records=producer.batch(0), acks=-1), 9)
    offsets = [connection.receive(0, 9)[1].responses[0].partition_responses[0].base_offset for _ in range(4)]
    assert offsets == [0, 0, 0, 0]


def test_the_producers_of_a_partition_are_told(connection: RawConnection, names: Names, producer: Producer) -> None:
    send(connection, names, producer.batch(0, 3))
    request = DescribeProducersRequest(topics=[TopicRequest(name=names.topic, partition_indexes=[0])])
    (state,) = connection.ask(request, 0).topics[0].partitions[0].active_producers
    assert (state.producer_id, state.producer_epoch, state.last_sequence) == (producer.producer_id, 0, 2)
    assert (state.last_timestamp, state.current_txn_start_offset) == (TIME_MS, -1)


def test_producer_ids_are_never_given_twice(broker: Broker) -> None:
    ids = [Producer.register(RawConnection(broker.bootstrap_servers)).producer_id for _ in range(20)]
    assert len(set(ids)) == 20


def test_the_same_values_come_back_whatever_the_codec(connection: RawConnection, names: Names) -> None:
    for codec in Compression:
        send(connection, names, plain_batch(b"a" * 1000, b"", compression=codec))
    assert everything(connection, names) == [b"a" * 1000, b""] * len(Compression)
    assert values_of(read(connection, names, offset=9).records)[-1] == b""
