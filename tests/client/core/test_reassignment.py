"""Plans: replicas spread evenly, leaders too, racks kept apart, and as little moved as can be."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client.core.reassignment import ImpossiblePlan, Partition, plan
from tests.effort import examples


def spread(wanted: dict[Partition, list[int]]) -> Counter[int]:
    return Counter(broker for replicas in wanted.values() for broker in replicas)


def moved(current: dict[Partition, list[int]], wanted: dict[Partition, list[int]]) -> int:
    return sum(len(set(wanted[each]) - set(current[each])) for each in current)


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = {("t", index): [1 + index % 3, 1 + (index + 1) % 3, 1 + (index + 2) % 3] for index in range(12)}
    wanted = plan(current, dict.fromkeys([1, 2, 3, 4]))
    assert spread(wanted) == {1: 9, 2: 9, 3: 9, 4: 9}
    assert moved(current, wanted) == 9
    assert Counter(replicas[0] for replicas in wanted.values()) == {1: 3, 2: 3, 3: 3, 4: 3}


def test_a_broker_that_goes_is_emptied() -> None:
    current = {("t", index): [3, 1] for index in range(6)}
    wanted = plan(current, dict.fromkeys([1, 2]))
    assert all(sorted(replicas) == [1, 2] for replicas in wanted.values())
    assert moved(current, wanted) == 6


def test_racks_are_kept_apart_where_there_are_enough() -> None:
    racks: dict[int, str | None] = {1: "a", 2: "a", 3: "b", 4: "b"}
    wanted = plan({("t", index): [1, 2] for index in range(8)}, racks, replication_factor=2)
    kept_in_one_rack = [replicas for replicas in wanted.values() if len({racks[each] for each in replicas}) == 1]
    assert max(spread(wanted).values()) - min(spread(wanted).values()) <= 1
    assert len(kept_in_one_rack) < 8
    fresh = plan({("t", index): [9, 8] for index in range(8)}, racks)
    assert all({racks[each] for each in replicas} == {"a", "b"} for replicas in fresh.values())


def test_a_balanced_cluster_is_left_alone() -> None:
    current = {("t", 0): [1, 2], ("t", 1): [2, 3], ("t", 2): [3, 1]}
    assert plan(current, dict.fromkeys([1, 2, 3])) == current


def test_more_replicas_than_brokers_are_refused() -> None:
    with pytest.raises(ImpossiblePlan, match="3 replicas cannot lie on 2 brokers"):
        plan({("t", 0): [1, 2, 3]}, dict.fromkeys([1, 2]))


@settings(max_examples=examples(100))
@given(
    st.lists(st.permutations([1, 2, 3, 4, 5]).map(lambda order: list(order[:3])), min_size=1, max_size=30),
    st.sets(st.integers(1, 6), min_size=3),
)
def test_any_plan_is_even_and_complete(replicas: list[list[int]], brokers: set[int]) -> None:
    current = {("t", index): each for index, each in enumerate(replicas)}
    wanted = plan(current, dict.fromkeys(sorted(brokers)))
    assert set(wanted) == set(current)
    assert all(len(set(each)) == 3 and set(each) <= brokers for each in wanted.values())
    counts = [spread(wanted)[broker] for broker in brokers]
    assert max(counts) - min(counts) <= 1
