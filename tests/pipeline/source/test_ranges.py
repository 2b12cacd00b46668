"""Planning: what is read, and in which tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.pipeline.given import BadOption
from raftlog.pipeline.source.offsets import Partition, check_covers
from raftlog.pipeline.source.ranges import (
    SHARED_RECORDS_MAX,
    Range,
    available,
    between,
    gone_back,
    limited,
    split,
    too_small,
)

ranges = st.lists(
    st.builds(lambda at, start, size: Range("t", at, start, start + size), st.integers(0, 9), st.integers(0, 50),
              st.integers(0, 40)),
    max_size=6,
)
offsets = st.dictionaries(st.tuples(st.sampled_from("ab"), st.integers(0, 3)), st.integers(0, 1000), max_size=6)


def covered(wanted: list[Range]) -> list[tuple[int, int]]:
    return sorted((each.partition, offset) for each in wanted for offset in range(each.start, each.end))


@given(ranges, st.none() | st.integers(1, 20), st.none() | st.integers(1, 30))
def test_tasks_cover_the_same_offsets(wanted: list[Range], least: int | None, most: int | None) -> None:
    tasks = split(wanted, least=least, records_max=most)
    parts = [each for task in tasks for each in task]
    assert covered(parts) == covered(wanted)
    assert all(each.size > 0 for each in parts)
    assert most is None or all(sum(each.size for each in task) <= most for task in tasks)
    assert len(tasks) >= min(least or 0, sum(each.size for each in wanted))
    assert all(len({each.topic_partition for each in task}) == len(task) for task in tasks)


def test_larger_partitions_are_divided_into_more_tasks() -> None:
    tasks = split([Range("t", 0, 0, 900), Range("t", 1, 0, 100)], least=10, records_max=None)
    assert [each.partition for (each,) in tasks].count(0) == 9 and len(tasks) == 10
    assert {each.size for (each,) in tasks} == {100}


def test_a_partition_is_one_task_unless_more_are_asked_for() -> None:
    assert split([Range("t", 0, 0, 900)], least=None, records_max=None) == [[Range("t", 0, 0, 900)]]
    assert split([Range("t", 0, 0, 5)], least=None, records_max=2) == [
        [Range("t", 0, 0, 1)], [Range("t", 0, 1, 3)], [Range("t", 0, 3, 5)]]


def test_partitions_with_few_offsets_share_a_task_unless_a_number_of_tasks_is_asked_for() -> None:
    sizes = [SHARED_RECORDS_MAX - 1, 1, 1, SHARED_RECORDS_MAX + 1, 5, 6]
    wanted = [Range("t", at, 7, 7 + size) for at, size in enumerate(sizes)]
    assert split(wanted, least=None, records_max=None) == [wanted[:2], wanted[2:3], wanted[3:4], wanted[4:]]
    assert split(wanted, least=1, records_max=None) == [[each] for each in wanted]
    assert split(wanted[4:], least=None, records_max=10) == [[each] for each in wanted[4:]]


@given(offsets, offsets, st.integers(1, 500))
def test_a_limit_moves_every_partition_that_has_something(
    start: dict[Partition, int], more: dict[Partition, int], most: int
) -> None:
    end = {each: start.get(each, 0) + size for each, size in more.items()}
    found = limited(start, end, most)
    assert found.keys() == end.keys()
    for each, until in end.items():
        begin = start.get(each, 0)
        assert begin <= found[each] <= until
        assert (found[each] > begin) == (until > begin)
    assert available(start, found) <= max(most, 0) + len(end)


def test_a_limit_is_shared_by_how_much_there_is() -> None:
    end = {("a", 0): 300, ("a", 1): 100, ("a", 2): 0}
    assert limited({}, end, 40) == {("a", 0): 30, ("a", 1): 10, ("a", 2): 0}
    assert limited({}, end, 1000) == end


def test_a_new_partition_is_read_from_its_first_offset() -> None:
    assert between({("a", 0): 5}, {("a", 0): 7, ("a", 1): 3}) == [Range("a", 0, 5, 7), Range("a", 1, 0, 3)]


def test_an_end_that_has_gone_back_says_what_is_lost_and_is_where_to_go_on() -> None:
    start, end = {("a", 0): 5, ("a", 1): 5, ("a", 2): 5}, {("a", 0): 3, ("a", 1): 9}
    assert between(start, end) == [Range("a", 1, 5, 9)]
    assert limited(start, end, 2) == {("a", 0): 3, ("a", 1): 7}
    assert gone_back(start, end) == ["a[0] ends at offset 3, and was read to 5 before", "a[2] is not there any more"]


def test_a_start_before_what_is_left_is_told() -> None:
    assert too_small({("a", 0): 5, ("a", 1): 9}, {("a", 0): 7, ("a", 1): 9}) == [
        "a[0] begins at offset 7, and 5 was asked for"]


def test_offsets_have_to_name_the_partitions_that_are_read() -> None:
    with pytest.raises(BadOption, match=r"says nothing about a\[1\] and names, without its being read, b\[0\]"):
        check_covers("startingOffsets", {("a", 0): 1, ("b", 0): 1}, [("a", 0), ("a", 1)])
