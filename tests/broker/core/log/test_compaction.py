"""Which part of a log is compacted and when, how segments are grouped, and the map of newest offsets."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.broker.core.log.compaction import (
    CleanableRange,
    CleanableSegment,
    cleanable_range,
    group_segments,
)
from raftlog.broker.core.log.config import LogConfig
from raftlog.broker.core.log.offset_map import OffsetMap
from tests.effort import examples

NOW = 1_000_000
COMPACT = LogConfig(cleanup_policy=("compact",))


def segments_of(*sizes: int, offsets: int = 100) -> list[CleanableSegment]:
    """Segments of `offsets` offsets each; the last one is active. Times rise by 1000 ms a segment, up to NOW."""
    first = NOW - 1000 * len(sizes)
    return [
        CleanableSegment(
            base_offset=number * offsets,
            end_offset=(number + 1) * offsets,
            size=size,
            first_timestamp=first + number * 1000,
            largest_timestamp=first + number * 1000 + 999,
        )
        for number, size in enumerate(sizes)
    ]


def range_in(
    segments: list[CleanableSegment],
    config: LogConfig = COMPACT,
    *,
    cleaned_offset: int = 0,
    log_start_offset: int = 0,
    decided_offset: int = 1 << 40,
) -> CleanableRange:
    return cleanable_range(
        segments,
        config,
        cleaned_offset=cleaned_offset,
        log_start_offset=log_start_offset,
        decided_offset=decided_offset,
        now_ms=NOW,
    )


def test_everything_below_the_active_segment_is_dirty_at_first() -> None:
    found = range_in(segments_of(10, 20, 30, 40))
    assert found == CleanableRange(0, 300, 0, 60, overdue=False)
    assert found.dirty_ratio == 1.0
    assert found.is_due(COMPACT)


def test_what_the_last_run_went_through_is_clean() -> None:
    found = range_in(segments_of(10, 20, 30, 40), cleaned_offset=200)
    assert found == CleanableRange(200, 300, 30, 30, overdue=False)
    assert not found.is_due(COMPACT), "the ratio has to be above one half"
    assert found.is_due(LogConfig(min_cleanable_dirty_ratio=0.4))


def test_a_segment_that_was_cleaned_in_part_is_dirty() -> None:
    assert range_in(segments_of(10, 20, 30, 40), cleaned_offset=150) == CleanableRange(150, 300, 10, 50, overdue=False)


@pytest.mark.parametrize("cleaned_offset", [-1, 50, 401])
def test_a_checkpoint_that_cannot_be_right_makes_everything_dirty(cleaned_offset: int) -> None:
    found = range_in(segments_of(10, 20, 30, 40), cleaned_offset=cleaned_offset, log_start_offset=100)
    assert found.first_dirty_offset == 100


@pytest.mark.parametrize(("decided", "end"), [(0, 0), (99, 0), (100, 100), (250, 200), (399, 300)])
def test_what_is_not_decided_is_not_touched(decided: int, end: int) -> None:
    assert range_in(segments_of(10, 20, 30, 40), decided_offset=decided).end_offset == end


def test_what_is_younger_than_the_lag_is_not_touched() -> None:
    config = LogConfig(min_compaction_lag_ms=2500)
    assert range_in(segments_of(10, 20, 30, 40), config).end_offset == 100
    assert range_in(segments_of(10, 20, 30, 40), LogConfig(min_compaction_lag_ms=10_000)).end_offset == 0
    # Behind an old segment there may be a young one, and what follows that waits with it.
    segments = segments_of(10, 20, 30, 40)
    segments[1] = segments[1]._replace(largest_timestamp=NOW)
    assert range_in(segments, config).end_offset == 100


def test_what_is_older_than_the_greatest_lag_is_due_whatever_the_ratio() -> None:
    segments = segments_of(1000, 20, 30, 40)
    config = LogConfig(max_compaction_lag_ms=2500)
    found = range_in(segments, config, cleaned_offset=100)
    assert found.dirty_ratio < 0.5
    assert found.overdue
    assert found.is_due(config)
    assert not range_in(segments, LogConfig(max_compaction_lag_ms=3500), cleaned_offset=100).overdue


def test_a_segment_is_not_active_for_longer_than_the_greatest_lag() -> None:
    settings = {"cleanup.policy": "compact", "max.compaction.lag.ms": "60000", "segment.ms": "604800000"}
    assert LogConfig.from_mapping(settings).segment_ms == 60_000
    assert LogConfig.from_mapping({**settings, "segment.ms": "1000"}).segment_ms == 1000
    assert LogConfig.from_mapping({**settings, "cleanup.policy": "delete"}).segment_ms == 604_800_000


def test_nothing_dirty_is_never_due() -> None:
    found = range_in(segments_of(10, 20, 30, 40), LogConfig(max_compaction_lag_ms=1), cleaned_offset=300)
    assert found.dirty_bytes == 0
    assert not found.is_due(LogConfig(min_cleanable_dirty_ratio=0.0))
    assert range_in(segments_of(40)).dirty_bytes == 0


def test_a_run_that_ended_within_a_segment_beyond_the_limit_has_nothing_to_do() -> None:
    found = range_in(segments_of(10, 20, 30, 40), cleaned_offset=250, decided_offset=220)
    assert (found.first_dirty_offset, found.end_offset, found.dirty_bytes) == (250, 250, 0)


def test_small_neighbours_share_a_segment() -> None:
    config = LogConfig(segment_bytes=100)
    assert group_segments(segments_of(40, 60, 1, 99, 150, 10, 10), config) == [[0, 1], [2, 3], [4], [5, 6]]
    assert group_segments([], config) == []


def test_indexes_and_offsets_bound_a_group_too() -> None:
    one = CleanableSegment(0, 100, 1, offset_index_size=60, time_index_size=10)
    two = CleanableSegment(100, 200, 1, offset_index_size=60, time_index_size=10)
    assert group_segments([one, two], LogConfig(segment_index_bytes=100)) == [[0], [1]]
    assert group_segments([one, two], LogConfig(segment_index_bytes=120)) == [[0, 1]]
    assert group_segments([one, two._replace(time_index_size=91)], LogConfig(segment_index_bytes=100)) == [[0], [1]]
    far = two._replace(end_offset=2**31 + 1)
    assert group_segments([one, far], LogConfig()) == [[0], [1]]
    assert group_segments([one, far._replace(end_offset=2**31)], LogConfig()) == [[0, 1]]


@settings(max_examples=examples(60))
@given(sizes=st.lists(st.integers(0, 120), max_size=12))
def test_groups_are_all_segments_in_order(sizes: list[int]) -> None:
    groups = group_segments(segments_of(*sizes), LogConfig(segment_bytes=100))
    assert [number for group in groups for number in group] == list(range(len(sizes)))
    assert all(len(group) == 1 or sum(sizes[number] for number in group) <= 100 for group in groups)


@settings(max_examples=examples(60))
@given(keys=st.lists(st.binary(max_size=3), max_size=200), memory=st.integers(0, 3000))
def test_the_map_has_the_newest_offset_of_each_key_it_took(keys: list[bytes], memory: int) -> None:
    offsets = OffsetMap(b"secret", len(keys), memory)
    expected: dict[bytes, int] = {}
    for offset, key in enumerate(keys):
        taken = offsets.put(key, offset)
        assert taken == (key in expected or len(expected) < offsets.capacity)
        if taken:
            expected[key] = offset
    offsets.check_invariants()
    assert len(offsets) == len(expected)
    assert {key: offsets.get(key) for key in expected} == expected
    assert all(offsets.get(key) == -1 for key in set(keys) - set(expected))


def test_the_map_stays_within_its_memory() -> None:
    offsets = OffsetMap(b"secret", 10**9, 24_000)
    assert offsets.capacity == 750
    taken = sum(offsets.put(b"%d" % number, number) for number in range(2000))
    assert taken == 750
    assert offsets.is_full
