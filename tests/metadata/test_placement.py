"""Replicas are spread: over racks first, then over brokers, and so are leaders."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.metadata.image import BrokerRegistration
from raftlog.metadata.placement import Unplaceable, place


def broker(broker_id: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(broker_id, b"i" * 16, broker_id, (), rack, fenced)


@given(st.integers(1, 9), st.integers(1, 40), st.data(), st.integers(0, 2**32))
def test_leaders_and_replicas_are_even(brokers: int, partitions: int, data: st.DataObject, seed: int) -> None:
    factor = data.draw(st.integers(1, brokers))
    placed = place([broker(i) for i in range(brokers)], partitions, factor, seed)
    assert all(len(set(replicas)) == factor for replicas in placed)
    leaders = Counter(replicas[0] for replicas in placed)
    assert max(leaders.values()) - min(leaders.get(i, 0) for i in range(brokers)) <= 1


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), st.data(), st.integers(0, 2**32))
def test_every_rack_gets_a_replica_before_one_gets_two(racks: list[str], data: st.DataObject, seed: int) -> None:
    factor = data.draw(st.integers(1, len(racks)))
    placed = place([broker(i, rack) for i, rack in enumerate(racks)], 20, factor, seed)
    for replicas in placed:
        assert len({racks[b] for b in replicas}) == min(factor, len(set(racks)))


def test_topics_of_one_partition_do_not_all_fall_on_one_broker() -> None:
    brokers = [broker(i) for i in range(3)]
    leaders = Counter(place(brokers, 1, 1, seed)[0][0] for seed in range(300))
    assert min(leaders.values()) > 60 and len(leaders) == 3


def test_the_followers_of_a_broker_are_not_always_the_same() -> None:
    placed = place([broker(i) for i in range(6)], 60, 2, 1)
    followers = {replicas[1] for replicas in placed if replicas[0] == 0}
    assert len(followers) > 3


def test_fenced_brokers_come_last_and_never_lead() -> None:
    brokers = [broker(1), broker(2, fenced=True), broker(3)]
    for replicas in place(brokers, 10, 3, 5):
        assert replicas[2] == 2
    assert all(2 not in replicas for replicas in place(brokers, 10, 2, 5))


def test_a_broker_that_shuts_down_comes_last_even_when_it_alone_is_in_another_rack() -> None:
    leaving = broker(3, "b")._replace(in_controlled_shutdown=True)
    for replicas in place([broker(1, "a"), broker(2, "a"), leaving], 10, 2, 5):
        assert set(replicas) == {1, 2}


def test_a_broker_gets_partitions_while_a_directory_of_it_is_not_cordoned() -> None:
    one, two = b"1" * 16, b"2" * 16
    closed = broker(2)._replace(directories=(one, two), cordoned_directories=(one, two))
    half = broker(3)._replace(directories=(one, two), cordoned_directories=(two,))
    placed = place([broker(1), closed, half], 10, 2, 5)
    assert all(set(replicas) == {1, 3} for replicas in placed)
    failed = half._replace(offline_directories=(one,))
    assert all(replicas == (1,) for replicas in place([broker(1), closed, failed], 10, 1, 5))
    with pytest.raises(Unplaceable, match="or some brokers have all their log directories cordoned"):
        place([broker(1), closed, failed], 1, 2, 0)
    with pytest.raises(Unplaceable, match="fenced, or have all their log directories cordoned"):
        place([closed, failed], 1, 1, 0)


def test_too_few_brokers_is_said_in_words() -> None:
    with pytest.raises(Unplaceable, match=r"3 cannot be reached because only 1 broker\(s\) are registered"):
        place([broker(1)], 1, 3, 0)
    with pytest.raises(Unplaceable, match="All brokers are currently fenced"):
        place([broker(1, fenced=True)], 1, 1, 0)
