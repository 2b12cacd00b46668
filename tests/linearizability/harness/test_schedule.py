"""When faults happen: decided by the seed before the run begins."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.linearizability.harness import scenarios
from raftlog.linearizability.harness.clients import Clients
from raftlog.linearizability.harness.faults import FAULTS, Fault, faults_named
from raftlog.linearizability.harness.nemesis import Done, Nemesis, Period, Put, schedule
from raftlog.linearizability.harness.plan import Plan
from raftlog.linearizability.harness.run import Run
from raftlog.linearizability.harness.settings import RunSettings
from raftlog.linearizability.harness.systems.address import AddressSystem
from raftlog.linearizability.harness.systems.system import Effect, counted, nothing
from raftlog.linearizability.harness.workloads.catalogue import WORKLOADS
from raftlog.testing.process import BrokerDied
from raftlog.testing.waiting import NotInTime, wait_until
from raftlog.wire.batch import encode_batch
from raftlog.wire.records import Record

ALL = frozenset({
    "processes", "links", "disks", "clocks", "requests", "replicas", "transactions", "partitions", "only our client",
})  # fmt: skip


def test_a_seed_makes_the_same_schedule_and_another_seed_another_one() -> None:
    assert schedule("everything", 60, 7, ALL) == schedule("everything", 60, 7, ALL)
    assert schedule("everything", 60, 7, ALL) != schedule("everything", 60, 8, ALL)


def test_faults_lie_one_behind_the_other_with_quiet_between_them_and_begin_within_the_load() -> None:
    for seed in range(50):
        periods = schedule("kill", 60, seed, ALL)
        assert len(periods) >= 3
        for one, other in itertools.pairwise(periods):
            assert one.at + one.seconds < other.at
        assert all(each.at < 60 and each.faults == (FAULTS["kill"],) for each in periods)


def test_several_faults_take_turns_and_each_comes_up_in_a_short_run() -> None:
    for seed in range(50):
        for wanted in (["kill", "pause", "partition"], ["kill", "pause", "partition", "restart", "clock", "slow-disk"]):
            names = [each.faults[0].name for each in schedule(",".join(wanted), 9, seed, ALL)]
            assert names[: len(wanted)] == wanted


def test_nothing_is_scheduled_where_nothing_should_happen() -> None:
    assert schedule("none", 60, 1, ALL) == []


def test_everything_is_what_the_system_and_the_workload_have_a_hold_of() -> None:
    names = {fault.name for fault in faults_named("everything", frozenset({"processes", "partitions"}))}
    assert {"kill", "pause", "restart", "reassign"} <= names
    assert {"poor-links", "failing-sync", "torn-write"} <= {fault.name for fault in faults_named("everything", ALL)}
    old = {fault.name for fault in faults_named("everything", ALL - {"only our client"})}
    assert "zombie-writer" in old and "delayed-end-txn" not in old
    assert not names & {"partition", "clock", "delayed-end-txn", "isr-of-one", "none"}


def test_two_replicas_do_not_lose_what_they_have_at_once() -> None:
    """A flipped bit in the one follower that was in sync, and a power cut of the leader, lost 99 records."""
    periods = [period for seed in range(50) for period in schedule("everything", 600, seed, ALL)]
    losing = [[fault.name for fault in each.faults if fault.loses_records] for each in periods]
    assert {name for names in losing for name in names} == {"power-cut", "torn-write", "bit-flip"}
    assert max(map(len, losing)) == 1


class Brokers(AddressSystem):
    """Brokers in these states at the end."""

    def __init__(self, states: dict[int, str]) -> None:
        super().__init__("nobody.invalid:9092")
        self._states = states

    def states(self) -> dict[int, str]:
        return self._states

    def in_sync(self, brokers: Collection[int]) -> bool:
        return not brokers


def lines_of(put: Any) -> list[dict[str, Any]]:
    """What is written down of a fault that `put` puts in."""
    return run_of([_story(put)], {})[0]


def _story(put: Any) -> Fault:
    return Fault("story", "", put, frozenset())


def run_of(faults: list[Fault], states: dict[int, str]) -> tuple[list[dict[str, Any]], Done]:
    """The same of faults one after the other, and what is known at the end, when brokers are in these states."""
    lines: list[dict[str, Any]] = []
    periods = [Period(0.0, 0.0, (each,)) for each in faults]
    system, clients = Brokers(states), cast(Clients, None)
    nemesis = Nemesis(system, WORKLOADS["append"], clients, 1, periods=periods, write=lines.append)
    nemesis.start()
    wait_until(lambda: len(lines) >= 4, 10, lambda: f"two faults begin and end: {lines}")
    nemesis.stop()
    return lines, nemesis.done


def test_a_broker_is_started_again_after_its_disk_has_room_and_has_its_vote_back_when_it_runs() -> None:
    healed: list[str] = []

    def put(plan: Plan) -> None:
        for kind in ("voters", "full-disk", "power"):
            plan.put(Effect(kind, "broker 1", lambda kind=kind: healed.append(kind), counted))  # type: ignore[misc]

    assert [line["type"] for line in lines_of(put)] == ["begin"] * 3 + ["end"] * 3
    assert healed == ["full-disk", "power", "voters"]


def test_what_a_story_ends_early_is_healed_once_and_what_did_nothing_is_told() -> None:
    healed: list[str] = []

    def put(plan: Plan) -> None:
        first = plan.put(Effect("kill", "broker 1", lambda: healed.append("kill"), counted))
        plan.end(first)
        plan.put(Effect("reassign", "a-0", lambda: healed.append("reassign"), lambda: counted(0)))

    lines = lines_of(put)
    assert [(line["type"], line["number"]) for line in lines] == [("begin", 1), ("end", 1), ("begin", 2), ("end", 2)]
    assert healed == ["kill", "reassign"]
    assert [line["effect"] for line in lines if line["type"] == "end"] == [True, False]


def test_a_fault_that_cannot_be_put_in_is_written_down_with_the_reason() -> None:
    def put(plan: Plan) -> None:
        plan.put(Effect("kill", "broker 1", lambda: None, counted))
        raise RuntimeError("nobody leads a-0")

    errors = [line["error"] for line in lines_of(put) if line["type"] == "end"]
    assert sorted(errors, key=str) == [None, "nobody leads a-0"]


def test_a_broker_that_started_too_late_is_a_failure_only_if_it_is_down_in_the_end() -> None:
    def too_late() -> None:
        raise BrokerDied("it does not serve after 30 s")

    def put(plan: Plan) -> None:
        for broker in (1, 2):
            plan.put(Effect("kill", f"broker {broker}", too_late, counted, [broker]))

    _, done = run_of([_story(put)], {1: "up", 2: "down"})
    assert done.failures == ["kill of broker 2 could not be healed: it does not serve after 30 s"]


def test_an_error_of_the_harness_ends_the_faults_which_are_healed_and_the_run_is_in_doubt_for_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    healed: list[str] = []

    def put(plan: Plan) -> None:
        for kind in ("kill", "pause"):
            plan.put(Effect(kind, "broker 1", lambda kind=kind: healed.append(kind), counted))  # type: ignore[misc]
        raise KeyError("a mistake of ours")

    _, done = run_of([_story(put)], {})
    assert sorted(healed) == ["kill", "pause"]
    assert done.broken_by == "KeyError: 'a mistake of ours'"
    assert "in put" in capsys.readouterr().err
    (doubt,) = Run(RunSettings("append", "kill"), print).doubts_of_faults(done)
    assert doubt == "the faults ended early by a bug in the harness: KeyError: 'a mistake of ours'"


def test_a_second_broker_loses_no_records_before_the_first_one_is_in_sync_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raftlog.linearizability.harness.nemesis.IN_SYNC_SECONDS_MAX", 0.01)

    def put(plan: Plan) -> None:
        plan.put(Effect("power", "broker 1", nothing, counted, [1]))

    lines, done = run_of([replace(FAULTS["power-cut"], put=put)] * 2, {})
    errors = [line["error"] for line in lines if line["type"] == "end"]
    assert errors == [None, "brokers [1] have not all that they lost"]
    assert done.effective() == {"power-cut": 1}


def test_no_records_are_lost_after_a_fault_that_may_have_lost_some_although_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("raftlog.linearizability.harness.nemesis.IN_SYNC_SECONDS_MAX", 0.01)
    monkeypatch.setattr(Brokers, "broker_ids", (1, 2, 3), raising=False)

    def put(plan: Plan) -> None:
        raise NotInTime("not within 10 s: broker 2 loses its power")

    lines, _ = run_of([replace(FAULTS["power-cut"], put=put)] * 2, {})
    errors = [line["error"] for line in lines if line["type"] == "end"]
    assert errors == [
        "not within 10 s: broker 2 loses its power",
        "brokers [1, 2, 3] have not all that they lost",
    ]


def test_a_fault_may_begin_while_it_is_looked_whether_each_had_its_turn() -> None:
    class Begins:
        """While it is looked at, another one begins."""

        @property
        def name(self) -> str:
            put[2] = Put(2, "kill", "kill", True)
            return "kill"

    periods = [Period(0.0, 0.0, (FAULTS["kill"],))]
    nemesis = Nemesis(
        Brokers({}), WORKLOADS["append"], cast(Clients, None), 1, periods=periods, write=lambda line: None
    )
    nemesis._thread = cast(Any, SimpleNamespace(is_alive=lambda: True))
    put = nemesis.done.put
    put[1] = cast(Any, Begins())
    assert nemesis.has_done_each


def test_a_story_that_did_not_come_to_its_point_had_no_effect_although_a_broker_was_killed() -> None:
    killed, early, late = (Put(number, "isr-of-one", kind, is_effective) for number, kind, is_effective in (
        (1, "kill", True), (2, "isr-of-one", False), (3, "isr-of-one", True)))  # fmt: skip
    assert not Done({1: killed, 2: early}).effective()
    assert Done({1: killed, 3: late}).effective() == {"isr-of-one": 1}
    assert Done({1: Put(1, "pause-kill", "kill", True)}).effective() == {"pause-kill": 1}


def test_a_batch_that_has_rotted_in_one_replica_is_restored_from_another(tmp_path: Path) -> None:
    batches = [encode_batch([Record(each, 0, None, b"%d" % each)], base_offset=each) for each in range(3)]
    whole, rotten = b"".join(batches), []
    for broker, batch in enumerate(batches):
        file = tmp_path / f"{broker}" / "a-0" / "0.log"
        file.parent.mkdir(parents=True)
        file.write_bytes(whole)
        at = sum(map(len, batches[:broker]))
        assert scenarios._flip(file, 8 * (at + len(batch)) - 1, broker) and file.read_bytes() != whole
        rotten.append(scenarios._Rotten(broker, file, at, len(batch)))
    done: list[str] = []
    process = SimpleNamespace(
        stop=lambda: done.append("stop"),
        start=lambda *, wait: done.append("start"),
        wait_until_ready=lambda: done.append("ready"),
    )
    running = SimpleNamespace(broker=lambda broker: process)
    system: Any = SimpleNamespace(
        kafka=SimpleNamespace(running=running), data_directory=lambda broker: tmp_path / f"{broker}"
    )
    scenarios._restore(system, rotten, range(3))
    assert all(each.file.read_bytes() == whole for each in rotten)
    assert done == ["stop"] * 3 + ["start"] * 3 + ["ready"] * 3
    scenarios._flip(rotten[0].file, 8 * rotten[0].size - 1, 0)
    scenarios._restore(system, rotten[:1], range(3))
    assert rotten[0].file.read_bytes() == whole, "also when no other was damaged in the end"
    for each in rotten[:2]:
        scenarios._flip(each.file, 8 * (rotten[0].at + rotten[0].size) - 1, each.broker)
    with pytest.raises(RuntimeError, match="nobody has the batch at byte 0"):
        scenarios._restore(system, [rotten[0], rotten[1]._replace(at=0)], range(2))
    assert done[-4:] == ["stop"] * 2 + ["start"] * 2, "no broker stays away for it"
