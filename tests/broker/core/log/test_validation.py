"""What a leader takes, refuses and changes of what clients send."""

from __future__ import annotations

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import AppendOrigin
from raftlog.broker.core.log.validation import (
    QUICK_RECORDS_MAX,
    BatchRules,
    Checked,
    Refusal,
    TakesLong,
    check_api_version,
    check_batch,
    is_transactional,
)
from raftlog.wire.batch import Record, TimestampType, decode_batch, encode_batch, parse_header, stamp_batch
from raftlog.wire.compression import Compression, compress
from raftlog.wire.control import TransactionMarker, decode_control_batch, encode_transaction_marker
from raftlog.wire.errors import ErrorCode
from tests.broker.core.log.produce_cases import TOPICS, Case, batch_of, cases, reheaded

NOW = 1_750_000_000_000


def rules_of(topic: str) -> BatchRules:
    return BatchRules(LogConfig.from_mapping(TOPICS[topic]))


def check(payload: bytes, topic: str = "plain") -> Checked | Refusal:
    return check_batch(memoryview(bytearray(payload)), rules_of(topic), NOW)


@pytest.mark.parametrize("case", cases(NOW), ids=lambda case: case.name)
def test_each_payload_gets_the_answer_of_the_table(case: Case) -> None:
    result = check(case.payload, case.topic)
    if case.ours is ErrorCode.NONE:
        assert isinstance(result, Checked), result
        assert result.header == parse_header(result.batch)
        assert len(result.batch) == result.header.size
    else:
        assert isinstance(result, Refusal)
        assert result.error is case.ours
        assert result.message
        assert tuple(error.batch_index for error in result.record_errors) == case.refused_records


@pytest.mark.parametrize("case", cases(NOW), ids=lambda case: case.name)
def test_who_has_no_time_gets_the_same_answer_of_the_table_or_none(case: Case) -> None:
    payload = bytearray(case.payload)
    try:
        result = check_batch(memoryview(payload), rules_of(case.topic), NOW, may_take_long=False)
    except TakesLong:
        assert payload == case.payload, "it was changed, and is to be checked again"
        return
    assert result == check(case.payload, case.topic)


@pytest.mark.parametrize(
    ("settings", "codec"),
    [
        *[({"cleanup.policy": "compact"}, codec) for codec in Compression],
        ({"compression.type": "zstd", "compression.zstd.level": "22"}, Compression.NONE),
        ({"compression.type": "gzip", "message.timestamp.type": "LogAppendTime"}, Compression.LZ4),
        ({"message.timestamp.after.max.ms": "1000"}, Compression.SNAPPY),
    ],
)
def test_a_batch_that_takes_long_to_check_is_left_as_it_is(settings: dict[str, str], codec: Compression) -> None:
    late = NOW + 10_000 if "message.timestamp.after.max.ms" in settings else NOW
    records = [Record(number, late, b"k", None) for number in range(QUICK_RECORDS_MAX + 1)]
    payload = bytearray(encode_batch(records, compression=codec))
    before = bytes(payload)
    rules = BatchRules(LogConfig.from_mapping(settings))
    with pytest.raises(TakesLong):
        check_batch(memoryview(payload), rules, NOW, may_take_long=False)
    assert payload == before
    result = check_batch(memoryview(payload), rules, NOW)
    if late > NOW:
        assert isinstance(result, Refusal) and result.error is ErrorCode.INVALID_TIMESTAMP
    else:
        assert isinstance(result, Checked)
        assert len(decode_batch(result.batch)) == len(records)


@pytest.mark.parametrize("codec", [codec for codec in Compression if codec is not Compression.NONE])
def test_little_that_unfolds_to_much_takes_long_and_has_a_bound(codec: Compression) -> None:
    payload = encode_batch([Record(0, NOW, b"k", bytes(8 << 20))], compression=codec)
    rules = BatchRules(LogConfig.from_mapping({"cleanup.policy": "compact"}))
    with pytest.raises(TakesLong):
        check_batch(payload, rules, NOW, may_take_long=False)
    assert isinstance(check_batch(payload, rules, NOW), Checked)
    bounded = BatchRules(LogConfig.from_mapping({"cleanup.policy": "compact"}), max_unpacked_bytes=1 << 20)
    refusal = check_batch(payload, bounded, NOW)
    assert isinstance(refusal, Refusal) and refusal.error is ErrorCode.INVALID_RECORD


def test_the_common_batch_comes_back_as_the_same_bytes_in_the_same_memory() -> None:
    buffer = bytearray(batch_of(3, NOW, compression=Compression.LZ4))
    before = bytes(buffer)
    result = check_batch(memoryview(buffer), rules_of("plain"), NOW)
    assert isinstance(result, Checked)
    assert result.batch == before
    assert result.log_append_time_ms == -1
    stamp_batch(result.batch, result.header, 100, 4)
    assert parse_header(buffer).base_offset == 100
    assert [record.offset for record in decode_batch(buffer)] == [100, 101, 102]


def test_what_cannot_be_written_into_is_copied() -> None:
    result = check_batch(batch_of(1, NOW), rules_of("plain"), NOW)
    assert isinstance(result, Checked)
    stamp_batch(result.batch, result.header, 7, 0)
    assert decode_batch(result.batch)[0].offset == 7


@pytest.mark.parametrize("codec", list(Compression))
def test_append_time_is_stamped_into_the_header_and_the_checksum_follows(codec: Compression) -> None:
    result = check(batch_of(3, NOW - 5, compression=codec), "append-time")
    assert isinstance(result, Checked)
    assert result.log_append_time_ms == NOW
    assert result.header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert result.header.codec is codec
    assert [record.timestamp for record in decode_batch(result.batch)] == [NOW] * 3


@pytest.mark.parametrize("source", list(Compression))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own_gets_every_batch_in_it(source: Compression, target: str) -> None:
    payload = batch_of(4, NOW, compression=source, producer_id=8, producer_epoch=2, base_sequence=3)
    rules = BatchRules(LogConfig(compression_type=target))
    result = check_batch(payload, rules, NOW)
    assert isinstance(result, Checked)
    assert result.header.codec is Compression.parse(target)
    assert (result.header.producer_id, result.header.producer_epoch, result.header.base_sequence) == (8, 2, 3)
    assert decode_batch(result.batch) == decode_batch(payload)
    if source is Compression.parse(target):
        assert result.batch == payload


def test_a_codec_of_its_own_and_append_time_go_together() -> None:
    rules = BatchRules(LogConfig(compression_type="zstd", message_timestamp_type="LogAppendTime"))
    result = check_batch(batch_of(2, 5), rules, NOW)
    assert isinstance(result, Checked)
    assert (result.header.codec, result.log_append_time_ms) == (Compression.ZSTD, NOW)
    assert [record.timestamp for record in decode_batch(result.batch)] == [NOW, NOW]


def test_a_bomb_is_refused_where_it_would_have_to_be_unpacked_and_passed_on_where_not() -> None:
    header = parse_header(batch_of(1, NOW))
    from raftlog.wire.batch import assemble_batch

    bomb = assemble_batch(header._replace(attributes=Compression.GZIP), compress(Compression.GZIP, bytes(8 << 20)))
    rules = BatchRules(LogConfig(compression_type="zstd"), max_unpacked_bytes=1 << 20)
    refused = check_batch(bomb, rules, NOW)
    assert isinstance(refused, Refusal)
    assert refused.error is ErrorCode.INVALID_RECORD
    rules = BatchRules(LogConfig(cleanup_policy=("compact",)), max_unpacked_bytes=1 << 20)
    assert isinstance(check_batch(bomb, rules, NOW), Refusal)
    assert isinstance(check(bomb), Checked)


def test_a_header_that_lies_about_its_greatest_time_is_put_right() -> None:
    for claimed in (-1, NOW - 5, NOW + 10**10):
        result = check(reheaded(batch_of(2, NOW), max_timestamp=claimed), "timed")
        assert isinstance(result, Checked)
        assert result.header.max_timestamp == NOW
        assert len(decode_batch(result.batch)) == 2


def test_an_append_time_bit_from_a_client_does_not_stay_in_a_create_time_topic() -> None:
    result = check(reheaded(batch_of(2, NOW - 3), attributes=8, max_timestamp=NOW - 1))
    assert isinstance(result, Checked)
    assert result.header.timestamp_type is TimestampType.CREATE_TIME
    assert result.header.max_timestamp == NOW - 1


def test_a_long_list_of_refused_records_is_cut() -> None:
    result = check(batch_of(5000, NOW, key=None), "compacted")
    assert isinstance(result, Refusal)
    assert len(result.record_errors) == 1000
    assert "5000 of 5000" in result.message


def test_coordinators_may_write_markers_and_offsets_as_they_are() -> None:
    marker = encode_transaction_marker(
        TransactionMarker(True, 3), producer_id=5, producer_epoch=1, timestamp=NOW, base_offset=0
    )
    for topic in ("plain", "compacted", "gzip", "append-time"):
        result = check_batch(marker, rules_of(topic), NOW, AppendOrigin.COORDINATOR)
        assert isinstance(result, Checked)
        assert decode_control_batch(result.batch) == TransactionMarker(True, 3)
        assert result.header.codec is Compression.NONE
    without_key = batch_of(1, NOW, key=None, base_offset=0)
    assert isinstance(check_batch(without_key, rules_of("compacted"), NOW, AppendOrigin.COORDINATOR), Checked)
    transactional = batch_of(1, NOW, transactional=1, producer_id=5, producer_epoch=0)
    assert isinstance(check_batch(transactional, rules_of("plain"), NOW, AppendOrigin.COORDINATOR), Checked)
    damaged = bytearray(without_key)
    damaged[-1] ^= 1
    assert isinstance(check_batch(damaged, rules_of("plain"), NOW, AppendOrigin.COORDINATOR), Refusal)


def test_zstd_needs_produce_seven() -> None:
    packed = batch_of(1, NOW, compression=Compression.ZSTD)
    refusal = check_api_version(packed, 6)
    assert refusal is not None
    assert refusal.error is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert check_api_version(packed, 7) is None
    assert check_api_version(batch_of(1, NOW, compression=Compression.LZ4), 3) is None
    assert check_api_version(b"", 3) is None


def test_a_transactional_payload_is_known_before_it_is_checked() -> None:
    assert is_transactional(batch_of(1, NOW, transactional=1, producer_id=1, producer_epoch=0, base_sequence=0))
    assert not is_transactional(batch_of(1, NOW))
    assert not is_transactional(b"")


def test_a_transactional_batch_has_a_producer() -> None:
    result = check(batch_of(1, NOW, transactional=1))
    assert isinstance(result, Refusal)
    assert result.error is ErrorCode.INVALID_RECORD


def test_any_bytes_at_all_are_answered() -> None:
    good = batch_of(2, NOW, compression=Compression.SNAPPY)
    for topic in TOPICS:
        for size in range(len(good)):
            assert isinstance(check(good[:size], topic), Refusal)
        for position in range(len(good)):
            changed = bytearray(good)
            changed[position] ^= 0x41
            check(bytes(changed), topic)
            if position >= 17:
                continue
            assert position in range(12, 16) or isinstance(check(bytes(changed), topic), Refusal)


def test_keys_are_looked_for_in_every_record() -> None:
    records = [Record(0, NOW, b"a", b"1"), Record(1, NOW, None, b"2"), Record(2, NOW, b"", None)]
    result = check(encode_batch(records, compression=Compression.ZSTD), "compacted")
    assert isinstance(result, Refusal)
    assert [error.batch_index for error in result.record_errors] == [1]
