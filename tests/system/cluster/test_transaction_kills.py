"""Brokers and clients killed with -9 at every step of a transaction that also commits offsets: before its request,
while that is under way, and after the answer. Each time exactly one number more is copied, and nothing else is seen.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from raftlog.testing import BrokerProcess, cluster
from raftlog.wire.errors import ErrorCode
from tests.system.cluster.transactions import (
    FENCED,
    GROUP_KEY,
    ONLY_VERSION_1,
    TRANSACTION_KEY,
    Copier,
    Gone,
    Moment,
    Refused,
    Step,
    Wire,
)
from tests.system.cluster.world import World
from tests.waiting import wait_until

pytestmark = pytest.mark.long

SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "3"}
VICTIMS = ("transaction coordinator", "group coordinator", "first leader", "second leader")
EVERY_MOMENT = [
    (version, step, moment)
    for version, step, moment in itertools.product((2, 1), Step, Moment)
    if version == 1 or step not in ONLY_VERSION_1
]
# For the quick suite: one victim for each step, at the moment when the outcome is not known.
QUICK = {
    (2, Step.PRODUCE, Moment.UNDER_WAY, "first leader"),
    (2, Step.COMMIT_OFFSETS, Moment.UNDER_WAY, "group coordinator"),
    (2, Step.END, Moment.UNDER_WAY, "transaction coordinator"),
    (1, Step.ADD_OFFSETS, Moment.AFTER, "transaction coordinator"),
}
QUICK_CLIENTS = {
    (2, Step.PRODUCE_MORE, Moment.UNDER_WAY),
    (2, Step.COMMIT_OFFSETS, Moment.AFTER),
    (2, Step.END, Moment.UNDER_WAY),
    (1, Step.END, Moment.BEFORE),
}


class Copying:
    """A topic that is copied to, number by number, and what must always hold."""

    def __init__(self, world: World, name: str, version: int) -> None:
        self.world = world
        self.wire = Wire(world.bootstrap)
        self.name = world.create(name, 2)
        self.version = version

    def copier(self) -> Copier:
        return Copier(self.wire, self.name, version=self.version)

    def victim(self, kind: str) -> BrokerProcess:
        find: dict[str, Callable[[], str | None]] = {
            "transaction coordinator": lambda: self.wire.coordinator(self.name, TRANSACTION_KEY),
            "group coordinator": lambda: self.wire.coordinator(self.name, GROUP_KEY),
            "first leader": lambda: self.wire.leader(self.name, 0),
            "second leader": lambda: self.wire.leader(self.name, 1),
        }
        wait_until(lambda: find[kind]() is not None, f"there is a {kind}")
        address = find[kind]()
        return next(each for each in self.world.cluster.brokers if each.address == address)

    def check(self, copied: int) -> None:
        """All or nothing: both partitions hold the numbers that the committed offset says, each once."""
        expected = list(range(copied))
        assert self.wire.committed(self.name, self.name) == copied
        assert [self.wire.visible(self.name, index) for index in (0, 1)] == [expected, expected]


@pytest.fixture(scope="module")
def running() -> Iterator[World]:
    with cluster(3, settings=SETTINGS) as started:
        yield World(started)


@pytest.fixture(scope="module")
def copyings(running: World) -> dict[int, Copying]:
    """One for each version; a test goes on where the one before has stopped."""
    return {version: Copying(running, f"copied-{version}", version) for version in (2, 1)}


@pytest.fixture
def copying(copyings: dict[int, Copying], running: World, version: int) -> Iterator[Copying]:
    found = copyings[version]
    yield found
    found.wire.close()
    running.restore()


def params(
    cases: list[tuple[int, Step, Moment, str]] | list[tuple[int, Step, Moment]], quick: set[object]
) -> list[object]:
    return [
        pytest.param(
            *case,
            marks=() if case in quick else pytest.mark.slow,
            id="-".join(str(getattr(each, "name", each)).lower().replace(" ", "-") for each in case),
        )
        for case in cases
    ]


@pytest.mark.parametrize(
    ("version", "step", "moment", "kind"),
    params([(*case, kind) for case in EVERY_MOMENT for kind in VICTIMS], set(QUICK)),
)
def test_a_broker_that_is_killed_costs_no_transaction_its_atomicity(
    copying: Copying, step: Step, moment: Moment, kind: str
) -> None:
    """The client goes on as Kafka's do: it asks again what may be asked again, and else begins as a new instance."""
    number = copying.wire.committed(copying.name, copying.name)
    copier = copying.copier()
    victim = copying.victim(kind)
    killed: list[None] = []

    def around(at: Step, when: Moment) -> None:
        if (at, when) == (step, moment) and not killed:
            killed.append(None)
            victim.kill()
            victim.start(wait=False)

    copier.around = around
    refusals: list[ErrorCode] = []

    def is_copied() -> bool:
        try:
            copier.copy()
        except Refused as refused:
            assert refused.error not in FENCED, "nobody else has this transactional id"
            refusals.append(refused.error)
        return copying.wire.committed(copying.name, copying.name) == number + 1

    wait_until(is_copied, f"{number} is copied; refused with {refusals}")
    assert killed
    victim.wait_until_ready()
    copying.check(number + 1)
    # A kill is an event that clients retry through; giving up a transaction is the exception.
    assert len(refusals) <= 1, refusals


@pytest.mark.parametrize(("version", "step", "moment"), params(EVERY_MOMENT, set(QUICK_CLIENTS)))
def test_a_client_that_is_killed_leaves_all_or_nothing_and_its_ghost_is_fenced(
    copying: Copying, step: Step, moment: Moment
) -> None:
    number = copying.wire.committed(copying.name, copying.name)
    dead = copying.copier()

    def around(at: Step, when: Moment) -> None:
        if (at, when) == (step, moment):
            raise Gone

    dead.around = around
    with pytest.raises(Gone):
        dead.copy()
    dead.wire = Wire(copying.world.bootstrap)
    copying.wire.close()

    heir = copying.copier()
    heir.begin()
    now = copying.wire.committed(copying.name, copying.name)
    may_have_ended = step is Step.END and moment is not Moment.BEFORE
    assert now == number or (may_have_ended and now == number + 1)
    if step is Step.END and moment is Moment.AFTER:
        assert now == number + 1, "the end of the transaction was acknowledged"
    copying.check(now)

    # What the dead one had still under way arrives now.
    dead.around = lambda at, when: None
    if dead.producer_id >= 0:
        for left in dead.steps()[2:]:
            with pytest.raises(Refused) as refused:
                dead.take(left, number)
            assert refused.value.error in FENCED, left
    dead.wire.close()
    copying.check(now)

    heir.go_on(now, heir.steps()[2:])
    copying.check(now + 1)
