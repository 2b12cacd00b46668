"""Brokers killed with -9 at every step of a transaction that is theirs alone: a leader asks the coordinator about a
batch, and the coordinator has each partition's marker written. The kill comes when the request is with its broker and
nothing is done of it, or when all is done and the answer is lost.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from enum import Enum, auto

import pytest
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]

from raftlog.client.sync import SyncAdmin
from raftlog.testing import BrokerProcess, Cluster
from raftlog.testing.faults.fault import Fault
from raftlog.testing.faults.faults import Faults
from raftlog.testing.faults.spec import ALWAYS, FaultSpec, When
from raftlog.wire.errors import ErrorCode
from tests.system.cluster.transactions import FENCED, GROUP_KEY, TRANSACTION_KEY, Copier, Moment, Refused, Step, Wire
from tests.system.cluster.world import World
from tests.waiting import wait_until

pytestmark = pytest.mark.long

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
FIRED_SECONDS = 30.0


class Asked(Enum):
    """What one broker asks another for: about a batch, and for the markers of both partitions and of the offsets."""

    VERIFY = auto()
    FIRST_MARKER = auto()
    SECOND_MARKER = auto()
    OFFSETS_MARKER = auto()


class Ending(Enum):
    """How the transaction ends."""

    COMMIT = auto()
    ABORT = auto()
    TIME_OUT = auto()


class Answer(Enum):
    """What comes of the request, and of those that repeat it until somebody is killed."""

    NOTHING_DONE = auto()
    LOST = auto()


class Victim(Enum):
    """Whom the kill hits."""

    ASKER = auto()
    ASKED = auto()


MARKERS = tuple(each for each in Asked if each is not Asked.VERIFY)
# Without KIP-890's second part the partition is there already, and the coordinator only tells so.
VERIFIED = [
    (version, Asked.VERIFY, Ending.COMMIT, *each) for version in (2, 1) for each in itertools.product(Answer, Victim)
]
MARKED = [
    (version, *case)
    for version in (2, 1)
    for case in itertools.product(MARKERS, Ending, Answer, Victim)
    if version == 2 or case[1] is Ending.COMMIT
]
QUICK = {
    (2, Asked.VERIFY, Ending.COMMIT, Answer.LOST, Victim.ASKER),
    (2, Asked.SECOND_MARKER, Ending.COMMIT, Answer.NOTHING_DONE, Victim.ASKER),
    (2, Asked.FIRST_MARKER, Ending.TIME_OUT, Answer.LOST, Victim.ASKED),
}


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    running = Cluster(3, tmp_path_factory.mktemp("brokers"), settings=SETTINGS, faults=True)
    try:
        running.start()
        yield World(running)
    finally:
        running.kill()
        running.close()


def broker_at(world: World, locate: Callable[[], str | None]) -> BrokerProcess:
    wait_until(lambda: locate() is not None, "somebody has the role")
    address = locate()
    return next(each for each in world.cluster.brokers if each.address == address)


class Scene:
    """A topic of two partitions and a group, all with other brokers than the transaction's coordinator: what a broker
    asks itself takes no way on which it could be stopped. `wire` is not the clients', who may wait for an answer.
    """

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name = world, name
        self.wire = Wire(world.bootstrap)
        self.faults = Faults(world.cluster, _no_admin)
        self.coordinator = broker_at(world, lambda: self.wire.coordinator(name, TRANSACTION_KEY))
        first, second = (each for each in world.cluster.brokers if each is not self.coordinator)
        self.leaders = [first, second]
        self.group = self._group_elsewhere()
        ids = [[leader.node_id, *self._others(leader)] for leader in self.leaders]
        new = NewTopic(name, 2, replica_assignment=ids)
        admin = world.admin()
        admin.create_topics([new])[name].result(FIRED_SECONDS)
        world.wait_until_in_sync(name)

    def close(self) -> None:
        self.faults.heal()
        self.wire.close()

    def _others(self, leader: BrokerProcess) -> list[int]:
        return [each.node_id for each in self.world.cluster.brokers if each is not leader]

    def _group_elsewhere(self) -> str:
        for number in range(100):
            group = f"{self.name}-{number}"
            if self._group_coordinator(group) is not self.coordinator:
                return group
        raise AssertionError("one broker has all groups and this transaction")

    def _group_coordinator(self, group: str) -> BrokerProcess:
        return broker_at(self.world, lambda: self.wire.coordinator(group, GROUP_KEY))

    def parties(self, asked: Asked) -> dict[Victim, BrokerProcess]:
        match asked:
            case Asked.VERIFY:
                return {Victim.ASKER: self.leaders[0], Victim.ASKED: self.coordinator}
            case Asked.FIRST_MARKER | Asked.SECOND_MARKER:
                return {Victim.ASKER: self.coordinator, Victim.ASKED: self.leaders[asked is Asked.SECOND_MARKER]}
        return {Victim.ASKER: self.coordinator, Victim.ASKED: self._group_coordinator(self.group)}

    def stop(self, asked: Asked, answer: Answer) -> Fault:
        """Have the request stopped from now on, whoever sends it to the broker that has the role now."""
        spec = FaultSpec("blackhole" if answer is Answer.NOTHING_DONE else "disconnect", when=When(times=ALWAYS))
        spec.applied = answer is Answer.LOST
        spec.brokers = [self.parties(asked)[Victim.ASKED].node_id]
        if asked is Asked.VERIFY:
            spec.api, spec.client = "AddPartitionsToTxn", "raftlog-transaction-verifier*"
        else:
            spec.api, spec.client = "WriteTxnMarkers", "transaction-markers*"
            spec.topic = "__consumer_offsets" if asked is Asked.OFFSETS_MARKER else self.name
        return self.faults.add(spec)

    def check(self, copied: list[int]) -> None:
        """All or nothing."""
        assert self.wire.committed(self.group, self.name) == (copied[-1] + 1 if copied else 0)
        assert [self.wire.visible(self.name, index) for index in (0, 1)] == [copied, copied]


def _no_admin() -> SyncAdmin:
    raise AssertionError("these faults name their brokers")


@pytest.fixture
def scene(world: World, name: str) -> Iterator[Scene]:
    made = Scene(world, name)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("version", "asked", "ending", "answer", "victim"),
    [
        pytest.param(
            *case,
            marks=() if case in QUICK else pytest.mark.slow,
            id="-".join(str(getattr(each, "name", each)).lower() for each in case),
        )
        for case in [*VERIFIED, *MARKED]
    ],
)
def test_a_kill_between_two_brokers_leaves_the_transaction_whole_and_ended_as_decided(
    scene: Scene, version: int, asked: Asked, ending: Ending, answer: Answer, victim: Victim
) -> None:
    wire = Wire(scene.world.bootstrap)
    timeout_ms = 1_000 if ending is Ending.TIME_OUT else 60_000
    copier = Copier(wire, scene.name, version=version, timeout_ms=timeout_ms, group=scene.group)
    copier.commits = ending is Ending.COMMIT
    stopped: list[Fault] = []
    killed: list[BrokerProcess] = []
    refusals: list[ErrorCode] = []

    def kill_when_stopped() -> None:
        stopped[0].wait(timeout=FIRED_SECONDS)
        killed.append(scene.parties(asked)[victim])
        killed[0].kill()
        stopped[0].heal()
        killed[0].start(wait=False)

    def around(at: Step, moment: Moment) -> None:
        if killed or at is not (Step.PRODUCE if asked is Asked.VERIFY else Step.END):
            return
        if moment is Moment.BEFORE:
            stopped.append(scene.stop(asked, answer))
        elif moment is Moment.UNDER_WAY:
            kill_when_stopped()

    def is_copied() -> bool:
        try:
            copier.copy()
        except Refused as refused:
            assert refused.error not in FENCED, "nobody else has this transactional id"
            refusals.append(refused.error)
        return wire.committed(scene.group, scene.name) == 1

    copier.around = around
    match ending:
        case Ending.COMMIT:
            wait_until(is_copied, f"0 is copied; refused with {refusals}")
        case Ending.ABORT:
            copier.copy()
        case Ending.TIME_OUT:
            copier.begin()
            copier.go_on(0, [step for step in copier.steps()[2:] if step is not Step.END])
            stopped.append(scene.stop(asked, answer))
            kill_when_stopped()
    assert killed
    # A kill is an event that clients retry through; giving up a transaction is the exception.
    assert len(refusals) <= 1, refusals
    scene.check([0] if ending is Ending.COMMIT else [])
    killed[0].wait_until_ready()

    heir = Copier(wire, scene.name, version=version, group=scene.group)
    number = heir.copy()
    scene.check(list(range(number + 1)))
    wire.close()
