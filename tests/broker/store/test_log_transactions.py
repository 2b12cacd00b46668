"""Transactions in one log: what is stable, and which aborted transactions a reader of committed records is told."""

from __future__ import annotations

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import AppendOrigin, LogUnavailable
from raftlog.broker.core.log.transactions import ENTRY, AbortedTransaction, collect, decode_entries
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.wire.batch import iterate_batches
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode
from tests.broker.store.log_world import START_MS, LogWorld, batch_of


def data(producer_id: int, sequence: int, *, size: int = 10, epoch: int = 0) -> bytes:
    return batch_of(
        [b"x" * size],
        START_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


def marker(producer_id: int, *, commit: bool) -> bytes:
    return encode_transaction_marker(
        TransactionMarker(commit, 0), producer_id=producer_id, producer_epoch=0, timestamp=START_MS
    )


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("clean", [True, False], ids=["stopped", "killed"])
def test_a_marker_that_is_not_committed_is_not_so_after_a_restart_either(commit: bool, clean: bool) -> None:
    """Redpanda #10671: what is stable ran ahead of what is known to be decided. A snapshot of producers knows that a
    transaction has ended, and not that its marker may yet be truncated.
    """
    world = LogWorld()
    log = world.log
    log.append_as_leader(data(1, 0), 0, START_MS)
    log.append_as_leader(marker(1, commit=commit), 0, START_MS, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(1)
    assert (log.last_stable_offset, log.log_end_offset) == (0, 2)
    if clean:
        log = world.restart_clean()
    else:
        log.storage.flush()
        world.checkpoint()
        log = world.restart_killed()
    log.open()
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (2, 1, 0)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_marker_that_a_truncation_leaves_is_not_stable_before_it_is_committed() -> None:
    world = LogWorld(LogConfig(segment_bytes=200))
    log = world.log
    log.append_as_leader(data(1, 0), 0, START_MS)
    log.update_high_watermark(1)
    log.append_as_leader(marker(1, commit=True), 0, START_MS, origin=AppendOrigin.COORDINATOR)
    for _ in range(6):
        log.append_as_leader(batch_of([b"y" * 100], START_MS), 0, START_MS)
    assert any(1 < offset <= 5 for offset in log.opened.snapshots.offsets)
    log.truncate_to(5)
    assert (log.log_end_offset, log.high_watermark, log.last_stable_offset) == (5, 1, 0)
    log.update_high_watermark(2)
    assert log.last_stable_offset == 2


def test_a_piece_of_the_log_comes_with_its_own_aborted_transactions_and_few_others() -> None:
    world = LogWorld(LogConfig(segment_bytes=100_000, index_interval_bytes=1000))
    for turn in range(1000):
        assert world.append(data(1, turn, size=100)).error is ErrorCode.NONE
        world.append(data(2, turn, size=100))
        world.end_transaction(1, commit=False)
        world.end_transaction(2, commit=turn % 2 == 0)
    log = world.log
    end = log.last_stable_offset
    aborted = log.aborted_transactions(0, end)
    assert (end, len(aborted)) == (4000, 1500)
    assert len(log.opened.segments) > 2
    for start in range(0, end, 97):
        piece = log.read(start, 2000, end, min_one=True)
        assert piece is not None
        last = [header.last_offset for _, header in iterate_batches(piece.read())][-1]
        told = log.aborted_transactions(start, end, piece)
        needed = [each for each in aborted if each.last_offset >= start and each.first_offset <= last]
        assert set(needed) <= set(told) and len(told) <= len(needed) + 20


def test_the_search_for_aborted_transactions_begins_where_the_reader_is() -> None:
    entries = [AbortedTransaction(1, 10 * n, 10 * n + 5, 10 * n + 6) for n in range(100_000)]  # type: ignore[arg-type]
    found: list[AbortedTransaction] = []

    class Counting(list[AbortedTransaction]):
        looked_at = 0

        def __getitem__(self, place: object) -> object:  # type: ignore[override]
            Counting.looked_at += 1
            return super().__getitem__(place)  # type: ignore[index]

    assert collect(Counting(entries), 500_000, 500_030, found, lambda entry: None)
    assert [each.first_offset for each in found] == [500_000, 500_010, 500_020]
    assert Counting.looked_at < 50


@pytest.mark.parametrize("harm", [b"\0" * 34, b"\0" * 340, b"\0" * 20, b"\xff" * 50], ids=["1", "10", "cut", "bits"])
def test_what_a_crash_left_of_a_transaction_index_hides_no_aborted_transaction(harm: bytes) -> None:
    """A page may have been given to the file and never written."""
    world = LogWorld()
    for sequence in range(8):
        world.append(data(1, sequence))
        world.end_transaction(1, commit=False)
        if sequence == 4:
            world.log.storage.flush()
            world.checkpoint()
    before = world.log.aborted_transactions(0, 16)
    name = next(name for name in world.disk.names if name.endswith(".txnindex"))
    world.disk.names[name].content[5 * 34 :] = harm
    log = world.restart_killed()
    assert log.aborted_transactions(0, 16) == before
    for start in range(16):
        assert log.aborted_transactions(start, 16) == before[start // 2 :]


def test_what_is_behind_a_damaged_entry_of_a_transaction_index_is_not_dropped_by_recovery() -> None:
    world = LogWorld()
    for sequence in range(5):
        world.append(data(1, sequence))
        world.end_transaction(1, commit=False)
    world.log.storage.flush()
    world.checkpoint()
    name = next(name for name in world.disk.names if name.endswith(".txnindex"))
    before = bytes(world.disk.names[name].content)
    world.disk.names[name].content[34 * 2 + 10] ^= 1
    with pytest.raises(LogUnavailable, match="out of order, and what is behind it is not"):
        world.restart_killed().open()
    assert len(world.disk.names[name].content) == len(before)


def test_a_bit_of_a_transaction_index_that_has_flipped_is_noticed_before_anybody_is_told_anything_wrong() -> None:
    """Kafka's file has no checksum: what it says is compared with the log. Only where a transaction would begin with
    another batch of its producer, nobody can tell.
    """
    world = LogWorld(LogConfig(segment_bytes=1000))
    turns = {1: 0, 2: 0, 3: 0}
    for turn in range(10):
        for producer in turns if turn % 3 else (1, 2):
            world.append(data(producer, turns[producer]))
            turns[producer] += 1
        world.end_transaction(1, commit=turn % 4 == 0)
        if turn % 2:
            world.end_transaction(2, commit=False)
        if turn % 5 == 4:
            world.end_transaction(3, commit=False)
    end = world.log.last_stable_offset
    log = world.restart_clean()
    whole = log.aborted_transactions(0, end)
    names = sorted(name for name in world.disk.names if name.endswith(".txnindex"))
    assert len(names) > 2 and len(whole) > 10
    begins = {
        (header.producer_id, header.base_offset) for _, header in iterate_batches(all_of(log)) if not header.is_control
    }
    flips = found = 0
    for name in names:
        content = world.disk.names[name].content
        for bit in range(8 * len(content)):
            content[bit // 8] ^= 1 << bit % 8
            number, byte = divmod(bit // 8, ENTRY.size)
            entries = decode_entries(bytes(content))
            is_first = byte in range(10, 18) and number < len(entries)
            if not (is_first and (entries[number].producer_id, entries[number].first_offset) in begins):
                flips += 1
                found += is_found(world, whole, end)
            content[bit // 8] ^= 1 << bit % 8
    assert found > 0.9 * flips


def is_found(world: LogWorld, whole: list[AbortedTransaction], end: int) -> bool:
    """Whether the log goes offline when it is read in pieces, all of which come with what is so until then."""
    log = world.restart_clean()
    try:
        for start in range(0, end, 7):
            told = {each[:3] for each in log.aborted_transactions(start, min(start + 7, end))}
            needed = {each[:3] for each in whole if each.last_offset >= start and each.first_offset < start + 7}
            assert needed <= told <= {each[:3] for each in whole}, "but for the last stable offset, which is no matter"
    except LogUnavailable as unavailable:
        assert ".txnindex" in str(unavailable)
        return True
    return False


def all_of(log: PartitionLog) -> bytes:
    """Every batch."""
    found = b""
    offset = 0
    while offset < log.log_end_offset:
        found += log.read_bytes(offset, 100_000, log.log_end_offset, min_one=True)
        offset = [header.next_offset for _, header in iterate_batches(found)][-1]
    return found
