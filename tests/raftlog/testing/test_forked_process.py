"""Processes that a fork server starts: what they are given, how their end is told, and who ends with whom."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from raftlog.testing import forked_process
from raftlog.testing.fork_server import Order
from raftlog.testing.forked_process import SERVERS_MAX, ForkedProcess
from raftlog.testing.pids import lives
from tests.waiting import wait_until

MODULE = """
import json, os, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
match options["--do"]:
    case "tell":
        told = [os.getcwd(), os.environ.get("COLOUR"), os.getsid(0) == os.getpid(), sorted(os.listdir("/proc/self/fd"))]
        print(json.dumps(told), flush=True)
    case "leave":
        sys.exit(7)
os.write(int(options["--ready-fd"]), b"ready")
os.read(int(options["--lifeline-fd"]), 1)
"""


class Started:
    """A process that runs MODULE, and the ends of its pipes."""

    def __init__(self, folder: Path, do: str, python: tuple[str, ...] = (sys.executable,)) -> None:
        self.log = folder / "log"
        self.ready, ready = os.pipe()
        lifeline, self.lifeline = os.pipe()
        with self.log.open("wb") as log:
            order = Order("its_module", ["--do", do], [], str(folder), dict(os.environ))
            ends = {"stdout": log.fileno(), "stderr": log.fileno(), "ready": ready, "lifeline": lifeline}
            self.process = ForkedProcess(python, order, **ends)
        for end in (ready, lifeline):
            os.close(end)

    def wait_until_ready(self) -> None:
        assert os.read(self.ready, 5) == b"ready", self.log.read_text()

    def close(self) -> None:
        os.close(self.ready)
        os.close(self.lifeline)
        self.process.wait(10)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "its_module.py").write_text(MODULE)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    yield tmp_path


def server_of(started: Started) -> int:
    stat = Path(f"/proc/{started.process.pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


def test_a_process_has_the_surroundings_of_the_moment_when_it_was_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    servers = []
    for colour in ("red", "blue"):
        monkeypatch.setenv("COLOUR", colour)
        started = Started(folder, "tell")
        started.wait_until_ready()
        servers.append(server_of(started))
        # Standard streams, its two ties, and the descriptor that lists them.
        told = f'["{folder}", "{colour}", true, '
        assert started.log.read_text().startswith(told) and started.log.read_text().count('"') == 4 + 2 * 6
        started.close()
        assert started.process.returncode == 0
    assert servers[0] == servers[1]


def test_how_it_ended_is_told(folder: Path) -> None:
    left, killed = Started(folder, "leave"), Started(folder, "wait")
    assert left.process.wait(10) == 7 == left.process.poll()
    killed.wait_until_ready()
    with pytest.raises(subprocess.TimeoutExpired):
        killed.process.wait(0)
    killed.process.kill()
    assert killed.process.wait(10) == -signal.SIGKILL
    for started in (left, killed):
        started.process.terminate()
        started.close()


def test_a_process_whose_server_was_killed_ends(folder: Path) -> None:
    started = Started(folder, "wait")
    started.wait_until_ready()
    os.kill(server_of(started), signal.SIGKILL)
    assert started.process.wait(10) == -signal.SIGKILL
    wait_until(lambda: not lives(started.process.pid), "it has ended")
    again = Started(folder, "wait")
    again.wait_until_ready()
    for each in (started, again):
        each.close()


def test_what_the_interpreter_reads_at_its_start_has_a_server_of_its_own_and_there_are_few(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    processes = []
    for number in range(SERVERS_MAX + 2):
        monkeypatch.setenv("PYTHON_OF_A_TEST", str(number))
        processes.append(Started(folder, "wait"))
        processes[-1].wait_until_ready()
    servers = {server_of(started) for started in processes}
    assert len(servers) == len(processes) and len(forked_process._servers) == SERVERS_MAX
    for started in processes:
        started.close()
    assert [started.process.returncode for started in processes] == [0] * len(processes)
    wait_until(lambda: sum(map(lives, servers)) == SERVERS_MAX, "servers that are too many end with what they forked")


def test_an_interpreter_that_does_not_start_says_why_in_the_log(folder: Path) -> None:
    started = Started(folder, "wait", (sys.executable, "--no-such-option"))
    with pytest.raises(ChildProcessError, match="no process was started"):
        _ = started.process.pid
    assert "no-such-option" in started.log.read_text()
    started.close()


def test_a_pid_that_another_thread_has_just_heard_is_known(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, hear = Started(folder, "wait"), forked_process.ForkedProcess._hear
    too_late: list[float] = []

    def heard_by_another(self: forked_process.ForkedProcess, timeout: float) -> bool:
        too_late.append(timeout)
        wait_until(lambda: hear(self, timeout) and self._pid is not None, "the server tells it")
        return False

    monkeypatch.setattr(forked_process.ForkedProcess, "_hear", heard_by_another)
    assert lives(started.process.pid) and too_late
    monkeypatch.undo()
    started.close()


def test_an_order_that_was_cut_short_spoils_no_later_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Started(folder, "wait")
    first.wait_until_ready()
    send = forked_process.send

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    def send_half(server: socket.socket, order: Order, descriptors: dict[str, int]) -> None:
        half = MagicMock(wraps=server)
        half.sendmsg, half.sendall = server.sendmsg, stop
        send(half, order, descriptors)

    monkeypatch.setattr(forked_process, "send", send_half)
    with pytest.raises(KeyboardInterrupt):
        Started(folder, "wait")
    monkeypatch.setattr(forked_process, "send", send)
    again = Started(folder, "wait")
    again.wait_until_ready()
    for each in (first, again):
        each.close()
        assert each.process.returncode == 0


PARENT = """
import sys
from pathlib import Path
from tests.raftlog.testing.test_forked_process import Started, server_of

started = Started(Path(sys.argv[1]), "wait")
started.wait_until_ready()
print(started.process.pid, server_of(started), flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kills", [True, False])
def test_servers_and_processes_end_with_who_asked_for_them(folder: Path, kills: bool) -> None:
    command = [sys.executable, "-c", PARENT, str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2 and all(map(lives, pids))
        if kills:
            parent.kill()
        parent.communicate()
    wait_until(lambda: not any(map(lives, pids)), "both have ended")
