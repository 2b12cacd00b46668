"""A group goes over from one protocol to the other and back while its members are replaced (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.broker.core.group.config import GroupConfig, MigrationPolicy
from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode
from tests.broker.core.group.consumer.classic_client import ClassicClient
from tests.broker.core.group.consumer.consumer_world import Consumer, ConsumerWorld, settle, topic_id
from tests.broker.core.group.group_world import GROUP

T = topic_id("t")


@pytest.fixture
def world() -> ConsumerWorld:
    made = ConsumerWorld()
    made.set_topics(t=4)
    return made


@pytest.mark.parametrize("cooperative", [True, False])
def test_a_group_changes_its_protocol_and_back_while_its_members_are_replaced(
    world: ConsumerWorld, cooperative: bool
) -> None:
    old = [ClassicClient(world, ["t"], cooperative=cooperative) for _ in range(2)]
    for _ in range(8):
        for client in old:
            client.step()
        world.advance(500)
    assert sum(len(each) for client in old for each in client.owned.values()) == 4
    new = Consumer(world, "new", ["t"])

    def work(rounds: int = 12) -> None:
        for _ in range(rounds):
            for client in old:
                client.step()
            new.beat()
            world.advance(1_100)

    work()
    assert world.group.state_name == "Stable" and new.owned
    used = [(each, index) for client in (*old, new) for each, indexes in client.owned.items() for index in indexes]
    assert sorted(used) == [(T, index) for index in range(4)]
    new.leave()
    for _ in range(8):
        for client in old:
            client.step()
        world.advance(500)
    assert world.state() is GroupState.STABLE
    assert sorted(index for client in old for index in client.owned.get(T, ())) == [0, 1, 2, 3]


def test_after_a_failover_each_member_has_the_session_that_its_protocol_gives_it(world: ConsumerWorld) -> None:
    new = Consumer(world, "new", ["t"])
    new.beat()
    joined = world.answers[world.join(version=3, session_timeout_ms=300_000)]
    loaded = world.restarted()
    assert isinstance(loaded, ConsumerWorld)
    loaded.advance(45_000)
    assert joined.member_id in loaded.shard.groups[GROUP].members and loaded.state() is GroupState.PREPARING_REBALANCE


@pytest.mark.parametrize("cooperative", [True, False])
def test_classic_members_that_are_left_in_a_consumer_group_have_its_partitions(cooperative: bool) -> None:
    world = ConsumerWorld(GroupConfig(initial_rebalance_delay_ms=0, migration_policy=MigrationPolicy.UPGRADE))
    world.set_topics(t=4)
    old = [ClassicClient(world, ["t"], cooperative=cooperative) for _ in range(2)]
    new = Consumer(world, "new", ["t"])

    def work(*clients: ClassicClient) -> None:
        for _ in range(12):
            for client in clients:
                client.step()
            if new.epoch:
                new.beat()
            world.advance(1_100)

    def used() -> list[int]:
        return sorted(index for client in old for index in client.owned.get(T, ()))

    work(*old)
    new.beat()
    work(*old)
    assert new.owned and len(used()) == 4 - len(new.owned[T])
    new.leave()
    work(*old)
    assert world.group.state_name == "Stable" and used() == [0, 1, 2, 3]
    world.set_topics(t=5)
    work(*old)
    assert world.group.state_name == "Stable" and used() == [0, 1, 2, 3, 4]
    epoch = world.group.epoch.epoch
    work(*old)
    assert world.group.epoch.epoch == epoch
    world.leave(old[1].member_id)
    work(old[0])
    assert sorted(old[0].owned[T]) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_group_that_becomes_classic_before_all_have_their_partitions_gives_them_out(
    world: ConsumerWorld, cooperative: bool
) -> None:
    """What the static member still had when it was replaced was meant for the one that came before."""
    static = Consumer(world, "m", ["t"], "i")
    settle(world, static)
    assert static.owned == {T: {0, 1, 2, 3}}
    new = ClassicClient(world, ["t"], cooperative=cooperative)
    for _ in range(4):
        new.step()
    assert not new.owned
    replacing = ClassicClient(world, ["t"], cooperative=cooperative, instance="i")
    for _ in range(20):
        replacing.step()
        new.step()
    assert world.state() is GroupState.STABLE
    assert sorted(new.owned[T] | replacing.owned[T]) == [0, 1, 2, 3] and not new.owned[T] & replacing.owned[T]


@pytest.mark.parametrize("subscription", [{"subscribed_topic_regex": "u.*"}, {"topics": []}])
def test_who_comes_before_the_first_generation_of_a_classic_group_has_an_epoch(subscription: dict[str, Any]) -> None:
    world = ConsumerWorld(GroupConfig(initial_rebalance_delay_ms=3_000))
    world.set_topics(t=4, u=1)
    first = world.join(version=3)
    joined = world.beat("new", 0, owned={}, rebalance_timeout_ms=30_000, **subscription)
    assert joined.error_code == ErrorCode.NONE and joined.member_epoch > 0
    assert world.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.answers[world.join(world.answers[first].member_id, version=3)]
    assert again.error_code == ErrorCode.NONE and again.generation_id > 0
    world.resolve_regexes()
    world.advance(1_100)
    assert world.beat("new", joined.member_epoch).error_code == ErrorCode.NONE


@pytest.mark.parametrize("policy, error", [("disabled", 69), ("downgrade", 69), ("upgrade", 0), ("bidirectional", 0)])
def test_the_policy_says_whether_a_classic_group_may_be_joined_by_consumers(policy: str, error: int) -> None:
    world = ConsumerWorld(GroupConfig(initial_rebalance_delay_ms=0, migration_policy=MigrationPolicy(policy)))
    world.set_topics(t=1)
    client = ClassicClient(world, ["t"], cooperative=False)
    for _ in range(4):
        client.step()
    assert world.join_consumer("new", "t").error_code == error


def test_a_classic_member_may_join_a_consumer_group_unless_the_policy_is_disabled() -> None:
    world = ConsumerWorld(GroupConfig(migration_policy=MigrationPolicy.DISABLED))
    world.set_topics(t=1)
    world.join_consumer("new", "t")
    refused = world.answers[world.join()]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_an_empty_group_takes_the_protocol_of_whoever_comes(world: ConsumerWorld) -> None:
    consumer = Consumer(world, "m", ["t"])
    consumer.beat()
    consumer.leave()
    client = ClassicClient(world, ["t"], cooperative=False)
    for _ in range(4):
        client.step()
    assert world.state() is GroupState.STABLE and client.owned == {T: {0, 1, 2, 3}}
    world.leave(client.member_id)
    consumer.beat()
    assert world.group.state_name == "Stable" and world.restarted().group.members
