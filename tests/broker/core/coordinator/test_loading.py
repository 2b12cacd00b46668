"""Reading a coordinator's log: the last record of each key is left."""

from __future__ import annotations

import pytest

from raftlog.broker.core.coordinator.loading import RECORDS_A_STEP, CoordinatorLogReader, UnreadableRecord
from raftlog.broker.core.group.records import (
    CommittedOffset,
    CoordinatorRecord,
    OffsetRecord,
    decode_record,
    encode_record,
)
from raftlog.wire.batch import CorruptRecord, Record, encode_batch
from raftlog.wire.compression import Compression
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.ids import Offset


def batches(*records: CoordinatorRecord, start: int = 0, **options: object) -> bytes:
    encoded = [encode_record(record) for record in records]
    return encode_batch(
        [Record(start + i, 1_000, key, value) for i, (key, value) in enumerate(encoded)],
        base_offset=start,
        **options,  # type: ignore[arg-type]
    )


def survivors(reader: CoordinatorLogReader) -> list[CoordinatorRecord | None]:
    return [decode_record(key, value) for key, value in reader.survivors()]


def test_of_all_records_with_one_key_the_last_is_left() -> None:
    def commit(offset: int | None, partition: int = 0) -> OffsetRecord:
        return OffsetRecord("g", "t", partition, None if offset is None else CommittedOffset(offset))

    reader = CoordinatorLogReader(0)
    reader.feed(batches(commit(1), commit(2), commit(5, partition=1)))
    reader.feed(batches(commit(3), commit(None, partition=1), start=3, compression=Compression.GZIP))
    assert reader.next_offset == 5
    assert survivors(reader) == [commit(3)]
    assert reader.records_read == 5


def test_a_batch_that_is_cut_short_is_left_for_the_next_read() -> None:
    one, two = batches(OffsetRecord("g", "t", 0, None)), batches(OffsetRecord("g", "t", 1, None), start=1)
    reader = CoordinatorLogReader(0)
    reader.feed(one + two[:-1])
    assert reader.next_offset == 1
    reader.feed(two)
    assert reader.next_offset == 2


def test_records_of_a_transaction_count_when_its_marker_comes() -> None:
    def commit(offset: int, start: int, **options: object) -> bytes:
        record = OffsetRecord("g", "t", 0, CommittedOffset(Offset(offset)))
        return batches(record, start=start, **options)

    def marker(start: int, *, committed: bool) -> bytes:
        return encode_transaction_marker(
            TransactionMarker(committed, 0), producer_id=1, producer_epoch=0, timestamp=1_000, base_offset=start
        )

    transaction = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    reader = CoordinatorLogReader(0)
    reader.feed(commit(1, 0) + commit(2, 1, **transaction))
    ((producer_id, key, value),) = reader.pending()
    assert producer_id == 1 and decode_record(key, value) == OffsetRecord("g", "t", 0, CommittedOffset(Offset(2)))
    reader.feed(marker(2, committed=True))
    packed = commit(3, 3, compression=Compression.GZIP, **transaction)
    reader.feed(packed + marker(4, committed=False))
    assert survivors(reader) == [OffsetRecord("g", "t", 0, CommittedOffset(Offset(2)))]
    assert list(reader.pending()) == []
    assert (reader.next_offset, reader.records_read) == (5, 3)


def test_a_log_without_keys_is_refused() -> None:
    with pytest.raises(UnreadableRecord, match="without a key"):
        CoordinatorLogReader(0).feed(encode_batch([Record(0, 0, None, b"x")]))
    with pytest.raises(CorruptRecord):
        CoordinatorLogReader(0).feed(bytes(100))


def test_a_large_batch_is_read_in_small_steps() -> None:
    written = [OffsetRecord("g", "t", i, CommittedOffset(Offset(i))) for i in range(5 * RECORDS_A_STEP + 1)]
    reader = CoordinatorLogReader(0)
    assert sum(1 for _ in reader.read(batches(*written))) == 6
    assert sorted(survivors(reader)) == written
