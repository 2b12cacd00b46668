"""Which members of a consumer group get what another one leaves behind: those who hear of it first."""

from __future__ import annotations

import pytest

from raftlog.broker.core.group.consumer import target
from raftlog.broker.core.group.consumer.intervals import SPREAD_FROM_MEMBERS
from tests.broker.core.group.consumer.consumer_world import Consumer, ConsumerWorld, settle

INTERVAL_MS = 5_000


def group_of_five() -> tuple[ConsumerWorld, dict[str, Consumer]]:
    """Members with two partitions each; `d`, `e`, `b`, `a` and `c` send heartbeats in this order, 100 ms apart."""
    world = ConsumerWorld()
    world.set_topics(t=10)
    members = {member_id: Consumer(world, member_id, ["t"]) for member_id in "debac"}
    settle(world, *members.values())
    world.advance(INTERVAL_MS - 1_000)
    for member in members.values():
        member.beat()
        world.advance(100)
    assert [shares(member) for member in members.values()] == [2, 2, 2, 2, 2]
    return world, members


def shares(member: Consumer) -> int:
    return sum(map(len, member.owned.values()))


def test_what_a_member_leaves_goes_to_those_who_are_heard_of_next() -> None:
    world, members = group_of_five()
    members.pop("c").leave()
    world.advance(INTERVAL_MS - 500)
    for member_id in "de":
        members[member_id].beat()
        world.advance(100)
    assert {member_id: shares(member) for member_id, member in members.items()} == {"d": 3, "e": 3, "b": 2, "a": 2}


def test_who_missed_a_heartbeat_gets_nothing_that_another_can_have() -> None:
    world, members = group_of_five()
    members.pop("c").leave()
    world.advance(2 * INTERVAL_MS)
    members["d"].beat()
    # All the others are late; the one that is late for the longest time comes last.
    members["a"].beat()
    assert {member_id: shares(member) for member_id, member in members.items()} == {"d": 3, "e": 2, "b": 2, "a": 3}


def test_in_a_large_group_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world, members = group_of_five()
    monkeypatch.setattr(target, "AT_ONCE_MAX", 3)
    members.pop("c").leave()
    world.advance(INTERVAL_MS - 500)
    # It is computed beside the heartbeat of this one, which hears of it when it comes again.
    members["d"].beat()
    list(world.begin_assignments())
    world.advance(100)
    for member_id in "eb":
        members[member_id].beat()
    assert {member_id: shares(member) for member_id, member in members.items()} == {"d": 2, "e": 3, "b": 3, "a": 2}


def test_members_of_a_larger_group_have_intervals_of_their_own() -> None:
    """Those who came together would come together for ever, and hear of a change as late as can be."""
    world = ConsumerWorld()
    world.set_topics(t=1)

    def told(count: int) -> list[int]:
        """By the second heartbeats of so many members."""
        members = [f"m-{number}" for number in range(count)]
        epochs = [world.join_consumer(member_id, "t").member_epoch for member_id in members]
        return [
            world.beat(member_id, epoch, owned={}).heartbeat_interval_ms
            for member_id, epoch in zip(members, epochs, strict=True)
        ]

    assert set(told(SPREAD_FROM_MEMBERS - 1)) == {INTERVAL_MS}
    intervals = told(100)
    assert intervals == told(100)
    assert len(set(intervals)) > 50 and INTERVAL_MS * 3 // 4 <= min(intervals) < max(intervals) <= INTERVAL_MS
