"""Where a consumer stands: positions and what is buffered fit together, whatever is fetched, handed out and moved."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client.core.addresses import Address
from raftlog.client.core.errors import DamagedRecords
from raftlog.client.core.fetch_session import Wanted
from raftlog.client.core.fetched import Slice
from raftlog.client.core.fetching import Fetching
from raftlog.client.core.metadata import ClusterMetadata, Node, Partition, Topic
from raftlog.client.core.settings import ConsumerSettings
from raftlog.wire.batch import encode_batch
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.fetch import EpochEndOffset, PartitionData
from raftlog.wire.records import Record
from raftlog.wire.schema import ZERO_UUID
from tests.effort import examples

HERE = ("t", 0)
BATCH = 4
"""Records in each batch of the log."""


def batch_at(offset: int) -> bytes:
    first = offset // BATCH * BATCH
    records = [Record(first + index, 0, None, b"%d" % (first + index), ()) for index in range(BATCH)]
    return encode_batch(records, base_offset=first)


@settings(max_examples=examples(150))
@given(st.lists(st.tuples(st.sampled_from("ffffttttgsdrlx"), st.integers(0, 9)), max_size=60))
def test_records_are_handed_out_in_order_and_counted(history: list[tuple[str, int]]) -> None:
    fetching = Fetching(ConsumerSettings(auto_offset_reset="earliest"))
    fetching.assign(HERE, 0)
    state = fetching.partitions[HERE]
    expected: int | None = 0
    for step, number in history:
        sent = Wanted(state.fetched_to, 0, -1, 1000)
        match step:
            case "f":
                batches = b"".join(batch_at(state.fetched_to + BATCH * each) for each in range(1 + number % 3))
                fetching.received(HERE, sent, PartitionData(partition_index=0, records=batches), 0.0)
            case "t" | "g":
                slices = fetching.take(1 + number)
                offsets = [record.offset for each in slices for record in each.records()]
                if step == "g":
                    fetching.give_back(slices)
                elif offsets:
                    assert expected is not None and offsets == list(range(expected, expected + len(offsets)))
                    expected += len(offsets)
            case "s":
                state.move(number)
                expected = number
            case "d":
                diverging = EpochEndOffset(epoch=0, end_offset=number)
                fetching.received(HERE, sent, PartitionData(partition_index=0, diverging_epoch=diverging), 0.0)
                expected = None if expected is None else min(expected, number)
            case "r":
                code = ErrorCode.OFFSET_OUT_OF_RANGE
                fetching.received(HERE, sent, PartitionData(partition_index=0, error_code=code), 0.0)
                expected = state.position
            case "l" if HERE in fetching.to_reset():
                state.move(number)
                expected = number
            case _:
                continue
        fetching.check_invariants()
        assert state.position == expected


def test_an_offset_that_is_gone_is_not_asked_for_again_at_once_while_records_wait() -> None:
    fetching, known = Fetching(ConsumerSettings(auto_offset_reset="earliest")), cluster_of(1)
    fetching.assign(HERE, 0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    fetching.received(HERE, wanted[HERE], PartitionData(partition_index=0, records=batch_at(0)), 0.0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    gone = PartitionData(partition_index=0, error_code=ErrorCode.OFFSET_OUT_OF_RANGE)
    fetching.received(HERE, wanted[HERE], gone, 0.0)
    assert not fetching.wanted(0.0, known)[0]
    assert fetching.retry_at(0.0) is not None
    assert len(fetching.take(10)[0].records()) == BATCH


def test_of_a_preferred_replica_that_the_cluster_does_not_have_any_more_the_leader_is_asked() -> None:
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1, 2)
    fetching.assign(HERE, 0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    fetching.received(HERE, wanted[HERE], PartitionData(partition_index=0, preferred_read_replica=2), 0.0)
    assert list(fetching.wanted(0.0, known)[0]) == [2]
    assert list(fetching.wanted(0.0, cluster_of(1))[0]) == [1]


def test_when_the_log_was_cut_what_was_fetched_and_not_handed_out_is_fetched_again() -> None:
    """From offset 14 on the log is another one: 4 to 13 are there still, and nobody was given them yet."""
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, 0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    fetched = b"".join(batch_at(BATCH * each) for each in range(4))
    fetching.received(HERE, wanted[HERE], PartitionData(partition_index=0, records=fetched), 0.0)
    assert fetching.take(BATCH)[0].end == BATCH
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    cut = PartitionData(partition_index=0, diverging_epoch=EpochEndOffset(epoch=0, end_offset=14))
    fetching.received(HERE, wanted[HERE], cut, 0.0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    assert wanted[HERE].offset == fetching.partitions[HERE].position == BATCH
    assert not fetching.set_back  # nothing that was handed out is gone
    cut = PartitionData(partition_index=0, diverging_epoch=EpochEndOffset(epoch=0, end_offset=2))
    fetching.received(HERE, wanted[HERE], cut, 0.0)
    assert fetching.partitions[HERE].position == 2 and fetching.set_back == [HERE]


@pytest.mark.parametrize("position", [0, 2])
def test_a_damaged_batch_is_told_wherever_in_it_reading_begins(position: int) -> None:
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, position)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    damaged = batch_at(0).replace(b"\x023", b"\x024")  # the value of the last record
    fetching.received(HERE, wanted[HERE], PartitionData(partition_index=0, records=damaged), 0.0)
    with pytest.raises(DamagedRecords, match="checksum"):
        fetching.take(10)


@pytest.mark.parametrize("end", [BATCH - 1, BATCH])
def test_what_lies_behind_the_end_is_neither_looked_at_nor_asked_for_nor_handed_out(end: int) -> None:
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, 0, end)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    behind = b"no batch at all, and longer than the header of one would be: nobody is to look"
    fetching.received(HERE, wanted[HERE], PartitionData(partition_index=0, records=batch_at(0) + behind), 0.0)
    assert not fetching.wanted(0.0, known)[0]
    assert [record.offset for record in fetching.take(10)[0].records()] == list(range(end))
    assert not fetching.take(10)
    fetching.check_invariants()


@pytest.mark.parametrize("second", [0, 2, 3])
def test_a_batch_that_begins_below_the_end_of_the_one_before_it_is_damage(second: int) -> None:
    """Records would be handed out twice, or skipped: no checksum covers where a batch says it is."""
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, 0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    moved = second.to_bytes(8, "big") + batch_at(BATCH)[8:]
    part = PartitionData(partition_index=0, records=batch_at(0) + moved + batch_at(2 * BATCH))
    fetching.received(HERE, wanted[HERE], part, 0.0)
    assert [record.offset for record in fetching.take(10)[0].records()] == list(range(BATCH))
    with pytest.raises(DamagedRecords, match=rf"t\[0\]: the batch at offset {BATCH} is damaged"):
        fetching.take(10)


def test_what_is_given_back_comes_again_though_the_position_went_on_over_what_nobody_sees() -> None:
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, 0)
    slices: list[Slice] = []
    for records in (batch_at(0), marker_at(BATCH)):
        ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
        fetching.received(HERE, wanted[HERE], PartitionData(partition_index=0, records=records), 0.0)
        slices = fetching.take(10) or slices
    assert fetching.partitions[HERE].position == BATCH + 1
    fetching.give_back(slices)
    fetching.check_invariants()
    (again,) = fetching.take(10)
    assert [record.offset for record in again.records()] == list(range(BATCH)) and again.end == BATCH + 1


def test_of_several_parts_with_a_marker_between_them_none_is_lost_when_they_are_given_back() -> None:
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, 0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    second = encode_batch([Record(BATCH + 1, 0, None, b"", ())], base_offset=BATCH + 1)
    part = PartitionData(partition_index=0, records=batch_at(0) + marker_at(BATCH) + second)
    fetching.received(HERE, wanted[HERE], part, 0.0)
    parts = fetching.take(BATCH) + fetching.take(BATCH)
    fetching.give_back(parts)
    fetching.check_invariants()
    (again,) = fetching.take(10)
    assert [record.offset for record in again.records()] == [*range(BATCH), BATCH + 1]


def test_nothing_is_given_back_to_a_partition_that_was_moved_meanwhile() -> None:
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, 0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    fetching.received(HERE, wanted[HERE], PartitionData(partition_index=0, records=batch_at(0)), 0.0)
    slices = fetching.take(10)
    fetching.partitions[HERE].move(BATCH)
    fetching.give_back(slices)
    assert fetching.partitions[HERE].position == BATCH and not fetching.take(10)


def marker_at(offset: int) -> bytes:
    marker = TransactionMarker(committed=True, coordinator_epoch=0)
    return encode_transaction_marker(marker, producer_id=7, producer_epoch=0, timestamp=0, base_offset=offset)


def test_a_partition_whose_leader_failed_to_read_is_asked_for_again() -> None:
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, 0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    failed = PartitionData(partition_index=0, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    fetching.received(HERE, wanted[HERE], failed, 0.0)
    assert not fetching.take(10) and fetching.unavailable(5.0, 3.0) == {HERE: ErrorCode.UNKNOWN_SERVER_ERROR}
    assert HERE in fetching.wanted(1.0, known)[0][1]


def test_a_partition_that_the_group_takes_away_gives_nothing_whoever_resumes_it() -> None:
    fetching, known = Fetching(ConsumerSettings()), cluster_of(1)
    fetching.assign(HERE, 0)
    ((_, wanted),) = fetching.wanted(0.0, known)[0].items()
    fetching.received(HERE, wanted[HERE], PartitionData(partition_index=0, records=batch_at(0)), 0.0)
    state = fetching.partitions[HERE]
    state.leaves, state.paused = True, False
    assert not fetching.has_records() and not fetching.take(10) and not fetching.wanted(0.0, known)[0]


def cluster_of(*nodes: int, partitions: int = 1) -> ClusterMetadata:
    """Whose first node leads. The topic is that of HERE."""
    known = ClusterMetadata()
    known.nodes = {each: Node(each, Address("localhost", each)) for each in nodes}
    known.topics[HERE[0]] = Topic(ZERO_UUID, {at: Partition(nodes[0], 0) for at in range(partitions)})
    return known
