"""The target assignment of a large group: computed beside the heartbeats, for who is a member when it is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from raftlog.broker.core.group.config import GroupConfig
from raftlog.broker.core.group.consumer import large_target, target
from raftlog.broker.core.group.consumer.records import TargetRecord
from raftlog.broker.core.group.group import Committer
from raftlog.metadata.group_configs import ConsumerGroupSettings
from raftlog.wire.errors import ErrorCode
from tests.broker.core.group.consumer.consumer_world import Consumer, ConsumerWorld

SETTINGS = ConsumerGroupSettings(session_timeout_ms=9_000, heartbeat_interval_ms=1_000, assignment_interval_ms=0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConsumerWorld]:
    monkeypatch.setattr(target, "AT_ONCE_MAX", 3)
    monkeypatch.setattr(large_target, "RECORDS_A_STEP", 1)
    made = ConsumerWorld(GroupConfig(), settings=SETTINGS)
    made.set_topics(t=4)
    yield made
    made.check()


def settle(world: ConsumerWorld, *clients: Consumer) -> None:
    for _ in range(8):
        for client in clients:
            client.beat()
        list(world.begin_assignments())
    assert world.group.state_name == "Stable"
    assert sum(len(owned) for client in clients for owned in client.owned.values()) == 4


def test_a_member_hears_of_its_partitions_with_the_next_heartbeat(world: ConsumerWorld) -> None:
    client = Consumer(world, "a", ["t"])
    client.beat()
    assert not client.owned and world.group.state_name == "Assigning"
    list(world.begin_assignments())
    client.beat()
    assert [len(partitions) for partitions in client.owned.values()] == [4]


def test_who_comes_while_it_is_computed_is_in_the_next_one(world: ConsumerWorld) -> None:
    first, second = Consumer(world, "a", ["t"]), Consumer(world, "b", ["t"])
    first.beat()
    steps = world.begin_assignments()
    next(steps)
    second.beat()
    list(steps)
    assert world.group.target_epoch.epoch < world.group.epoch.epoch
    settle(world, first, second)
    assert [len(owned) for client in (first, second) for owned in client.owned.values()] == [2, 2]


def test_who_leaves_while_it_is_computed_gets_nothing(world: ConsumerWorld) -> None:
    clients = [Consumer(world, name, ["t"]) for name in "ab"]
    for client in clients:
        client.beat()
    steps = world.begin_assignments()
    next(steps)
    assert clients[1].leave() is ErrorCode.NONE
    list(steps)
    assert list(world.group.target) == ["a"]
    settle(world, clients[0])


def test_a_static_member_that_is_back_under_another_id_gets_what_was_meant_for_it(world: ConsumerWorld) -> None:
    first, static = Consumer(world, "a", ["t"]), Consumer(world, "b", ["t"], "one")
    first.beat()
    static.beat()
    steps = world.begin_assignments()
    next(steps)
    static.leave(-2)
    again = Consumer(world, "c", ["t"], "one")
    again.beat()
    list(steps)
    assert world.group.target_epoch.epoch == world.group.epoch.epoch
    settle(world, first, again)
    assert [len(owned) for client in (first, again) for owned in client.owned.values()] == [2, 2]


@pytest.mark.parametrize("is_computing", [False, True], ids=["at rest", "while a target is computed"])
def test_what_a_member_read_before_it_joined_again_is_not_committed(world: ConsumerWorld, is_computing: bool) -> None:
    """As in a small group, though what it is to have is not computed at once: it keeps that, in a new epoch."""
    first, second = Consumer(world, "a", ["t"]), Consumer(world, "b", ["t"])
    settle(world, first, second)
    before, owned = first.epoch, first.owned
    clients, steps = [first, second], iter(())
    if is_computing:
        clients.append(Consumer(world, "c", ["t"]))
        clients[-1].beat()
        steps = world.begin_assignments()
        next(steps)

    first.forget()
    first.beat()

    assert first.epoch > before and first.owned == owned
    check = world.group.partition_check(Committer("a", None, before, 9, is_transactional=False))
    assert check is not None
    answers = {check(topic_id, partition) for topic_id, partitions in owned.items() for partition in partitions}
    assert answers == {ErrorCode.STALE_MEMBER_EPOCH}
    list(steps)
    assert world.group.target_epoch.epoch >= first.epoch
    settle(world, *clients)


def test_a_target_that_could_not_be_written_as_a_whole_has_no_epoch_and_is_computed_again(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = Consumer(world, "a", ["t"]), Consumer(world, "b", ["t"])
    first.beat()
    second.beat()
    before = world.group.target_epoch.epoch
    append = world.append
    refused: list[str] = []

    def refuse_one(records: Sequence[Any]) -> ErrorCode:
        if records and isinstance(records[0], TargetRecord) and not refused:
            refused.append(records[0].member_id)
            return ErrorCode.NOT_ENOUGH_REPLICAS
        return append(tuple(records))

    monkeypatch.setattr(world, "append", refuse_one)
    list(world.begin_assignments())
    assert refused and world.group.target.keys() == {"a", "b"} - {*refused}
    assert world.group.target_epoch.epoch == before
    settle(world, first, second)


def test_a_group_that_is_not_large_any_more_keeps_the_target_that_was_computed_at_once(
    world: ConsumerWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is still being computed for more members would leave partitions with nobody, or give them to two."""
    monkeypatch.setattr(target, "AT_ONCE_MAX", 6)
    clients = [Consumer(world, name, ["t"]) for name in "abcd"]
    for client in clients:
        client.beat()
    assert world.group.target_epoch.epoch < world.group.epoch.epoch
    steps = world.begin_assignments()
    next(steps)
    for client in clients[2:]:
        assert client.leave() is ErrorCode.NONE
    clients[0].beat()
    assert world.group.target_epoch.epoch == world.group.epoch.epoch
    list(steps)
    settle(world, *clients[:2])
