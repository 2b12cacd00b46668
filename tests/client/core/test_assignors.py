"""Assignors: everything is given to one member that wants it, evenly, and sticky ones move little."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from raftlog.client.core.assignment import Assignment
from raftlog.client.core.assignors import ASSIGNORS, COOPERATIVE, Subscription, assign
from tests.effort import examples

TOPICS = ("a", "b", "c")
PARTITIONS = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 6), min_size=1)
WISHES = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(5)]),
    st.sets(st.sampled_from(TOPICS), min_size=1),
    min_size=1,
)


def owned(share: Assignment) -> frozenset[tuple[str, int]]:
    return frozenset((topic, index) for topic, indexes in share.items() for index in indexes)


@settings(max_examples=examples(100))
@given(st.sampled_from(["range", "roundrobin", "sticky", COOPERATIVE]), WISHES, PARTITIONS)
def test_each_partition_goes_to_one_member_that_wants_it(
    name: str, wishes: dict[str, set[str]], partitions: dict[str, int]
) -> None:
    members = {member: Subscription(sorted(topics)) for member, topics in wishes.items()}
    shares = assign(name, members, partitions)
    given_out = [(topic, index) for share in shares.values() for topic, index in owned(share)]
    wanted = {
        (topic, index)
        for topic, count in partitions.items()
        for index in range(count)
        if any(topic in topics for topics in wishes.values())
    }
    assert sorted(given_out) == sorted(wanted) and set(shares) == set(members)
    assert all(topic in wishes[member] for member, share in shares.items() for topic in share)


@settings(max_examples=examples(100))
@given(st.integers(1, 5), PARTITIONS)
def test_members_that_want_the_same_get_the_same_number(count: int, partitions: dict[str, int]) -> None:
    members = {f"m{number}": Subscription(TOPICS) for number in range(count)}
    for name in ("roundrobin", "sticky"):
        sizes = [len(owned(share)) for share in assign(name, members, partitions).values()]
        assert max(sizes) - min(sizes) <= 1


@settings(max_examples=examples(100))
@given(WISHES, WISHES, PARTITIONS)
@example({"m0": {"a", "b"}}, {"m0": {"a", "b"}, "m1": {"a"}, "m2": {"a", "b"}}, {"a": 3, "b": 3})
def test_cooperative_members_never_get_what_another_still_has_and_come_to_rest(
    before: dict[str, set[str]], after: dict[str, set[str]], partitions: dict[str, int]
) -> None:
    shares: dict[str, Assignment] = {}
    for generation, wishes in enumerate((before, after, after, after)):
        members = {
            member: Subscription(sorted(topics), owned(shares.get(member, {})), generation)
            for member, topics in wishes.items()
        }
        held = {
            each: member
            for member, subscription in members.items()
            for each in subscription.owned
            if each[0] in subscription.topics
        }
        new = assign(COOPERATIVE, members, partitions)
        for member, share in new.items():
            for each in owned(share):
                assert held.get(each, member) == member, "given to two at a time"
        last, shares = shares, new
    assert {member: owned(share) for member, share in last.items()} == {
        member: owned(share) for member, share in shares.items()
    }


def test_a_member_that_joins_takes_as_few_as_it_needs() -> None:
    first = assign("sticky", {"m1": Subscription(("a",)), "m2": Subscription(("a",))}, {"a": 6})
    members = {name: Subscription(("a",), owned(share), 1) for name, share in first.items()}
    second = assign("sticky", members | {"m3": Subscription(("a",))}, {"a": 6})
    moved = sum(len(owned(first[name]) - owned(second[name])) for name in first)
    assert moved == 2 and len(owned(second["m3"])) == 2


@pytest.mark.parametrize("generations", [(1, 2), (2, 2)])
def test_an_old_claim_does_not_count(generations: tuple[int, int]) -> None:
    claim = frozenset({("a", 0)})
    members = {f"m{at}": Subscription(("a",), claim, generation) for at, generation in enumerate(generations)}
    shares = ASSIGNORS["sticky"](members, {"a": 1})
    assert owned(shares["m1"] if generations[0] < generations[1] else shares["m0"]) == claim
