"""The uniform assignor against brute force, and at its full size."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from itertools import product

from hypothesis import given, settings

from raftlog.broker.core.group.assignors.assignor import Members, MemberSpec, Topics, TopicSpec, finish
from raftlog.broker.core.group.assignors.uniform import assign_uniformly
from tests.broker.core.group.assignors.groups import (
    check,
    groups,
    kept,
    loads,
    owners,
    partitions_to_assign,
    with_targets,
)
from tests.effort import examples

Group = tuple[Members, Topics]
Owned = dict[tuple[bytes, int], str]


def all_assignments(members: Members, topics: Topics) -> Iterator[Owned]:
    wanted = partitions_to_assign(members, topics)
    for choice in product(*wanted.values()):
        yield dict(zip(wanted, choice, strict=True))


def spread(members: Members, owned: Owned) -> int:
    counts = loads(members, owned).values()
    return max(counts, default=0) - min(counts, default=0)


def in_own_rack(members: Members, topics: Topics, owned: Owned) -> int:
    return sum(members[owner].rack in topics[topic_id].racks[part] for (topic_id, part), owner in owned.items())


@settings(max_examples=examples(60))
@given(groups())
def test_of_each_topic_the_subscribers_have_equal_loads_where_they_can(group: Group) -> None:
    members, topics = group
    owned = check(assign_uniformly, members, topics)
    counts = loads(members, owned)
    wanted = partitions_to_assign(members, topics)
    for partition, owner in owned.items():
        assert all(counts[owner] - counts[other] <= 1 for other in wanted[partition])


@settings(max_examples=examples(60))
@given(groups(same_topics=True, racks=True))
def test_with_one_subscription_no_balanced_assignment_moves_less(group: Group) -> None:
    members, topics = group
    owned = check(assign_uniformly, members, topics)
    balanced = [other for other in all_assignments(members, topics) if spread(members, other) <= 1]
    assert spread(members, owned) <= 1
    assert kept(members, owned) == max(kept(members, other) for other in balanced)


@settings(max_examples=examples(60))
@given(groups(same_topics=True, racks=True, fresh=True))
def test_a_new_group_has_as_many_partitions_in_the_members_racks_as_a_balanced_one_can(group: Group) -> None:
    members, topics = group
    owned = check(assign_uniformly, members, topics)
    balanced = [other for other in all_assignments(members, topics) if spread(members, other) <= 1]
    assert in_own_rack(members, topics, owned) == max(in_own_rack(members, topics, other) for other in balanced)


T1, T2, T3 = (bytes([number]) * 16 for number in (1, 2, 3))


def members_of(*ids: str, topics: tuple[bytes, ...] = (T1,)) -> dict[str, MemberSpec]:
    return {member_id: MemberSpec(frozenset(topics)) for member_id in ids}


def test_a_member_comes_and_takes_no_more_than_its_share() -> None:
    topics = {T1: TopicSpec(6), T2: TopicSpec(6)}
    two = members_of("a", "b", topics=(T1, T2))
    before = finish(assign_uniformly(two, topics))
    three = {**with_targets(two, before), **members_of("c", topics=(T1, T2))}
    after = owners(finish(assign_uniformly(three, topics)))
    assert loads(three, after) == {"a": 4, "b": 4, "c": 4}
    assert kept(three, after) == 8


def test_a_member_goes_and_only_what_it_had_moves() -> None:
    topics = {T1: TopicSpec(7)}
    before = finish(assign_uniformly(members_of("a", "b", "c"), topics))
    left = with_targets(members_of("a", "b"), before)
    after = owners(finish(assign_uniformly(left, topics)))
    assert kept(left, after) == 7 - len(before["c"][T1])


def test_a_new_groups_topics_are_spread_over_all_members() -> None:
    topics = {T1: TopicSpec(3), T2: TopicSpec(3)}
    assignment = finish(assign_uniformly(members_of("a", "b", "c", topics=(T1, T2)), topics))
    assert all(len(parts) == 2 for parts in assignment.values()), "each member has one partition of each topic"


def test_what_is_free_goes_first_so_that_those_who_have_something_keep_it() -> None:
    # "b" alone can have T2: it gets that, and "a" is asked for nothing of T1.
    topics = {T1: TopicSpec(2), T2: TopicSpec(2)}
    members = {"a": MemberSpec(frozenset({T1}), {T1: (0, 1)}), "b": MemberSpec(frozenset({T1, T2}))}
    assert finish(assign_uniformly(members, topics)) == {"a": {T1: (0, 1)}, "b": {T2: (0, 1)}}


def test_a_topic_shared_with_somebody_who_has_another_is_left_to_who_has_less() -> None:
    topics = {T1: TopicSpec(4), T2: TopicSpec(4)}
    members = {"a": MemberSpec(frozenset({T1, T2})), "b": MemberSpec(frozenset({T2}))}
    assert finish(assign_uniformly(members, topics)) == {"a": {T1: (0, 1, 2, 3)}, "b": {T2: (0, 1, 2, 3)}}


def test_nothing_moves_for_the_sake_of_a_rack() -> None:
    topics = {T1: TopicSpec(2, [frozenset({"x"}), frozenset({"y"})])}
    members = {
        "a": MemberSpec(frozenset({T1}), {T1: (1,)}, rack="x"),
        "b": MemberSpec(frozenset({T1}), {T1: (0,)}, rack="y"),
    }
    assert finish(assign_uniformly(members, topics)) == {"a": {T1: (1,)}, "b": {T1: (0,)}}


def test_a_member_gives_up_first_what_is_not_in_its_rack() -> None:
    racks = [frozenset({"x"}), frozenset({"y"}), frozenset({"x"}), frozenset({"y"})]
    members = {
        "a": MemberSpec(frozenset({T1}), {T1: (0, 1, 2, 3)}, rack="x"),
        "b": MemberSpec(frozenset({T1}), rack="y"),
    }
    assert finish(assign_uniformly(members, {T1: TopicSpec(4, racks)})) == {"a": {T1: (0, 2)}, "b": {T1: (1, 3)}}


def test_a_thousand_members_get_ten_thousand_partitions_in_steps_that_stall_nobody() -> None:
    racks = [frozenset({"abc"[number % 3]}) for number in range(10)]
    topic_ids = [number.to_bytes(16, "big") for number in range(1_000)]
    topics = {topic_id: TopicSpec(10, racks) for topic_id in topic_ids}
    subscribed = frozenset(topic_ids)
    members = {f"m{number}": MemberSpec(subscribed, rack="abc"[number % 3]) for number in range(1_000)}
    steps = assign_uniformly(members, topics)
    slices = []
    gc.collect()
    gc.disable()
    while True:
        began = time.process_time()
        try:
            next(steps)
        except StopIteration as end:
            assert all(sum(map(len, parts.values())) == 10 for parts in end.value.values())
            break
        finally:
            slices.append(time.process_time() - began)
    gc.enable()
    # Measured: 60 ms in all, 3 ms the longest.
    assert sum(slices) < 0.5
    assert max(slices) < 0.02
