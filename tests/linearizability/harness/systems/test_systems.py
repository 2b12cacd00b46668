"""What the harness does with brokers of its own."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from raftlog.client.core.errors import KafkaError
from raftlog.linearizability.harness.systems import kafka as kafka_system
from raftlog.linearizability.harness.systems.kafka import KafkaSystem
from raftlog.linearizability.harness.systems.raftlog import RaftlogSystem
from raftlog.testing.waiting import NotInTime, wait_until

pytestmark = pytest.mark.long
SECONDS = 60.0


@pytest.fixture
def system(tmp_path: Path) -> Iterator[RaftlogSystem]:
    made = RaftlogSystem(3, {"min.insync.replicas": "2", "default.replication.factor": "3"})
    made.start()
    yield made
    made.stop(tmp_path)


def test_a_broker_that_ended_with_a_damaged_disk_gets_another_one_when_others_have_all(system: RaftlogSystem) -> None:
    kafka = system.kafka
    system.make_topic("t", 1, 3, {})
    kafka.seed("t", ["a", "b", "c"])
    broker = kafka.running.broker(system.leader_of("t", 0))
    broker.stop()
    assert not system.lost_disks(), "it was stopped, and its disk is good"
    file = broker.data_dir / "t-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[-3] ^= 1
    file.write_bytes(data)
    broker.start()
    wait_until(lambda: len(system.partitions("t")[0]["isr"]) == 3, SECONDS, lambda: "it is back")
    system.admin.elect([("t", 0)])
    try:
        kafka.records("t", 3, timeout=SECONDS)
    except (KafkaError, AssertionError):
        pass
    wait_until(lambda: not broker.running, SECONDS, lambda: "it found the damage, and ended")
    assert system.lost_disks() == [broker.node_id]
    effect = wait_until(lambda: system.replace_disk(broker.node_id), SECONDS, lambda: "the others have all that it has")
    assert effect.brokers == [broker.node_id] and not system.lost_disks()
    wait_until(lambda: system.in_sync([1, 2, 3]), SECONDS, lambda: "it has all again")
    assert [record.value for record in kafka.records("t", 3)] == [b"a", b"b", b"c"]


def test_a_disk_that_holds_what_nobody_else_has_is_not_replaced(system: RaftlogSystem) -> None:
    system.make_topic("t", 1, 1, {"min.insync.replicas": "1"})
    system.kafka.seed("t", ["a"])
    broker = system.kafka.running.broker(system.leader_of("t", 0))
    assert system.replace_disk(broker.node_id) is None and broker.running
    assert [record.value for record in system.kafka.records("t", 1)] == [b"a"]


def test_a_broker_whose_power_goes_too_late_is_started_again_at_once(
    system: RaftlogSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(*_: object) -> None:
        raise NotInTime("not within 10 s: broker 2 loses its power")

    monkeypatch.setattr("raftlog.testing.faults.brokers.wait_until", too_late)
    broker = system.kafka.running.broker(2)
    before = broker.pid
    with pytest.raises(NotInTime, match="broker 2 loses its power"):
        system.power_cut(2)
    assert broker.running and broker.pid != before
    assert [fault.spec.is_healed for fault in system.faults.made] == [True]


@pytest.mark.parametrize("stands_still", [True, False])
def test_a_broker_of_kafka_that_hears_no_word_or_obeys_none_is_stopped_all_the_same(
    monkeypatch: pytest.MonkeyPatch, stands_still: bool
) -> None:
    monkeypatch.setattr(kafka_system, "STOP_SECONDS", 5.0 if stands_still else 0.1)
    action = "SIG_DFL" if stands_still else "SIG_IGN"
    code = f"import signal; signal.signal(signal.SIGTERM, signal.{action}); print(flush=True); signal.pause()"
    system = KafkaSystem.__new__(KafkaSystem)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        if stands_still:
            process.send_signal(signal.SIGSTOP)
        system._processes = {1: process}
        try:
            system.stop_broker(1)
        finally:
            process.kill()
        assert process.returncode == (-signal.SIGTERM if stands_still else -signal.SIGKILL)


def test_a_broker_of_kafka_that_ended_by_itself_is_told(tmp_path: Path) -> None:
    system = KafkaSystem.__new__(KafkaSystem)
    system.broker_ids, system._home, system._client = (1, 2), tmp_path, None
    system._data = contextlib.nullcontext(tmp_path)  # type: ignore[assignment]
    codes = {1: "import signal; signal.pause()", 2: "raise SystemExit(9)"}
    system._processes = {broker: subprocess.Popen([sys.executable, "-c", code]) for broker, code in codes.items()}
    system._processes[2].wait()
    assert system.stop(tmp_path) == ["broker 2 has ended, with exit code 9"]
