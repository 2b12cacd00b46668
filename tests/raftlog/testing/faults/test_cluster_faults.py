"""Faults among three brokers: by role, of the links between them, and a schedule from a seed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raftlog.linearizability.simulator.faults import read_schedule
from raftlog.testing import Kafka
from raftlog.testing.waiting import wait_until

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def three() -> Iterator[Kafka]:
    with Kafka(3, settings={"replica.lag.time.max.ms": "2000"}) as running:
        yield running


@pytest.fixture
def own(three: Kafka) -> Iterator[Kafka]:
    yield three
    three.faults.heal()
    three.faults.forget()


def test_an_isolated_leader_is_replaced_and_nothing_is_lost(own: Kafka) -> None:
    topic = own.topic(seed=["before"])
    old = own.faults.leader_of(topic)
    with own.faults.isolate(old) as isolated:
        own.seed(topic, ["meanwhile"], timeout=40)
        assert own.faults.leader_of(topic).id != old.id
    assert isolated.fired and isolated.connections and isolated.bytes
    assert [record.value for record in own.records(topic, 2)] == [b"before", b"meanwhile"]


def test_a_killed_quorum_leader_is_replaced(own: Kafka) -> None:
    old = own.faults.quorum_leader()
    with own.faults.quorum_leader().kill() as killed:
        wait_until(lambda: own.faults.quorum_leader().id != old.id, 20, lambda: "another leader")
    assert killed.fired == 1 and own.faults.broker(old.id).process.running


def test_a_coordinator_is_found_and_stopped_in_order(own: Kafka, kafka_group: str) -> None:
    topic = own.topic(seed=["x"])
    own.admin.commit_offsets(kafka_group, {(topic, 0): 1})
    stopped = own.faults.coordinator(kafka_group).stop()
    assert own.committed(kafka_group) == {(topic, 0): 1} and stopped.fired == 1


def test_a_link_can_be_cut_one_way(own: Kafka) -> None:
    topic = own.topic(partitions=6)
    with own.faults.link(1, 2).cut(both=False) as cut:
        cut.wait(1, timeout=10)
        assert cut.spec.links == [(1, 2)]
    own.seed(topic, ["x"] * 6, partitions=range(6), timeout=40)


def test_producers_do_not_wait_for_a_follower_that_only_the_leader_has_lost() -> None:
    """Nobody is fenced, for the quorum's leader hears all; replica.lag.time.max.ms (30 s) is not waited for."""
    with Kafka(3) as kafka:
        topic = kafka.topic(seed=["before"] * 3, partitions=3)
        head = kafka.faults.quorum_leader().id
        leaders = [kafka.faults.leader_of(topic, partition).id for partition in range(3)]
        partition = next(partition for partition, leader in enumerate(leaders) if leader != head)
        follower = ({1, 2, 3} - {head, leaders[partition]}).pop()
        with kafka.faults.link(leaders[partition], follower).cut() as cut:
            kafka.seed(topic, ["meanwhile"], partitions=[partition], timeout=20)
            cut.wait()
        assert kafka.faults.leader_of(topic, partition).id == leaders[partition]


def test_a_leader_whose_disk_cannot_be_synced_serves_again_when_the_fault_is_healed(own: Kafka) -> None:
    topic = own.topic(config={"flush.messages": "1"}, seed=["before"])
    leader = own.faults.leader_of(topic)
    with leader.disk.fail_sync() as failing:
        own.seed(topic, ["meanwhile"], timeout=40)
        wait_until(lambda: not leader.process.running, 20, lambda: "the leader ends")
    assert failing.fired and leader.process.running
    own.seed(topic, ["after"], timeout=40)
    assert [record.value for record in own.records(topic, 3)] == [b"before", b"meanwhile", b"after"]


@pytest.mark.parametrize("is_met_by_both", [True, False])
def test_a_disk_that_fails_twice_at_once_is_whole_when_both_faults_are_healed(own: Kafka, is_met_by_both: bool) -> None:
    topic = own.topic(config={"flush.messages": "1"}, seed=["before"])
    leader = own.faults.leader_of(topic)
    failing = [leader.disk.fail_sync() for _ in range(2 if is_met_by_both else 1)]
    own.seed(topic, ["meanwhile"], timeout=40)
    wait_until(lambda: not leader.process.running, 20, lambda: "the leader ends")
    first, second = failing if is_met_by_both else (*failing, leader.disk.fail_sync())
    assert (first.fired > 0, second.fired > 0) == (True, is_met_by_both)
    first.heal()
    assert not leader.process.running
    second.heal()
    assert leader.process.running
    own.seed(topic, ["after"], timeout=40)
    assert [record.value for record in own.records(topic, 3)] == [b"before", b"meanwhile", b"after"]


def test_a_broker_that_is_started_with_a_failing_disk_serves_when_that_is_healed(own: Kafka) -> None:
    broker = own.faults.broker(1)
    killed, failing = broker.kill(), broker.disk.fail_sync()
    killed.heal()
    wait_until(lambda: failing.fired and not broker.process.running, 20, lambda: "it ends again")
    failing.heal()
    assert broker.process.running and not broker.process.is_starting


def test_healing_a_disk_leaves_a_broker_down_that_another_fault_holds_down(own: Kafka) -> None:
    broker = own.faults.broker(1)
    failing, killed = broker.disk.fail_sync(), broker.kill()
    failing.heal()
    assert not broker.process.running
    killed.heal()
    assert broker.process.running


def test_a_schedule_is_the_simulators_and_is_carried_out(own: Kafka) -> None:
    topic = own.topic(partitions=3)
    schedule = own.faults.schedule(seed=11, seconds=3, kinds=["freeze", "isolate", "kill"])
    assert read_schedule(schedule.lines.splitlines()) == schedule.planned
    again = own.faults.schedule(seed=11, seconds=3, kinds=["freeze", "isolate", "kill"])
    assert again.lines == schedule.lines
    with schedule:
        schedule.wait()
    assert schedule.done.total() >= 1 and all(broker.running for broker in own.running.brokers)
    own.seed(topic, ["x"] * 3, partitions=range(3), timeout=40)


@pytest.mark.parametrize("end", ["kill", "power_cut"])
def test_brokers_that_are_all_down_serve_when_the_last_one_is_healed(own: Kafka, end: str) -> None:
    topic = own.topic(config={"flush.messages": "1"}, seed=["before"])
    one, two, three = (getattr(own.faults.broker(each), end) for each in (1, 2, 3))
    with one() as first, two(), three() as last:
        last.heal()
        assert own.running.broker(3).is_starting and not first.spec.is_healed
    assert not any(broker.is_starting for broker in own.running.brokers)
    assert [record.value for record in own.records(topic, 1)] == [b"before"]


def test_a_broker_that_starts_behind_a_cut_serves_when_that_is_healed(own: Kafka) -> None:
    with own.faults.isolate(1):
        own.faults.broker(1).restart()
        assert own.running.broker(1).is_starting
    assert own.running.broker(1).running and not own.running.broker(1).is_starting


def test_all_faults_are_healed_before_brokers_are_started_again(own: Kafka) -> None:
    own.faults.isolate(1)
    own.faults.broker(1).kill()
    own.faults.heal()
    assert own.running.broker(1).running and not own.running.broker(1).is_starting
