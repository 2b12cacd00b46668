"""Transactional ids as they lie in `__transaction_state`: Kafka's bytes, packed and parsed by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.broker.core.coordinator.loading import UnreadableRecord
from raftlog.broker.core.transaction.records import TransactionRecord, decode_record, encode_record
from raftlog.broker.core.transaction.state import HAS_ENDED, NO_PRODUCER_ID, TransactionMetadata, TransactionState
from raftlog.wire import internal
from raftlog.wire.ids import ProducerEpoch, ProducerId
from raftlog.wire.internal.transaction_log import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tests.broker.core.transaction.transaction_world import ID, P0, P1, P2, metadata

S = TransactionState
STORED = sorted({*HAS_ENDED, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT})

ids = st.integers(0, (1 << 63) - 1).map(ProducerId)
topics = st.text(min_size=1, max_size=200).filter(lambda name: name.isprintable())


@st.composite
def values(draw: st.DrawFn) -> TransactionMetadata:
    state = draw(st.sampled_from(STORED))
    has_partitions = state not in HAS_ENDED
    return TransactionMetadata(
        state=state,
        producer_id=draw(ids),
        previous_producer_id=draw(ids | st.just(NO_PRODUCER_ID)),
        next_producer_id=draw(ids | st.just(NO_PRODUCER_ID)),
        producer_epoch=ProducerEpoch(draw(st.integers(0, 32_767))),
        last_producer_epoch=ProducerEpoch(-1),
        timeout_ms=draw(st.integers(1, (1 << 31) - 1)),
        partitions=draw(st.frozensets(st.tuples(topics, st.integers(0, (1 << 31) - 1)), max_size=5))
        if has_partitions
        else frozenset(),
        start_ms=draw(st.integers(-1, (1 << 62))),
        last_update_ms=draw(st.integers(0, (1 << 62))),
        client_version=draw(st.integers(0, 2)),
    )


@given(st.text(max_size=300).filter(lambda name: name.isprintable()), values())
def test_what_is_written_is_what_the_schema_says_and_what_is_read(name: str, value: TransactionMetadata) -> None:
    record = TransactionRecord(name, value)
    key, encoded = encode_record(record, 1)
    assert encoded is not None
    assert key == internal.encode_internal(TransactionLogKey(transactional_id=name), 0)
    decoded = internal.decode_internal(TransactionLogValue, encoded)
    assert internal.encode_internal(decoded, 1) == encoded
    assert (decoded.producer_id, decoded.producer_epoch) == (value.producer_id, value.producer_epoch)
    assert decoded.transaction_status == value.state
    assert (decoded.transaction_partitions is None) is (value.state is S.EMPTY)
    assert decode_record(key, encoded) == record


def test_a_removal_has_no_value() -> None:
    key, value = encode_record(TransactionRecord(ID, None), 2)
    assert value is None and decode_record(key, None) == TransactionRecord(ID, None)


def test_the_partitions_are_written_in_order_whatever_order_a_set_has() -> None:
    value = metadata(S.ONGOING, partitions=frozenset({P2, P1, P0}))
    _, encoded = encode_record(TransactionRecord(ID, value), 1)
    assert encoded is not None
    decoded = internal.decode_internal(TransactionLogValue, encoded)
    assert decoded.transaction_partitions == [
        PartitionsSchema(topic="accounts", partition_ids=[0, 1]),
        PartitionsSchema(topic="audit", partition_ids=[0]),
    ]


def test_version_0_of_the_cluster_writes_the_old_form_unless_the_client_needs_the_new_one() -> None:
    old = metadata(S.COMPLETE_COMMIT, client_version=0)
    key, encoded = encode_record(TransactionRecord(ID, old), 0)
    assert encoded is not None and encoded[:2] == b"\x00\x00"
    assert decode_record(key, encoded) == TransactionRecord(ID, old._replace(previous_producer_id=NO_PRODUCER_ID))
    new = metadata(S.PREPARE_COMMIT, client_version=2, next_producer_id=9)
    key, encoded = encode_record(TransactionRecord(ID, new), 0)
    assert encoded is not None and decode_record(key, encoded) == TransactionRecord(ID, new)


def test_a_key_of_another_kind_is_left_alone() -> None:
    assert decode_record(b"\x00\x01\x00\x01x", b"\x00\x00") is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"", b""),
        (b"\x00\x00\x00", b""),
        (b"\x00\x00\x00\x02x", b""),
        (b"\x00\x00\xff\xffx", b""),
        (b"\x00\x00\x00\x01\xff", b""),
        (b"\x00\x00\x00\x01x", b""),
        (b"\x00\x00\x00\x01x", b"\x00\x07"),
        (b"\x00\x00\x00\x01x", b"\x00\x01" + b"\x00" * 5),
    ],
)
def test_what_is_no_record_is_refused(key: bytes, value: bytes) -> None:
    with pytest.raises(UnreadableRecord):
        decode_record(key, value)


@pytest.mark.parametrize("state", [S.DEAD, S.PREPARE_EPOCH_FENCE, 9])
def test_a_state_that_is_never_stored_is_refused(state: int) -> None:
    message = TransactionLogValue(
        producer_id=1, producer_epoch=0, transaction_status=state, transaction_partitions=None
    )
    with pytest.raises(UnreadableRecord, match=f"in state {int(state)}"):
        decode_record(b"\x00\x00\x00\x01x", internal.encode_internal(message, 1))


@given(st.binary(max_size=120))
def test_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        decode_record(b"\x00\x00\x00\x01x", data)
    except UnreadableRecord:
        pass
