"""What compaction leaves of a batch: values, tombstones, markers, and what producers need."""

from __future__ import annotations

import tracemalloc
from collections.abc import Generator, Sequence
from random import Random
from typing import TypeVar

import pytest

from raftlog.broker.core.log.cleaned_batches import (
    CleaningRules,
    CleaningStats,
    LastRecord,
    Step,
    clean_batch,
    map_batch,
)
from raftlog.broker.core.log.cleaned_transactions import CleanedTransactions
from raftlog.broker.core.log.offset_map import OffsetMap
from raftlog.broker.core.log.transactions import AbortedTransaction
from raftlog.wire.batch import (
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    Record,
    TimestampType,
    assemble_batch,
    decode_batch,
    encode_batch,
    parse_header,
)
from raftlog.wire.compression import Compression, compress
from raftlog.wire.control import TransactionMarker, decode_control_batch, encode_transaction_marker
from raftlog.wire.varint import encode_varint

T = TypeVar("T")

NOW = 1_000_000
RETENTION = 5_000


class World:
    """A log as a list of batches, and one run of compaction through it."""

    def __init__(self, *batches: bytes, aborted: Sequence[AbortedTransaction] = ()) -> None:
        self.batches = list(batches)
        self.aborted = list(aborted)
        self.kept_aborted: list[AbortedTransaction] = []
        self.last_records: dict[int, LastRecord] = {}
        self.end_offset = 1 << 40
        self.stats = CleaningStats()
        self.map_bytes = 1 << 16
        # For each step, whether it was work or only an opportunity to pause.
        self.steps: list[bool] = []

    def run(self, now_ms: int = NOW, first_dirty: int = 0) -> list[bytes]:
        """One run; the log is what it left."""
        offsets = OffsetMap(b"secret", 1000, self.map_bytes)
        walk = CleanedTransactions()
        walk.add_aborted(self.aborted)
        for batch in self.batches:
            if not self._drive(map_batch(batch, parse_header(batch), offsets, walk, first_dirty)):
                break
        rules = CleaningRules(offsets, self.last_records, self.end_offset, now_ms, RETENTION)
        self.kept_aborted = []
        walk = CleanedTransactions(self.kept_aborted.append)
        walk.add_aborted(self.aborted)
        self.stats = CleaningStats()
        kept = [self._drive(clean_batch(batch, parse_header(batch), rules, walk, self.stats)) for batch in self.batches]
        assert all(item.header == parse_header(item.batch) for item in kept if item is not None)
        self.batches = [bytes(item.batch) for item in kept if item is not None]
        self.aborted = self.kept_aborted
        return self.batches

    def _drive(self, steps: Generator[Step, None, T]) -> T:
        try:
            while True:
                step = next(steps)
                self.steps.append(step is not None)
                if step is not None:
                    step()
        except StopIteration as finished:
            result: T = finished.value
            return result

    def records(self) -> list[tuple[int, bytes | None, bytes | None]]:
        return [
            (record.offset, record.key, record.value)
            for batch in self.batches
            if not parse_header(batch).is_control
            for record in decode_batch(batch)
        ]


def batch(base: int, *pairs: tuple[str | None, str | None], time: int = 500, **options: int) -> bytes:
    """Records from offset `base` on."""
    records = [
        Record(base + index, time + index, key and key.encode(), value and value.encode(), (("h", b"x"),))
        for index, (key, value) in enumerate(pairs)
    ]
    compression = Compression(options.pop("compression", 0))
    return encode_batch(records, base_offset=base, compression=compression, **options)  # type: ignore[arg-type]


def marker(offset: int, producer: int, *, committed: bool, epoch: int = 0) -> bytes:
    return encode_transaction_marker(
        TransactionMarker(committed, 0), producer_id=producer, producer_epoch=epoch, timestamp=500, base_offset=offset
    )


def transactional(base: int, producer: int, *pairs: tuple[str, str], sequence: int = 0) -> bytes:
    return batch(base, *pairs, transactional=1, producer_id=producer, producer_epoch=0, base_sequence=sequence)


@pytest.mark.parametrize("codec", list(Compression))
def test_the_newest_value_of_each_key_stays_where_it_is(codec: Compression) -> None:
    world = World(
        batch(0, ("a", "1"), ("b", "1"), ("a", "2"), compression=codec),
        batch(3, ("a", "3"), ("c", "1"), compression=codec),
    )
    first, second = world.batches
    world.run()
    assert world.records() == [(1, b"b", b"1"), (3, b"a", b"3"), (4, b"c", b"1")]
    assert world.batches[1] == second, "a batch that keeps all its records keeps its bytes"
    before, after = parse_header(first), parse_header(world.batches[0])
    assert (after.base_offset, after.last_offset, after.codec) == (before.base_offset, before.last_offset, codec)
    assert [record.timestamp for record in decode_batch(world.batches[0])] == [501]
    assert after.max_timestamp == 501
    assert decode_batch(world.batches[0])[0].headers == (("h", b"x"),)


def test_a_batch_without_survivors_goes() -> None:
    world = World(batch(0, ("a", "1")), batch(1, ("a", "2")))
    assert len(world.run()) == 1
    assert (world.stats.records_read, world.stats.records_kept) == (2, 1)


def test_records_without_a_key_go() -> None:
    world = World(batch(0, (None, "1"), ("a", "1")))
    world.run()
    assert world.records() == [(1, b"a", b"1")]


def test_a_tombstone_stays_for_the_retention_time_and_then_goes() -> None:
    world = World(batch(0, ("a", "1"), ("b", "1"), time=100), batch(2, ("a", None), ("c", "1"), time=200))
    world.run(NOW)
    assert world.records() == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1")]
    header = parse_header(world.batches[1])
    assert header.delete_horizon_ms == NOW + RETENTION
    assert [record.timestamp for record in decode_batch(world.batches[1])] == [200, 201], "times survive the new base"
    assert header.max_timestamp == 201
    marked = world.batches[1]
    world.run(NOW + RETENTION - 1)
    assert world.batches[1] == marked
    world.run(NOW + RETENTION)
    assert world.records() == [(1, b"b", b"1"), (3, b"c", b"1")]
    assert [record.timestamp for record in decode_batch(world.batches[1])] == [201]


def test_a_tombstone_that_was_overwritten_goes_at_once() -> None:
    world = World(batch(0, ("a", None)), batch(1, ("a", "2")))
    world.run()
    assert world.records() == [(1, b"a", b"2")]


def test_append_time_survives_the_delete_horizon() -> None:
    records = [Record(0, 700, b"a", None), Record(1, 700, b"b", b"1")]
    world = World(encode_batch(records, timestamp_type=TimestampType.LOG_APPEND_TIME))
    world.run()
    header = parse_header(world.batches[0])
    assert header.delete_horizon_ms is not None
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp for record in decode_batch(world.batches[0])] == [700, 700]


def test_what_is_not_in_the_map_stays_as_it_is() -> None:
    world = World(batch(0, ("a", "1")), batch(1, ("a", "2"), ("b", None)), batch(3, ("c", "3"), ("a", "3")))
    world.map_bytes = 2 * 24
    last = world.batches[2]
    world.run()
    assert world.records()[-2:] == [(3, b"c", b"3"), (4, b"a", b"3")]
    assert world.batches[-1] == last


def test_a_tombstone_beyond_the_map_gets_no_delete_horizon_yet() -> None:
    # Four slots take three keys.
    world = World(batch(0, ("a", "1"), ("b", "1"), ("c", "1")), batch(3, ("d", None)))
    world.map_bytes = 4 * 24
    world.run()
    assert parse_header(world.batches[1]).delete_horizon_ms is None


def test_a_clean_part_only_loses_what_the_dirty_part_overwrites() -> None:
    world = World(batch(0, ("a", "1"), ("a", "1b")), batch(2, ("b", "2")), batch(3, ("b", "3")))
    world.run(first_dirty=2)
    assert world.records() == [(0, b"a", b"1"), (1, b"a", b"1b"), (3, b"b", b"3")]


def test_a_producers_last_batch_stays_as_an_empty_one() -> None:
    options = {"producer_id": 7, "producer_epoch": 3, "compression": Compression.LZ4}
    world = World(
        batch(0, ("a", "1"), base_sequence=0, **options),
        batch(1, ("a", "2"), ("a", "3"), base_sequence=1, **options),
        batch(3, ("a", "4")),
    )
    world.last_records = {7: LastRecord(2, 3)}
    world.run()
    assert world.records() == [(3, b"a", b"4")]
    header = parse_header(world.batches[0])
    assert header.records_count == 0
    assert header.size == 61
    assert (header.base_offset, header.last_offset, header.base_sequence, header.last_sequence) == (1, 2, 1, 2)
    assert (header.producer_id, header.producer_epoch, header.codec) == (7, 3, Compression.NONE)
    assert (header.base_timestamp, header.max_timestamp) == (-1, 501)
    world.run()
    assert len(world.batches) == 2
    world.last_records = {}
    world.run()
    assert len(world.batches) == 1, "an empty batch goes once its producer is expired"


def test_the_last_batch_of_the_range_stays_so_that_the_end_is_not_forgotten() -> None:
    world = World(batch(0, ("a", "1")), batch(1, (None, "x")))
    world.end_offset = 2
    world.run()
    assert [parse_header(kept).records_count for kept in world.batches] == [1, 0]
    assert parse_header(world.batches[1]).next_offset == 2


def test_aborted_records_go_at_once_and_give_no_keys() -> None:
    world = World(
        batch(0, ("a", "1")),
        transactional(1, 5, ("a", "2"), ("b", "2")),
        marker(3, 5, committed=False),
        transactional(4, 6, ("c", "3")),
        marker(5, 6, committed=True),
        aborted=[AbortedTransaction(5, 1, 3, 4)],
    )
    world.run()
    assert world.records() == [(0, b"a", b"1"), (4, b"c", b"3")]
    assert [parse_header(kept).base_offset for kept in world.batches] == [0, 3, 4, 5]
    assert world.kept_aborted == [AbortedTransaction(5, 1, 3, 4)]


def test_a_marker_goes_when_its_transaction_is_gone_and_the_retention_time_is_over() -> None:
    world = World(
        transactional(0, 5, ("a", "1")),
        marker(1, 5, committed=True),
        transactional(2, 6, ("b", "1")),
        marker(3, 6, committed=False),
        batch(4, ("a", "2")),
        aborted=[AbortedTransaction(6, 2, 3, 4)],
    )
    world.run(NOW)
    assert [parse_header(kept).base_offset for kept in world.batches] == [1, 3, 4], "both were met on this run"
    assert [parse_header(kept).delete_horizon_ms for kept in world.batches] == [None, None, None]
    world.run(NOW + 1)
    horizons = [parse_header(kept).delete_horizon_ms for kept in world.batches]
    assert horizons == [NOW + 1 + RETENTION, NOW + 1 + RETENTION, None]
    assert decode_control_batch(world.batches[0]) == TransactionMarker(True, 0)
    assert decode_batch(world.batches[0])[0].timestamp == 500
    world.run(NOW + RETENTION)
    assert len(world.batches) == 3
    world.run(NOW + 1 + RETENTION)
    assert [parse_header(kept).base_offset for kept in world.batches] == [4]


def test_a_marker_stays_with_records_of_its_transaction() -> None:
    world = World(transactional(0, 5, ("a", "1"), ("b", "1")), marker(2, 5, committed=True), batch(3, ("a", "2")))
    for later in range(0, 100_000, 10_000):
        world.run(NOW + later)
    assert world.records() == [(1, b"b", b"1"), (3, b"a", b"2")]
    assert decode_control_batch(world.batches[1]) == TransactionMarker(True, 0)
    assert parse_header(world.batches[1]).delete_horizon_ms is None


def test_the_marker_that_holds_a_producers_last_epoch_stays_whole() -> None:
    world = World(transactional(0, 5, ("a", "1")), marker(1, 5, committed=True, epoch=4), batch(2, ("a", "2")))
    world.last_records = {5: LastRecord(-1, 4)}
    for later in range(0, 100_000, 10_000):
        world.run(NOW + later)
    assert decode_control_batch(world.batches[0]) == TransactionMarker(True, 0)
    world.last_records = {}
    world.run(NOW)
    world.run(NOW + RETENTION)
    assert len(world.batches) == 1


def test_interleaved_transactions_are_kept_apart() -> None:
    world = World(
        transactional(0, 5, ("a", "5")),
        transactional(1, 6, ("a", "6")),
        marker(2, 5, committed=False),
        transactional(3, 6, ("b", "6"), sequence=1),
        transactional(4, 5, ("c", "5"), sequence=1),
        marker(5, 6, committed=True),
        marker(6, 5, committed=True),
        aborted=[AbortedTransaction(5, 0, 2, 1)],
    )
    world.run()
    assert world.records() == [(1, b"a", b"6"), (3, b"b", b"6"), (4, b"c", b"5")]


def test_what_cannot_be_read_stays_as_it_is() -> None:
    damaged = bytearray(batch(1, ("a", "2")))
    damaged[-1] ^= 1
    garbage = bytearray(batch(2, ("a", "3")))
    undecodable = assemble_batch(parse_header(garbage), b"\xff" * (len(garbage) - HEADER_SIZE))
    world = World(batch(0, ("a", "1")), bytes(damaged), undecodable)
    world.run()
    assert world.batches[1:] == [bytes(damaged), undecodable]
    assert decode_batch(world.batches[0])[0].value == b"1", "an older value stays if the newer one cannot be read"
    assert world.stats.unreadable_batches == 2


@pytest.mark.parametrize("codec", [Compression.GZIP, Compression.ZSTD])
def test_large_batches_are_packed_and_unpacked_in_steps_of_their_own(codec: Compression) -> None:
    noise = [(f"{index % 700}", Random(index).randbytes(30).hex()) for index in range(2000)]
    world = World(batch(0, *noise, compression=codec))
    world.run()
    assert len(world.records()) == 700
    assert world.steps.count(True) == 3, "unpacked for the map, unpacked and packed for the copy"
    assert world.steps.count(False) > 10


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_a_batch_of_very_many_records_comes_out_the_same_without_remembering_them(
    codec: Compression, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(1)
    pairs = [(f"{random.randrange(300)}", None if random.random() < 0.1 else f"{number}") for number in range(900)] + [
        (None, "x")
    ]
    remembering = World(batch(0, *pairs, compression=codec))
    scanning = World(*remembering.batches)
    for later in (0, 1, RETENTION + 1):
        monkeypatch.setattr("raftlog.broker.core.log.cleaned_batches.RECORDS_IN_MEMORY_MAX", 16384)
        remembering.run(NOW + later)
        monkeypatch.setattr("raftlog.broker.core.log.cleaned_batches.RECORDS_IN_MEMORY_MAX", 10)
        scanning.run(NOW + later)
        assert scanning.batches == remembering.batches
    assert 200 < len(scanning.records()) < 300


@pytest.mark.long
def test_a_batch_that_unfolds_to_very_many_records_takes_little_more_than_its_bytes() -> None:
    header = parse_header(batch(0, ("a", "1")))
    body = b"".join(record_body(number) for number in range(40_000))
    bomb = assemble_batch(
        header._replace(records_count=40_000, last_offset_delta=40_000 - 1, attributes=Compression.ZSTD),
        compress(Compression.ZSTD, body),
    )
    world = World(bomb)
    tracemalloc.start()
    try:
        world.run()
        assert tracemalloc.get_traced_memory()[1] < 8 * len(body)
    finally:
        tracemalloc.stop()
    assert parse_header(world.batches[0]).records_count == 1


def record_body(number: int) -> bytes:
    """One record with the key k and no value but an empty one."""
    body = b"\x00\x00" + encode_varint(number) + b"\x02k\x00\x00"
    return encode_varint(len(body)) + body


def test_attributes_of_a_cleaned_batch_only_gain_the_delete_horizon() -> None:
    world = World(batch(0, ("a", None), ("b", "1"), transactional=1, producer_id=3, producer_epoch=0, base_sequence=4))
    before = parse_header(world.batches[0])
    world.run()
    after = parse_header(world.batches[0])
    assert after.attributes == before.attributes | DELETE_HORIZON_BIT
    assert after._replace(attributes=0, base_timestamp=0, batch_length=0, crc=0) == before._replace(
        attributes=0, base_timestamp=0, batch_length=0, crc=0
    )
