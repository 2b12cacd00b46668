"""A broker as a process of its own, and what becomes of it when whoever started it is gone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.testing.clusters import data_directory
from raftlog.testing.pids import lives
from tests.paths import ROOT
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


LEFT_BEHIND = """
import sys
from raftlog.testing.clusters import data_directory

with data_directory(None) as path:
    (path / "broker-1").mkdir()
    print(path, flush=True)
    sys.stdin.read()
"""


def test_what_a_killed_process_has_left_is_removed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "raftlog-of-somebody").mkdir()
    others = []
    for _ in range(2):
        other = subprocess.Popen([sys.executable, "-c", LEFT_BEHIND], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert other.stdout is not None
        others.append((other, Path(other.stdout.readline().decode().strip())))
    (killed, left), (living, used) = others
    try:
        killed.kill()
        killed.communicate()
        with data_directory(None) as own:
            assert own.is_dir() and used.is_dir() and not left.exists()
        assert not own.exists() and (tmp_path / "raftlog-of-somebody").is_dir()
    finally:
        living.communicate()
    assert not used.exists()


def test_what_is_held_is_left_alone_although_its_process_cannot_be_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a folder that containers share."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with data_directory(None) as first:
        monkeypatch.setattr("raftlog.testing.clusters.lives", lambda _: False)
        with data_directory(None):
            assert first.is_dir()


FORKS = """
import os, sys
from raftlog.testing import forked_process
from raftlog.testing.process import BrokerProcess

broker = BrokerProcess(1, sys.argv[1], log_file=sys.argv[1] + ".log")
broker.start()
broker.pause()
with forked_process._lock:  # as if another thread had just started a broker
    child = os.fork()
if not child:
    other = BrokerProcess(1, sys.argv[1] + "-of-the-child", log_file=sys.argv[1] + ".log")
    other.start()
    other.stop()
    print(broker.pid, os.getpid(), flush=True)
sys.stdin.read()
"""


def test_a_process_forked_from_the_parent_holds_no_broker_and_starts_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FORKS, str(tmp_path / "data")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        broker, child = map(int, parent.stdout.readline().split())
        assert lives(broker)
        parent.kill()
        wait_until(lambda: not lives(broker), "the broker has ended with who started it")
        assert lives(child)


NOWHERE = """
import os, sys
from raftlog.testing.process import BrokerProcess

os.chdir(sys.argv[2])
os.rmdir(sys.argv[2])
broker = BrokerProcess(1, sys.argv[1], log_file=sys.argv[1] + ".log")
broker.start()
sys.exit(broker.stop())
"""


def test_a_broker_starts_where_the_current_directory_was_removed(tmp_path: Path) -> None:
    (tmp_path / "removed").mkdir()
    command = [sys.executable, "-c", NOWHERE, str(tmp_path / "data"), str(tmp_path / "removed")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(ROOT)})
