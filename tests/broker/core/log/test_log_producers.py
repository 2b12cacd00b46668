"""Sequence numbers, producer epochs and transactions of one partition (KIP-98, KIP-360, KIP-890)."""

from __future__ import annotations

import tracemalloc
from struct import pack

import pytest

from raftlog.broker.core.log.producer_snapshot import CorruptSnapshot, decode_snapshot, encode_snapshot
from raftlog.broker.core.log.producers import SEQUENCE_MAX, ProducerStates, Verdict
from raftlog.broker.core.log.results import AppendOrigin
from raftlog.wire.batch import BatchHeader, parse_header
from raftlog.wire.checksum import crc32c
from raftlog.wire.control import TransactionMarker
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId
from tests.broker.store.log_world import START_MS, LogWorld, batch_of

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION


def data(
    sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, producer_id: int = 7
) -> BatchHeader:
    batch = batch_of(
        [b"x"] * count,
        START_MS,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    return parse_header(batch)


class Producers:
    """One producer's batches, sent one after the other to an empty partition."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.end = 0

    def send(self, header: BatchHeader, origin: AppendOrigin = CLIENT) -> Verdict | None:
        verdict = self.states.check(header, origin)
        if verdict is None:
            self.states.record(header, self.end)
            self.end += header.last_offset_delta + 1
        self.states.check_invariants()
        return verdict

    def end_transaction(
        self, *, commit: bool, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0
    ) -> Verdict | None:
        header = data(0, epoch=epoch)
        marker = TransactionMarker(commit, coordinator_epoch)
        verdict = self.states.check_marker(header, marker, COORDINATOR, version)
        if verdict is None:
            self.states.record_marker(header, marker, self.end)
            self.end += 1
        self.states.check_invariants()
        return verdict


def error_of(verdict: Verdict | None) -> ErrorCode:
    return ErrorCode.NONE if verdict is None else verdict.error


def test_each_of_the_last_five_batches_is_known_when_it_is_sent_again() -> None:
    producers = Producers()
    for number in range(8):
        assert producers.send(data(2 * number, 2)) is None
    for number in range(3, 8):
        verdict = producers.send(data(2 * number, 2))
        assert verdict is not None and verdict.duplicate is not None
        assert (verdict.error, verdict.duplicate.first_offset) == (ErrorCode.NONE, 2 * number)
        assert verdict.duplicate.last_offset == 2 * number + 1
    assert error_of(producers.send(data(4, 2))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_that_only_overlaps_a_known_one_is_no_retry() -> None:
    producers = Producers()
    producers.send(data(0, 4))
    assert error_of(producers.send(data(0, 2))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert error_of(producers.send(data(2, 4))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_gap_in_the_sequence_is_refused_and_leaves_no_trace() -> None:
    producers = Producers()
    producers.send(data(0))
    assert error_of(producers.send(data(2))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.send(data(1)) is None


def test_a_producer_that_is_not_known_may_begin_with_any_sequence() -> None:
    assert Producers().send(data(123)) is None


def test_sequences_go_on_with_zero_after_the_largest() -> None:
    producers = Producers()
    assert producers.send(data(SEQUENCE_MAX - 1, 2)) is None
    assert producers.send(data(0, 3)) is None
    verdict = producers.send(data(SEQUENCE_MAX - 1, 2))
    assert verdict is not None and verdict.duplicate is not None and verdict.duplicate.first_offset == 0


def test_a_batch_may_wrap_in_its_middle() -> None:
    producers = Producers()
    assert producers.send(data(SEQUENCE_MAX - 1, 5)) is None
    assert producers.states.entries[7].last_sequence == 2
    assert producers.states.entries[7].batches[0].first_sequence == SEQUENCE_MAX - 1
    assert producers.send(data(3)) is None


def test_a_new_epoch_begins_with_sequence_zero() -> None:
    producers = Producers()
    producers.send(data(0, 3))
    assert error_of(producers.send(data(3, epoch=1))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.send(data(0, epoch=1)) is None


def test_an_old_epoch_is_fenced() -> None:
    producers = Producers()
    producers.send(data(0, epoch=3))
    assert error_of(producers.send(data(0, epoch=2))) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert error_of(producers.send(data(1, epoch=2), COORDINATOR)) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_coordinator_is_not_asked_for_sequences() -> None:
    producers = Producers()
    producers.send(data(5), COORDINATOR)
    assert producers.send(data(0), COORDINATOR) is None


def test_what_a_leader_took_is_taken_from_it() -> None:
    producers = Producers()
    producers.send(data(0, epoch=3))
    assert producers.send(data(9, epoch=2), REPLICATION) is None


def test_an_open_transaction_holds_back_the_last_stable_offset_until_its_marker_is_replicated() -> None:
    producers = Producers()
    producers.send(data(0))
    producers.send(data(1, transactional=True))
    assert [producers.states.last_stable_offset(committed) for committed in (0, 1, 2)] == [0, 1, 1]
    producers.end_transaction(commit=True)
    assert [producers.states.last_stable_offset(committed) for committed in (0, 1, 2)] == [0, 1, 1]
    assert [producers.states.last_stable_offset(committed) for committed in (3, 9)] == [3, 9]


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    producers = Producers()
    producers.send(data(0, transactional=True))
    assert error_of(producers.send(data(1))) is ErrorCode.INVALID_TXN_STATE


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    producers = Producers()
    producers.send(data(0))
    assert producers.states.record_marker(data(0), TransactionMarker(False, 0), 1) is None
    assert producers.states.last_stable_offset(9) == 9


def test_a_marker_of_an_old_coordinator_is_fenced() -> None:
    producers = Producers()
    producers.send(data(0, transactional=True))
    assert producers.end_transaction(commit=True, coordinator_epoch=5) is None
    fenced = producers.end_transaction(commit=True, coordinator_epoch=4)
    assert error_of(fenced) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_from_transaction_version_2_on_a_marker_must_bump_the_epoch_unless_it_is_sent_again() -> None:
    producers = Producers()
    producers.send(data(0, transactional=True))
    same = producers.end_transaction(commit=True, epoch=0, version=2)
    assert error_of(same) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert producers.end_transaction(commit=True, epoch=1, version=2) is None
    assert producers.end_transaction(commit=True, epoch=1, version=2) is None
    assert producers.send(data(0, epoch=1, transactional=True)) is None


def test_the_last_stable_offset_in_the_index_is_that_of_the_next_open_transaction() -> None:
    states = ProducerStates()
    for producer_id, offset in ((1, 0), (2, 1)):
        batch = batch_of([b"x"], START_MS, producer_id=producer_id, base_sequence=0, transactional=True)
        states.record(parse_header(batch), offset)
    ended = parse_header(batch_of([b"x"], START_MS, producer_id=1, base_sequence=0))
    done = states.record_marker(ended, TransactionMarker(False, 0), 2)
    assert done is not None and (done.first_offset, done.last_offset, done.last_stable_offset) == (0, 2, 1)


def test_idle_producers_expire_unless_a_transaction_is_open() -> None:
    producers = Producers()
    producers.send(data(0, transactional=True))
    assert producers.states.expire(START_MS + 1000, 1000) == []
    producers.end_transaction(commit=True)
    assert producers.states.expire(START_MS + 999, 1000) == []
    assert producers.states.expire(START_MS + 1000, 1000) == [7]


def test_a_snapshot_keeps_the_whole_window_and_reads_as_one_of_kafka() -> None:
    producers = Producers()
    for number in range(7):
        producers.send(data(number, transactional=number == 6))
    found = list(decode_snapshot(encode_snapshot(producers.states)))
    assert [(entry.producer_id, entry.batches) for entry in found] == [(7, producers.states.entries[7].batches)]
    assert found[0].transaction_start == 6
    assert len(encode_snapshot(ProducerStates())) == 10


def test_a_damaged_snapshot_is_not_believed() -> None:
    producers = Producers()
    producers.send(data(0))
    whole = encode_snapshot(producers.states)
    for broken in (whole[:-1], whole[:5], b"", b"\0\2" + whole[2:], whole[:20] + b"\xff" + whole[21:]):
        try:
            decode_snapshot(broken)
        except CorruptSnapshot:
            continue
        raise AssertionError(f"{broken!r} was read")


def test_a_snapshot_that_contradicts_itself_is_not_believed() -> None:
    """Its checksum is right, but what it says of the earlier batches cannot be."""
    producers = Producers()
    for number in range(3):
        producers.send(data(number))
    body = encode_snapshot(producers.states)[6:]
    last_offset = 4 + 14  # behind the count, and behind id, epoch and last sequence
    without_last = body[:last_offset] + pack(">q", -1) + body[last_offset + 8 :]
    none_left = body[: body.index(b"rlb2") + 4]
    one_lost, too_many = body[:-24], body.replace(b"rlb2\2", b"rlb2\5") + bytes(3 * 24)
    assert [len(each.batches) for each in read_checked(body)] == [3]
    for broken in (without_last, none_left, one_lost, too_many):
        assert broken != body
        with pytest.raises(CorruptSnapshot, match="earlier batches"):
            read_checked(broken)


def read_checked(body: bytes) -> ProducerStates:
    return decode_snapshot(pack(">hI", 1, crc32c(body)) + body)


def test_each_of_many_producers_has_its_own_batches_again_whoever_was_asked_for_before() -> None:
    """Enough of them that their batches are found over blocks; one in seven wrote no data, but ended transactions."""
    states = ProducerStates()
    for producer_id in range(1000):
        for number in range(producer_id % 7):
            states.record(data(number, producer_id=producer_id), 10 * producer_id + number)
        if producer_id % 7 == 0:
            states.record_marker(data(0, producer_id=producer_id), TransactionMarker(False, 0), 10 * producer_id)
    expected = {entry.producer_id: entry.batches for entry in states}
    assert len(expected) == 1000
    again = decode_snapshot(encode_snapshot(states))
    for producer_id in (999, 255, 256, 0, 511, 7, 512, 600):
        entry = again.get(ProducerId(producer_id))
        assert entry is not None and entry.batches == expected[ProducerId(producer_id)]
    assert {entry.producer_id: entry.batches for entry in again} == expected
    assert {entry.producer_id: entry.batches for entry in decode_snapshot(encode_snapshot(again))} == expected


def test_reading_a_snapshot_makes_no_object_for_each_producer_or_batch() -> None:
    """A log is opened in one step of the event loop, and its producers may be a hundred thousand."""
    header = data(0)

    def blocks_of(batches: int) -> int:
        states = ProducerStates()
        for number in range(batches * 5000):
            states.record(header._replace(producer_id=ProducerId(number // batches)), number)
        whole = encode_snapshot(states)
        tracemalloc.start()
        try:
            read = decode_snapshot(whole)
            made = sum(each.count for each in tracemalloc.take_snapshot().statistics("filename"))
        finally:
            tracemalloc.stop()
        assert len(read) == 5000
        return made

    assert blocks_of(1) < 500
    assert blocks_of(5) < 500


def test_producers_of_a_snapshot_are_read_one_by_one_and_written_again_as_they_were() -> None:
    producers = Producers()
    for producer_id, batches in ((7, 3), (8, 1), (9, 5), (10, 2)):
        for number in range(batches):
            producers.send(data(number, producer_id=producer_id, transactional=producer_id == 8))
    whole = encode_snapshot(producers.states)
    states = decode_snapshot(whole)
    assert [*states.entries] == [8] and len(states) == 4
    assert {entry.producer_id: len(entry.batches) for entry in states} == {7: 3, 8: 1, 9: 5, 10: 2}
    again = decode_snapshot(encode_snapshot(states))
    assert {entry.producer_id: entry.batches for entry in again} == {e.producer_id: e.batches for e in producers.states}
    producers.states = states
    assert producers.send(data(4, producer_id=9)) is not None, "a retry"
    assert [*states.entries] == [8, 9] and states.unread is not None and len(states.unread) == 2
    again = decode_snapshot(encode_snapshot(states))
    assert {entry.producer_id: entry.batches for entry in again} == {e.producer_id: e.batches for e in producers.states}
    assert sorted(states.expire(START_MS + 1000, 1000)) == [7, 9, 10] and len(states) == 1
    assert [entry.producer_id for entry in decode_snapshot(encode_snapshot(states))] == [8]


def test_a_retry_is_answered_with_the_first_offset_after_every_kind_of_restart() -> None:
    world = LogWorld()
    batches = [batch_of([b"%d" % n], START_MS, producer_id=3, base_sequence=n) for n in range(6)]
    for batch in batches:
        assert world.append(batch).error is ErrorCode.NONE
    for restart in (world.restart_clean, world.restart_killed, world.restart_clean):
        restart()
        for number in range(1, 6):
            result = world.append(batches[number])
            assert (result.base_offset, result.duplicate) == (number, True)
        assert world.append(batches[0]).error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert world.log.log_end_offset == 6
