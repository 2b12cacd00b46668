"""Brokers killed, stopped and made to stand still, under load: nothing acknowledged is lost, replicas stay the same."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

from raftlog.testing import BrokerProcess
from tests.system.cluster.world import World, Writer

Choice = Callable[[World, str], list[BrokerProcess]]

VICTIMS: dict[str, Choice] = {
    "leader": lambda world, topic: [world.leader(topic)],
    "follower": lambda world, topic: [world.follower(topic)],
    "raft leader": lambda world, topic: [world.raft_leader()],
    "any two": lambda world, topic: [world.leader(topic), world.follower(topic)],
}


def harm(broker: BrokerProcess, number: signal.Signals) -> None:
    if number == signal.SIGKILL:
        broker.kill()
    elif number == signal.SIGSTOP:
        broker.pause()
    else:
        broker.terminate()


@pytest.mark.parametrize("victims", VICTIMS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP], ids=lambda number: number.name)
def test_nothing_acknowledged_is_lost(world: World, name: str, number: signal.Signals, victims: str) -> None:
    topic = world.create(name)
    with Writer(world.bootstrap, topic) as writer:
        writer.wait_for_more()
        chosen = VICTIMS[victims](world, topic)
        for broker in chosen:
            harm(broker, number)
        if number == signal.SIGSTOP:
            world.wait_until_given_up(chosen)
        elif len(chosen) == 1:
            # The other two go on without it.
            writer.wait_for_more()
        if number == signal.SIGTERM:
            assert [broker.stop() for broker in chosen] == [0] * len(chosen)
        world.restore()
        writer.wait_for_more()
    writer.check_no_errors()
    world.wait_until_in_sync(topic)
    world.check_nothing_lost(topic, writer)
