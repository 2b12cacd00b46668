"""A broker as a process of its own, and what becomes of it when whoever started it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from tests.waiting import wait_until

PARENT = """
import sys, time
from raftlog.testing.process import BrokerProcess

broker = BrokerProcess(1, sys.argv[1], log_file=sys.argv[2])
broker.start()
broker.pause()
print(broker.pid, flush=True)
sys.stdin.read()
"""


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # One that has ended and that nobody has collected is no process any more.
    return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_paused_broker_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", PARENT, str(tmp_path / "data"), str(tmp_path / "log")]
    parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert parent.stdout is not None
    broker = int(parent.stdout.readline())
    assert lives(broker)
    parent.send_signal(signal.SIGKILL)
    try:
        wait_until(lambda: not lives(broker), "the broker has ended")
    finally:
        parent.communicate()
        if lives(broker):
            os.kill(broker, signal.SIGKILL)
