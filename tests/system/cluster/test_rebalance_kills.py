"""Brokers and members killed with -9 at every step of a rebalance: before its request, while that is under way, and
after the answer. Members are processes of librdkafka; a broker stays down until the group has come to rest without it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from raftlog.testing import BrokerProcess, cluster
from tests.system.cluster.rebalances import JOINER, PARTITIONS, RESIDENTS, STEPS, WATCHED, Rebalance, Step, rebalance
from tests.system.cluster.transactions import GROUP_KEY, Moment
from tests.system.cluster.wiretap import Wiretap
from tests.system.cluster.world import World
from tests.waiting import wait_until

pytestmark = pytest.mark.long

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.consumer.assignment.interval.ms": "0",
}
VICTIMS = ("coordinator", "leader", "member")
CASES = [
    (protocol, step, moment, victim)
    for protocol, steps in STEPS.items()
    for step, moment, victim in itertools.product(steps, Moment, VICTIMS)
]
QUICK = {
    ("classic", Step.SYNC_OF_LEADER, Moment.UNDER_WAY, "coordinator"),
    ("consumer", Step.REVOKED, Moment.UNDER_WAY, "coordinator"),
}


@pytest.fixture(scope="module")
def shared() -> Iterator[World]:
    with cluster(3, settings=SETTINGS) as running:
        yield World(running)


@pytest.fixture(scope="module")
def tap(shared: World) -> Iterator[Wiretap]:
    tap = Wiretap(shared.bootstrap, WATCHED)
    yield tap
    tap.close()


def broker_of(group: Rebalance, kind: str) -> BrokerProcess:
    """The group's coordinator, or another broker that leads a partition which is consumed."""

    def found() -> BrokerProcess | None:
        coordinator = group.wire.coordinator(group.name, GROUP_KEY)
        leaders = [group.wire.leader(group.name, index) for index in range(PARTITIONS)]
        wanted = coordinator if kind == "coordinator" else next((e for e in leaders if e != coordinator), None)
        return next((each for each in group.world.cluster.brokers if each.address == wanted), None)

    wait_until(lambda: found() is not None, f"there is a {kind}")
    broker = found()
    assert broker is not None
    return broker


@pytest.mark.parametrize(
    ("protocol", "step", "moment", "kind"),
    [
        pytest.param(
            *case,
            marks=() if case in QUICK else pytest.mark.slow,
            id="-".join(str(getattr(each, "name", each)).lower() for each in case),
        )
        for case in CASES
    ],
)
def test_whoever_is_killed_the_group_comes_to_rest_and_nothing_is_owned_twice_or_forgotten(
    world: World, tap: Wiretap, name: str, protocol: str, step: Step, moment: Moment, kind: str
) -> None:
    with rebalance(world, tap, name, protocol) as group:
        broker = None if kind == "member" else broker_of(group, kind)
        killed: list[str] = []

        def around(at: Step, when: Moment, member: str) -> None:
            if (at, when) != (step, moment):
                return
            killed.append(member)
            if broker is None:
                group.members[member].kill()
            else:
                broker.kill()

        group.around = around
        group.join(JOINER)
        if step is not Step.LEAVE:
            group.wait_until(lambda: killed, "the step comes to pass")
        group.wait_until_at_rest()
        group.feed()
        next(each for each in group.living() if each.name in RESIDENTS).end()
        assert killed, "nobody left"
        group.wait_until_at_rest()
        group.feed()
        assert group.living(), "somebody is left"
