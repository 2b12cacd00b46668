"""How a fault begins and ends, without a broker: what cannot be, who heals it, and who is killed meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import fcntl
import os
import signal
import subprocess
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raftlog.broker.config import BrokerConfig
from raftlog.testing.faults.directory import FaultDirectory
from raftlog.testing.faults.fault import Fault, NeverFired
from raftlog.testing.faults.faults import Faults
from raftlog.testing.faults.in_broker import FaultPoint
from raftlog.testing.faults.schedule import CARRIED_OUT, OF_LINKS
from raftlog.testing.faults.spec import FaultSpec, When

SECONDS_MAX = 10.0


@pytest.fixture
def faults(tmp_path: Path) -> Faults:
    """Those of a cluster that has no broker."""
    FaultDirectory(tmp_path).make()
    cluster = SimpleNamespace(directory=tmp_path, has_faults=True, links=None, brokers=[])
    return Faults(cast("Any", cluster), lambda: cast("Any", None))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        (FaultSpec("drop", links=[(0, 1)]), "`cut` loses everything"),
        (FaultSpec("drop", links=[(0, 1)], when=When(probability=float("nan"))), "it is from 0 to 1"),
        (FaultSpec("error", when=When(probability=7.0)), "it is from 0 to 1"),
        (FaultSpec("error", when=When(times=0)), "counted from 1"),
        (FaultSpec("error", when=When(first=0)), "counted from 1"),
        (FaultSpec("bandwidth", links=[(0, 1)], amount=-5.0), "above zero"),
        (FaultSpec("delay"), "above zero"),
        (FaultSpec("slow-disk", seconds=-1.0), "above zero"),
        (FaultSpec("slow-link", links=[(0, 1)]), "not later"),
        (FaultSpec("slow-link", links=[(0, 1)], seconds=1.0, jitter=-2.0), "not later"),
        (FaultSpec("isolate", links=[(1, 1)]), "two ends"),
    ],
)
def test_a_fault_that_cannot_be_is_refused(tmp_path: Path, spec: FaultSpec, said: str) -> None:
    directory = FaultDirectory(tmp_path)
    directory.make()
    with pytest.raises(ValueError, match=said):
        directory.add(spec)
    assert directory.all() == []


def test_when_it_happens_is_looked_at_as_well(faults: Faults) -> None:
    fault = faults.error("Produce", "NONE")
    for change in (lambda: fault.times(0), lambda: fault.on_call(0), lambda: fault.with_probability(2.0)):
        with pytest.raises(ValueError, match=r"from (0 to )?1"):
            change()
    assert fault.spec.when == When()


def test_whoever_is_killed_while_it_counts_leaves_the_fault_as_it_was(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    fault = faults.error("Produce", "NONE")

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", killed)
        with pytest.raises(KeyboardInterrupt):
            faults.directory.hit(fault.number)
    assert fault.fired == 0 and faults.directory.hit(fault.number) and fault.fired == 1


def test_all_faults_end_although_one_cannot_be_undone(faults: Faults) -> None:
    first = faults.add(FaultSpec("blackhole"))

    def fails() -> None:
        raise RuntimeError("it does not start")

    second = faults.add(FaultSpec("kill", brokers=[1]), undo=fails)
    third = faults.add(FaultSpec("blackhole"))
    with pytest.raises(RuntimeError, match="does not start"):
        faults.heal()
    assert all(fault.spec.is_healed for fault in (first, second, third))


def test_healing_waits_for_whoever_heals_it_already(faults: Faults) -> None:
    begun, go_on = threading.Event(), threading.Event()
    undone = []

    def undo() -> None:
        begun.set()
        assert go_on.wait(SECONDS_MAX)
        undone.append(True)

    fault = faults.add(FaultSpec("kill", brokers=[1]), undo=undo).for_seconds(0.0)
    assert begun.wait(SECONDS_MAX)
    waker = threading.Timer(0.05, go_on.set)
    waker.start()
    fault.heal()
    assert undone == [True]
    waker.join()


def test_nobody_waits_for_the_end_of_a_fault_that_was_healed_before(faults: Faults) -> None:
    before = {*threading.enumerate()}
    fault: Fault = faults.add(FaultSpec("freeze", brokers=[1])).for_seconds(3600.0)
    (timer,) = {*threading.enumerate()} - before
    fault.heal()
    timer.join(SECONDS_MAX)
    assert not timer.is_alive()


@pytest.mark.parametrize("brokers", [1, 2, 3])
def test_every_seed_has_a_schedule_whatever_kinds_are_chosen(faults: Faults, brokers: int) -> None:
    faults.cluster.brokers += [cast("Any", SimpleNamespace(node_id=each + 1)) for each in range(brokers)]
    faults.cluster.links = cast("Any", object()) if brokers > 1 else None
    for kinds in (None, *([kind] for kind in CARRIED_OUT if brokers > 1 or kind not in OF_LINKS)):
        for seed in range(40):
            planned = faults.schedule(seed=seed, kinds=kinds).planned
            assert planned and (kinds is None or {each.kind for each in planned} == {*kinds})


def test_a_schedule_of_links_needs_links(faults: Faults) -> None:
    faults.cluster.brokers.append(cast("Any", SimpleNamespace(node_id=1)))
    with pytest.raises(ValueError, match=r"cannot be carried out here: \['split'\]; there are kill, freeze, stop"):
        faults.schedule(kinds=["split"])


def test_a_schedule_tells_of_a_broker_that_does_not_come_back(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails() -> None:
        raise RuntimeError("it does not start")

    faults.cluster.brokers.append(cast("Any", SimpleNamespace(node_id=1, is_starting=False)))
    schedule = faults.schedule(seed=1, seconds=1.0, kinds=["kill"])
    schedule.planned = [dataclasses.replace(each, at=0.0, seconds=0.0) for each in schedule.planned[:1]]
    monkeypatch.setattr(schedule, "_happen", lambda _: faults.add(FaultSpec("kill", brokers=[1]), undo=fails))
    with pytest.raises(RuntimeError, match="does not start"), schedule:
        schedule.wait()


def test_a_schedule_ends_its_own_faults_alone(faults: Faults, monkeypatch: pytest.MonkeyPatch) -> None:
    faults.cluster.brokers.append(cast("Any", SimpleNamespace(node_id=1, is_starting=False)))
    own = faults.observe("Fetch")
    schedule = faults.schedule(seed=1, seconds=1.0, kinds=["clock"])
    schedule.planned = [dataclasses.replace(each, at=0.0, seconds=60.0) for each in schedule.planned[:1]]
    monkeypatch.setattr(schedule, "_happen", lambda _: faults.add(FaultSpec("clock", brokers=[1])))
    begun = threading.Event()
    schedule.put = Signalling(begun)
    with schedule:
        assert begun.wait(SECONDS_MAX)
    (fault,) = schedule.put
    assert fault.spec.is_healed and not own.spec.is_healed


class Signalling(list[Fault]):
    """A list that tells when it has got something."""

    def __init__(self, got: threading.Event) -> None:
        super().__init__()
        self._got = got

    def append(self, fault: Fault) -> None:
        super().append(fault)
        self._got.set()


def test_a_schedule_of_which_nothing_has_happened_has_had_no_effect(faults: Faults) -> None:
    faults.cluster.brokers.append(cast("Any", SimpleNamespace(node_id=1, is_starting=False)))
    schedule = faults.schedule(seed=1, seconds=1000.0, kinds=["clock"])
    with schedule:
        pass  # over before anything has its turn
    with pytest.raises(NeverFired, match=r"schedule of seed 1 \(0 of \d+ put in, the first at"):
        faults.check()
    faults.check()


def test_one_effect_is_enough_for_a_schedule(faults: Faults) -> None:
    faults.cluster.brokers.append(cast("Any", SimpleNamespace(node_id=1, is_starting=False)))
    schedule = faults.schedule(seed=1, seconds=1.0, kinds=["clock"])
    schedule.put += [faults.add(FaultSpec("clock", brokers=[1])) for _ in range(2)]
    faults.happened(schedule.put[0])
    faults.check()


def test_who_is_paused_holds_nobody_up_who_counts(faults: Faults) -> None:
    """A broker that stood still while it counts would keep the lock that all others wait for."""
    observed = faults.observe("Fetch")
    could_count = []
    with subprocess.Popen(["sleep", "60"]) as sleeping:

        def pause() -> None:
            with open(faults.directory.path / f"{observed.number}.fault", "rb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    could_count.append(False)
            sleeping.send_signal(signal.SIGSTOP)

        process = SimpleNamespace(running=True, pid=sleeping.pid, pause=pause, resume=sleeping.kill, is_starting=False)
        faults.cluster.brokers.append(cast("Any", SimpleNamespace(node_id=1, is_starting=False)))
        faults.cluster.broker = lambda _: cast("Any", process)  # type: ignore[method-assign]
        with faults.broker(1).pause() as paused:
            assert could_count == [False] and observed.fired == 0 and paused.fired == 1


def test_a_bit_is_flipped_back_only_where_it_is_still_another_one(faults: Faults, tmp_path: Path) -> None:
    folder = tmp_path / "t-0"
    folder.mkdir()
    log = folder / "0.log"
    log.write_bytes(b"records")
    faults.cluster.brokers.append(cast("Any", SimpleNamespace(node_id=1, is_starting=False)))
    faults.cluster.broker = lambda _: cast("Any", SimpleNamespace(data_dir=tmp_path))  # type: ignore[method-assign]
    disk = faults.broker(1).disk
    with disk.flip_bit("t"):
        assert log.read_bytes() != b"records"
    assert log.read_bytes() == b"records"
    with disk.flip_bit("t"):
        log.write_bytes(b"records")  # the broker has fetched it from another one
    assert log.read_bytes() == b"records"
    with pytest.raises(FileNotFoundError, match="no segment 1 with records"):
        disk.flip_bit("t", segment=1)


def test_a_fault_that_is_added_while_a_broker_starts_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    announce = FaultDirectory.announce

    def add_first(directory: FaultDirectory, name: str, port: int) -> None:
        directory.add(FaultSpec("clock", brokers=[1], amount=60.0))
        directory.tell()
        announce(directory, name, port)

    monkeypatch.setattr(FaultDirectory, "announce", add_first)
    config = BrokerConfig({"node.id": "1", "log.dirs": str(tmp_path), "listeners": "PLAINTEXT://127.0.0.1:0"})
    point = FaultPoint(config, str(tmp_path))

    async def start() -> None:
        point.listeners(config)

    asyncio.run(start())
    assert point.clock.offset_ms == 60_000
