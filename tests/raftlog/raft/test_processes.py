"""Three nodes in three processes: killed, stopped, and on a machine that has no time for them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.raft import NODES, Process, wait_for_leader
from tests.conftest import FreePort

pytestmark = pytest.mark.long


@pytest.fixture
def processes(tmp_path: Path, free_port: FreePort) -> Iterator[list[Process]]:
    ports = {node: free_port() for node in NODES}
    found = [Process({"node": node, "ports": ports, "directory": str(tmp_path / str(node))}) for node in NODES]
    yield found
    for process in found:
        process.process.kill()
        process.process.wait()


def test_a_killed_leader_has_a_successor_in_less_than_the_time_out(processes: list[Process]) -> None:
    leader, _ = wait_for_leader(processes)
    leader.ask(do="one", seconds=0.1, bytes=10)
    killed = time.monotonic()
    leader.process.send_signal(signal.SIGKILL)
    rest = [process for process in processes if process is not leader]
    successor, at = wait_for_leader(rest)
    assert at - killed < 0.9, "a closed connection says that the leader is gone; its time-out is 1.3 to 1.8 s"
    successor.ask(do="one", seconds=0.1, bytes=10)


def test_a_stopped_leader_is_replaced_and_follows_when_it_goes_on(processes: list[Process]) -> None:
    leader, _ = wait_for_leader(processes)
    leader.process.send_signal(signal.SIGSTOP)
    stopped = time.monotonic()
    rest = [process for process in processes if process is not leader]
    successor, at = wait_for_leader(rest)
    assert 1.0 < at - stopped < 4.0
    leader.process.send_signal(signal.SIGCONT)
    assert leader.read()["leads"] is False
    assert successor.ask(do="one", seconds=0.3, bytes=10)["times"]


def test_a_machine_that_has_no_time_elects_nobody(processes: list[Process]) -> None:
    leader, _ = wait_for_leader(processes)
    term = leader.last["term"]
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(6)]
    try:
        leader.ask(do="one", seconds=3.0, bytes=10)
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    leader.ask(do="one", seconds=0.1, bytes=10)
    assert leader.last["leads"] and leader.last["term"] == term
