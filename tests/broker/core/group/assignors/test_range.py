"""The range assignor, by what Kafka promises of it."""

from __future__ import annotations

from hypothesis import given, settings

from raftlog.broker.core.group.assignors.assignor import Members, MemberSpec, Topics, TopicSpec, finish
from raftlog.broker.core.group.assignors.range import assign_ranges
from tests.broker.core.group.assignors.groups import check, groups
from tests.effort import examples

T1, T2, T3 = (bytes([number]) * 16 for number in (1, 2, 3))


@settings(max_examples=examples(60))
@given(groups())
def test_everybody_has_a_range_of_each_topic_and_no_two_differ_by_more_than_one(group: tuple[Members, Topics]) -> None:
    members, topics = group
    check(assign_ranges, members, topics)
    assignment = finish(assign_ranges(members, topics))
    for topic_id in topics:
        ranges = [
            assignment[member_id].get(topic_id, ())
            for member_id in members
            if topic_id in members[member_id].subscribed
        ]
        assert all(parts == tuple(range(parts[0], parts[-1] + 1)) for parts in ranges if parts)
        assert not ranges or max(map(len, ranges)) - min(map(len, ranges)) <= 1


def test_topics_with_as_many_partitions_are_co_partitioned() -> None:
    members = {member_id: MemberSpec(frozenset({T1, T2, T3})) for member_id in ("b", "a")}
    topics = {T1: TopicSpec(3), T2: TopicSpec(3), T3: TopicSpec(4)}
    assert finish(assign_ranges(members, topics)) == {
        "a": {T1: (0, 1), T2: (0, 1), T3: (0, 1)},
        "b": {T1: (2,), T2: (2,), T3: (2, 3)},
    }


def test_members_that_do_not_subscribe_to_a_topic_are_not_counted_for_it() -> None:
    members = {
        "a": MemberSpec(frozenset({T1})),
        "b": MemberSpec(frozenset({T1, T2})),
        "c": MemberSpec(frozenset({T2})),
    }
    assert finish(assign_ranges(members, {T1: TopicSpec(2), T2: TopicSpec(3)})) == {
        "a": {T1: (0,)},
        "b": {T1: (1,), T2: (0, 1)},
        "c": {T2: (2,)},
    }


def test_static_members_keep_their_ranges_under_new_member_ids() -> None:
    topics = {T1: TopicSpec(3)}
    subscribed = frozenset({T1})

    def ranges(ids: dict[str, str]) -> dict[str, tuple[int, ...]]:
        members = {member_id: MemberSpec(subscribed, instance_id=instance) for instance, member_id in ids.items()}
        assignment = finish(assign_ranges({**members, "0 without": MemberSpec(subscribed)}, topics))
        return {instance: assignment[member_id][T1] for instance, member_id in ids.items()}

    assert ranges({"i1": "x", "i2": "y"}) == ranges({"i1": "y", "i2": "x"}) == {"i1": (0,), "i2": (1,)}


def test_with_more_members_than_partitions_the_last_ones_have_nothing() -> None:
    members = {member_id: MemberSpec(frozenset({T1})) for member_id in ("a", "b", "c")}
    assert finish(assign_ranges(members, {T1: TopicSpec(2)})) == {"a": {T1: (0,)}, "b": {T1: (1,)}, "c": {}}
