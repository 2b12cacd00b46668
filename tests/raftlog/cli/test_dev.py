from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli.dev import welcome, what_the_broker_said
from raftlog.testing import BrokerDied, Cluster, cluster
from raftlog.testing.pids import lives
from raftlog.testing.ports import ReservedPort
from raftlog.testing.process import BrokerProcess
from tests.raftlog.cli.conftest import Run
from tests.waiting import wait_until

DEADLINE_SECONDS = 20.0


class Dev:
    """A running `raftlog dev`."""

    def __init__(self, arguments: tuple[str, ...], directory: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "raftlog", "dev", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            # One that is killed leaves its throw-away directory behind.
            env={**os.environ, "TMPDIR": str(directory)},
        )

    def first_line(self) -> str:
        assert self.process.stdout is not None
        assert select.select([self.process.stdout], [], [], DEADLINE_SECONDS)[0], "no line on standard output"
        return self.process.stdout.readline().decode()

    def end(self, number: int) -> tuple[int, str, str]:
        """Send a signal; exit code, rest of standard output, standard error."""
        self.process.send_signal(number)
        assert self.process.stdout is not None and self.process.stderr is not None
        code = self.process.wait(DEADLINE_SECONDS)
        return code, self.process.stdout.read().decode(), self.process.stderr.read().decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def dev(tmp_path: Path) -> Iterator[Any]:
    """`dev("--json")` starts one; all are gone afterwards."""
    started: list[Dev] = []

    def start(*arguments: str) -> Dev:
        started.append(Dev(arguments, tmp_path))
        return started[-1]

    yield start
    for each in started:
        each.kill()


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_one_line_of_json_when_it_serves_and_a_signal_stops_everything(dev: Any, run: Run, number: int) -> None:
    running = dev("--json")
    described = json.loads(running.first_line())
    (broker,) = described["brokers"]
    assert described["bootstrap_servers"] == broker["address"]
    assert (broker["id"], not lives(broker["pid"])) == (1, False)
    assert broker["command"][1:4] == ["-m", "raftlog", "broker"]
    server = ["-b", described["bootstrap_servers"]]
    assert run("produce", "t", *server, stdin="hello\n").code == 0
    assert run("consume", "t", "-e", *server).out == "hello\n"
    directory = Path(broker["data_dir"])
    assert directory.exists()
    assert running.end(number) == (0, "", "")
    assert not lives(broker["pid"])
    assert not directory.parent.exists()


@pytest.mark.long
def test_what_lies_in_the_current_folder_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    here = tmp_path / "here"
    (here / "raftlog").mkdir(parents=True)
    (here / "raftlog" / "__init__.py").write_text("")
    (here / "queue.py").write_text("raise SystemExit('not the queue of Python')")
    monkeypatch.chdir(here)
    with cluster(directory=tmp_path / "data") as running:
        assert running.brokers[0].running and running.brokers[0].command[1:4] == ["-P", "-m", "raftlog"]
    assert "not the queue" not in capfd.readouterr().err


@pytest.mark.long
def test_the_command_that_is_told_runs_the_same_broker(dev: Any, tmp_path: Path) -> None:
    running = dev("--json", "--data-dir", str(tmp_path), "--set", "num.partitions=2")
    (broker,) = json.loads(running.first_line())["brokers"]
    running.end(signal.SIGTERM)
    by_hand = subprocess.Popen(broker["command"], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    assert by_hand.stderr is not None
    lines: list[bytes] = []
    wait_until(lambda: lines.append(by_hand.stderr.readline()) or b"serving" in lines[-1])
    assert broker["address"].encode() in lines[-1]
    by_hand.terminate()
    by_hand.communicate(timeout=DEADLINE_SECONDS)
    assert by_hand.returncode == 0


@pytest.mark.long
def test_data_in_a_named_directory_is_there_the_next_time(dev: Any, run: Run, tmp_path: Path) -> None:
    first = dev("--json", "--data-dir", str(tmp_path / "kept"))
    address = json.loads(first.first_line())["bootstrap_servers"]
    assert run("produce", "t", "-b", address, stdin="kept\n").code == 0
    assert first.end(signal.SIGINT)[0] == 0
    port = address.rpartition(":")[2]
    second = dev("--json", "--data-dir", str(tmp_path / "kept"), "--port", port)
    assert json.loads(second.first_line())["bootstrap_servers"] == address
    assert run("consume", "t", "-e", "-b", address).out == "kept\n"


@pytest.mark.long
def test_clients_come_in_at_the_port_that_was_asked_for_with_faults_too(dev: Any, run: Run) -> None:
    free = ReservedPort()
    free.release()
    port = free.number
    running = dev("--json", "--faults", "--port", str(port))
    described = json.loads(running.first_line())
    assert described["bootstrap_servers"] == described["brokers"][0]["address"] == f"127.0.0.1:{port}"
    told = run("cluster", "status", "-b", f"127.0.0.1:{port}", "--json").json
    assert [each["address"] for each in told["brokers"]] == [f"127.0.0.1:{port}"]


@pytest.mark.long
def test_people_get_a_table_and_lines_to_copy(dev: Any) -> None:
    running = dev()
    assert running.first_line().startswith("BROKER  ADDRESS ")
    code, out, err = running.end(signal.SIGINT)
    assert code == 0 and "export RAFTLOG_BOOTSTRAP_SERVERS=127.0.0.1:" in out and "Ctrl-C" in out
    assert err == "stopping\n"


@pytest.mark.long
def test_a_broker_that_dies_is_reported_and_the_exit_code_says_so(dev: Any) -> None:
    running = dev("--json")
    (broker,) = json.loads(running.first_line())["brokers"]
    os.kill(broker["pid"], signal.SIGKILL)
    out, err = running.process.communicate(timeout=DEADLINE_SECONDS)
    assert running.process.returncode == 1 and out == b""
    assert f"broker 1 (process {broker['pid']}) was killed by SIGKILL" in err.decode()


@pytest.mark.long
def test_brokers_do_not_outlive_a_parent_that_is_killed(dev: Any) -> None:
    running = dev("--json")
    (broker,) = json.loads(running.first_line())["brokers"]
    running.kill()
    wait_until(lambda: not lives(broker["pid"]))


@pytest.mark.long
def test_a_broker_that_cannot_start_says_why(dev: Any, tmp_path: Path) -> None:
    running = dev("--json", "--set", "num.partitoins=3")
    _, err = running.process.communicate(timeout=DEADLINE_SECONDS)
    assert running.process.returncode == 1
    problem = json.loads(err)["error"]
    assert "num.partitoins" in problem["message"] and "num.partitions" in problem["message"]


@pytest.mark.parametrize("arguments", [["-n", "10"], ["-n", "0"], ["--port", "70000"], ["--port", "x"], ["--set", "a"]])
def test_what_cannot_be_is_refused(run: Run, arguments: list[str]) -> None:
    assert run("dev", *arguments).code == 2


def test_the_brokers_own_complaint_is_passed_on() -> None:
    died = BrokerDied("broker 1 ended; the end of its log:\n12:00 INFO x\nraftlog: no room\n  make room\n")
    assert what_the_broker_said(died) == ("no room", "make room")
    assert what_the_broker_said(BrokerDied("it died")) == ("it died", None)
    message, hint = what_the_broker_said(BrokerDied("it died; the end of its log:\none\ntwo"))
    assert message == "it died" and hint is not None and hint.endswith("one\n  two")


def test_the_welcome_says_when_data_is_thrown_away(tmp_path: Path) -> None:
    brokers = Cluster(1, tmp_path, port=9999)
    brokers.brokers[0].__class__ = FakeProcess
    assert "removed at the end" in welcome(brokers, throw_away=True)
    assert "removed at the end" not in welcome(brokers, throw_away=False)


class FakeProcess(BrokerProcess):
    @property
    def pid(self) -> int:
        return 4711


@pytest.mark.long
def test_a_cluster_for_tests_keeps_its_data_and_its_port_over_kill_9(run: Run) -> None:
    with cluster(settings={"num.partitions": "3"}) as brokers:
        server = ["-b", brokers.bootstrap_servers]
        assert run("produce", "t", *server, stdin="before\n").code == 0
        address = brokers.bootstrap_servers
        brokers.brokers[0].restart(kill=True)
        assert brokers.bootstrap_servers == address
        assert run("consume", "t", "-e", *server).out == "before\n"
        directory = brokers.directory
    assert not directory.exists()


@pytest.mark.long
def test_a_paused_broker_answers_again_when_it_is_resumed(run: Run) -> None:
    with cluster() as brokers:
        server = ["-b", brokers.bootstrap_servers]
        brokers.brokers[0].pause()
        late = run("topic", "list", *server, "--timeout", "0.2")
        assert late.code == 1 and "did not answer" in late.err
        brokers.brokers[0].resume()
        assert run("topic", "list", *server).code == 0


def test_more_brokers_than_there_can_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="1 to 9"):
        Cluster(10, tmp_path)


def test_brokers_of_a_cluster_know_each_other_and_keep_their_ports(tmp_path: Path) -> None:
    first = Cluster(3, tmp_path)
    commands = [broker.command for broker in first.brokers]
    (peers,) = {command[command.index("--peers") + 1] for command in commands}
    assert [peer.partition("@")[0] for peer in peers.split(",")] == ["1", "2", "3"]
    assert len({broker.port for broker in first.brokers} | {0}) == 4
    first.close()
    second = Cluster(3, tmp_path)
    assert peers in second.brokers[0].command
    second.close()


def test_the_ports_of_a_cluster_survive_who_is_killed_while_it_writes_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Cluster(3, tmp_path).close()
    before = json.loads((tmp_path / "ports.json").read_text())

    def half(path: Path, text: str) -> None:
        path.write_bytes(text[: len(text) // 2].encode())
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises(KeyboardInterrupt):
        Cluster(3, tmp_path)
    assert json.loads((tmp_path / "ports.json").read_text()) == before


def test_a_data_directory_that_is_none_is_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = run("dev", "--data-dir", str(tmp_path / "file"))
    assert refused.code == 1 and f"cannot use the data directory {tmp_path}/file: it is no directory" in refused.err
    empty = run("dev", "--data-dir", "")
    assert empty.code == 2 and "--data-dir: it is empty" in empty.err


def test_a_place_for_throw_away_data_that_is_not_there_is_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/no/such/folder")
    refused = run("dev")
    assert refused.code == 1 and "cannot use the data directory /no/such/folder/raftlog-" in refused.err


def test_a_cluster_whose_ports_are_taken_says_so(run: Run, tmp_path: Path) -> None:
    Cluster(3, tmp_path).close()
    port = json.loads((tmp_path / "ports.json").read_text())[0]
    with socket.create_server(("127.0.0.1", port)):
        refused = run("dev", "-n", "3", "--data-dir", str(tmp_path))
    assert refused.code == 1 and "is taken" in refused.err and "--data-dir" in refused.err


def test_a_reserved_port_is_given_to_nobody_else_but_can_be_listened_on() -> None:
    reserved = ReservedPort()
    others = [ReservedPort() for _ in range(50)]
    assert reserved.number not in {other.number for other in others}
    for other in others:
        other.release()
    for _ in range(2):  # a broker, and the one that is started after it was killed
        with socket.socket() as broker:
            broker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            broker.bind(("127.0.0.1", reserved.number))
            broker.listen()
    reserved.release()
