"""Finding records by their time when some of what the segments remember is gone: deleted, or compacted away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.store import timestamp_search
from raftlog.broker.store.segment import Segment
from raftlog.broker.store.timestamp_search import BATCHES_LOOKED_AT_MAX
from raftlog.wire.batch import (
    HEADER_SIZE,
    BatchHeader,
    Record,
    TimestampType,
    assemble_batch,
    encode_batch,
    parse_header,
)
from raftlog.wire.compression import Compression
from raftlog.wire.errors import ErrorCode
from tests.broker.store.compaction_world import CONFIG, CompactedLog
from tests.broker.store.log_world import START_MS, LogWorld, batch_of


def timed(*times: int, key: bytes | None = None) -> bytes:
    """One batch of records at these times, in ms since the start."""
    return encode_batch([Record(number, START_MS + time, key, b"x" * 60) for number, time in enumerate(times)])


def newest(world: LogWorld) -> tuple[int, int] | None:
    """(offset, time) of the record with the largest time."""
    found = world.log.offset_of_max_timestamp()
    return None if found is None else (found.offset, found.timestamp - START_MS)


@pytest.mark.parametrize("segment_bytes", [300, 500, 1 << 20])
def test_the_largest_time_is_that_of_a_record_that_is_still_there(segment_bytes: int) -> None:
    world = LogWorld(LogConfig(segment_bytes=segment_bytes, index_interval_bytes=0))
    batches = [(10, 90, 40), (50, 20), (30, 80, 70), (60, 60)]
    for batch in batches:
        assert not world.append(timed(*batch)).error
    times = [time for batch in batches for time in batch]
    for start in range(len(times)):
        world.log.delete_records_before(start)
        largest = max(times[start:])
        assert newest(world) == (times.index(largest, start), largest)
    world.log.delete_records_before(len(times))
    assert newest(world) is None


def test_nobody_waits_for_a_search_of_all_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LogWorld()
    for time in (90, 10, 50, 20):
        world.append(timed(time))
    world.log.delete_records_before(1)
    assert newest(world) == (2, 50)
    assert BATCHES_LOOKED_AT_MAX >= 10_000
    monkeypatch.setattr(timestamp_search, "BATCHES_LOOKED_AT_MAX", 2)
    assert newest(world) is None


def test_what_lies_below_the_log_start_is_not_read_to_find_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = LogWorld(LogConfig(segment_bytes=1 << 20, index_interval_bytes=0))
    for number in range(200):
        world.append(timed(1000 - number))
    world.log.delete_records_before(190)
    read = []

    def counted(data: bytes, at: int = 0) -> BatchHeader:
        read.append(at)
        return parse_header(data, at)

    monkeypatch.setattr("raftlog.broker.store.segment.parse_header", counted)
    assert world.log.offset_for_timestamp(START_MS) == (190, START_MS + 810, 0)
    assert len(read) == 1


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.GZIP])
def test_a_batch_that_compaction_has_emptied_has_no_time(codec: Compression) -> None:
    world = CompactedLog()
    first = world.clock.ms
    world.append(("a", "1"), ("b", "1"))
    world.clock.ms += 900
    world.append(("a", "2"), codec=codec, producer_id=7)
    world.clock.ms -= 800
    world.append(("a", "3"))
    world.clock.ms -= 100
    while len(world.log.opened.segments) < 2:
        world.append(("c", "1"))
    assert world.compact()
    assert (2, first + 900) in [(header.base_offset, header.max_timestamp) for header, _ in world.batches()]
    assert world.log.offset_of_max_timestamp() == (3, first + 100, 0)
    assert world.log.offset_for_timestamp(first + 101) is None


def test_the_first_record_of_an_append_time_may_have_been_compacted_away() -> None:
    world = CompactedLog(config=replace(CONFIG, message_timestamp_type=TimestampType.LOG_APPEND_TIME))
    first = world.clock.ms
    world.append(("a", "1"), ("b", "1"), ("c", "1"))
    world.clock.ms += 50
    world.append(("a", "2"), ("c", "2"))
    world.clock.ms += 50
    while len(world.log.opened.segments) < 2:
        world.append(("d", "1"))
    assert world.compact()
    assert world.log.offset_for_timestamp(first - 5) == (1, first, 0)
    assert world.log.offset_for_timestamp(first + 1) == (3, first + 50, 0)


def test_the_log_start_may_lie_behind_all_that_compaction_has_left_of_a_batch() -> None:
    world = CompactedLog()
    world.clock.ms += 900
    world.append(("a", "1"), ("b", "1"), ("c", "1"))
    world.clock.ms -= 800
    last = world.clock.ms
    world.append(("b", "2"), ("c", "2"))
    while len(world.log.opened.segments) < 2:
        world.append(("d", "1"))
    assert world.compact()
    assert [record.offset for record in world.records()][:2] == [0, 3]
    world.log.delete_records_before(1)
    assert world.log.offset_of_max_timestamp() == (3, last, 0)


@pytest.mark.parametrize("segment_bytes", [300, 1 << 20])
def test_the_time_of_an_offset_is_that_of_the_batch_that_holds_the_next_record(segment_bytes: int) -> None:
    world = CompactedLog(config=replace(CONFIG, segment_bytes=segment_bytes))
    times = {}
    for key in "abc":
        times[world.append((key, "x"), (key, "y"))] = world.clock.now_ms()
        world.clock.ms += 100
    marker = world.append(("d", "x"), producer_id=1, transactional=True) + 1
    world.end_transaction(1, committed=True)
    world.clock.ms += 100
    last = world.append(("e", "x"))
    log = world.log.opened.segments
    assert [log.timestamp_at(offset) - START_MS for offset in range(6)] == [0, 0, 100, 100, 200, 200]
    # A marker is nothing that anybody waits for.
    assert log.timestamp_at(marker) == log.timestamp_at(last) == world.clock.now_ms()
    assert log.timestamp_at(last + 1) == -1


def test_a_header_that_claims_a_time_that_no_record_has_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of such batches was unpacked as a whole for one question, and nothing else went on for many seconds."""
    world = LogWorld()
    batch = batch_of([b"x"] * 5, START_MS)
    claims = parse_header(batch)._replace(max_timestamp=START_MS + 1000)
    for _ in range(20):
        assert world.append(assemble_batch(claims, batch[HEADER_SIZE:])).error is ErrorCode.NONE
    read_batch, unpacked = Segment.read_batch, []

    def counted(segment: Segment, position: int, size: int) -> bytes:
        unpacked.append(position)
        return read_batch(segment, position, size)

    monkeypatch.setattr(Segment, "read_batch", counted)
    world.log.delete_records_before(7)
    found = world.log.offset_for_timestamp(START_MS + 500)
    assert found is not None and (found.offset, found.timestamp) == (10, START_MS + 1000)
    assert world.log.offset_of_max_timestamp() == found
    assert world.log.offset_for_timestamp(START_MS + 4) == (9, START_MS + 4, 0)
    assert len(unpacked) <= 6
