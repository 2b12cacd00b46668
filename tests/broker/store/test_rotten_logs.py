"""Bits that flip on a disk where a batch's own checksum does not see them, or where nobody has looked at it yet; and
what a disk does not give.
"""

from __future__ import annotations

import errno

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.store.partition_log import PartitionLog
from raftlog.wire.batch import iterate_batches
from tests.broker.store.log_world import DIRECTORY, START_MS, LogWorld, batch_of


def segment_of(world: LogWorld, base_offset: int = 0) -> bytearray:
    return world.disk.names[f"{DIRECTORY}/{base_offset:020d}.log"].content


@pytest.mark.parametrize("bit", [2, 20, 31, 33, 60])
@pytest.mark.parametrize("number", [0, 5, 8])
def test_a_log_is_cut_before_a_batch_whose_offset_has_rotted_and_not_behind_it(number: int, bit: int) -> None:
    world = LogWorld()
    for _ in range(10):
        world.append_values(b"x")
    content = segment_of(world)
    position = [at for at, _ in iterate_batches(bytes(content))][number]
    content[position + 7 - bit // 8] ^= 1 << bit % 8
    log = world.restart_killed()
    log.open()
    assert log.log_end_offset == number and world.losses == 1
    assert world.append_values(b"again").base_offset == number


@pytest.mark.parametrize("byte, bit", [(0, 5), (0, 7), (4, 1), (6, 6), (7, 0), (7, 6)])
@pytest.mark.parametrize("number", [1, 5, 9])
def test_an_offset_that_has_rotted_is_found_before_anybody_gets_it(number: int, byte: int, bit: int) -> None:
    """Readers would pass over what follows a batch that claims to lie further on."""
    world = LogWorld()
    for _ in range(10):
        world.append_values(b"x")
    log = world.restart_clean()
    log.open()  # of a longer log the start has read as little
    content = segment_of(world)
    content[[at for at, _ in iterate_batches(bytes(content))][number] + byte] ^= 1 << bit
    with pytest.raises(LogUnavailable, match="a batch has the offset"):
        read_all(log)
    assert log.offline_reason is not None


def read_all(log: PartitionLog) -> None:
    offset = 0
    while data := log.read_bytes(offset, 200, 10, min_one=True):
        for _, header in iterate_batches(data):
            assert header.base_offset == offset
            offset = header.next_offset
    assert offset == 10


@pytest.mark.parametrize("number, bit", [(1, 0), (1, 30), (5, 1), (5, 7), (8, 0), (8, 31)])
def test_a_leader_epoch_that_has_rotted_is_the_one_of_its_neighbours(number: int, bit: int) -> None:
    world = world_of_two_epochs()
    flip_epoch(world, 0, number, bit)
    log = world.restart_killed()
    log.open()
    assert log.log_end_offset == 10 and world.losses == 0
    # Of the last batch of an epoch it cannot be told which of the two was its own.
    expected = [5] * (5 if number == 5 else 6) + [6] * (5 if number == 5 else 4)
    assert [log.epoch_at(offset) for offset in range(10)] == expected
    assert [header.partition_leader_epoch for _, header in iterate_batches(bytes(segment_of(world)))] == expected


@pytest.mark.parametrize("bit", [1, 7, 30])
def test_the_leader_epoch_of_a_segments_last_batch_is_compared_with_the_next_segment(bit: int) -> None:
    world = world_of_two_epochs(LogConfig(segment_bytes=200))
    last = world.log.opened.segments[1].base_offset - 1
    flip_epoch(world, 0, last, bit)
    log = world.restart_killed()
    log.open()
    assert log.log_end_offset == 10 and log.latest_epoch == 6


def test_the_log_of_another_cluster_whose_leader_epochs_began_anew_is_left_as_it_is() -> None:
    world = LogWorld()
    for epoch in (3, 3, 0, 0, 1):
        world.append_values(b"x", epoch=epoch)
    before = bytes(segment_of(world))
    world.restart_killed().open()
    assert bytes(segment_of(world)) == before and world.losses == 0


def world_of_two_epochs(config: LogConfig | None = None) -> LogWorld:
    """Ten batches of a record, the first six of them written in epoch 5 and the others in epoch 6."""
    world = LogWorld(config)
    for number in range(10):
        world.append_values(b"x", epoch=5 if number < 6 else 6)
    return world


def flip_epoch(world: LogWorld, base_offset: int, number: int, bit: int) -> None:
    """In a batch of a segment; bit 31 is that of the sign."""
    content = segment_of(world, base_offset)
    content[[at for at, _ in iterate_batches(bytes(content))][number] + 15 - bit // 8] ^= 1 << bit % 8


def test_the_last_offset_of_a_segment_is_below_where_the_next_one_begins() -> None:
    world = LogWorld(LogConfig(segment_bytes=200))
    while len(world.log.opened.segments) < 3:
        world.append_values(b"x")
    end = world.log.opened.segments[1].base_offset
    content = segment_of(world)
    last = [at for at, _ in iterate_batches(bytes(content))][-1]
    content[last + 4] ^= 8
    log = world.restart_killed()
    log.open()
    assert log.log_end_offset == end - 1 and world.losses == 1


def test_a_safe_transaction_marker_that_has_rotted_takes_its_partition_offline_and_not_the_broker() -> None:
    world = LogWorld()
    data = batch_of([b"x"], START_MS, producer_id=1, base_sequence=0, transactional=True)
    world.append(data)
    world.end_transaction(1, commit=True)
    world.log.storage.flush()
    world.checkpoint()
    content = segment_of(world)
    content[-1] ^= 1
    log = world.restart_killed()
    with pytest.raises(LogUnavailable, match="checksum of a batch does not match"):
        log.open()
    assert log.offline_reason is not None and not log.intact


def test_a_range_that_could_not_be_sent_takes_its_log_offline_when_it_is_asked_for_again() -> None:
    world = LogWorld()
    world.append_values(b"x")
    found = world.log.read(0, 10_000, 1, min_one=True)
    assert found is not None
    found.failed(OSError(errno.EIO, "Input/output error"))
    with pytest.raises(LogUnavailable, match="Input/output error"):
        world.log.read(0, 10_000, 1, min_one=True)
    assert world.log.offline_reason is not None
