"""`raftlog fault` against a cluster of `raftlog dev --faults`, as a test in another language uses it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from raftlog.cli.main import main
from raftlog.client import SyncClient
from raftlog.client.core.errors import KafkaError

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def dev() -> Iterator[dict[str, Any]]:
    """What `raftlog dev --faults --json` says. The cluster has a topic "orders"."""
    command = [sys.executable, "-m", "raftlog", "dev", "--faults", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            described = json.loads(process.stdout.readline())
            send(described, "orders")
            yield described
        finally:
            process.terminate()


@pytest.fixture
def fault(
    dev: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Any]:
    """Runs `raftlog fault …`: its exit code, output and complaints."""
    monkeypatch.setenv("RAFTLOG_FAULTS", dev["faults"])
    monkeypatch.setenv("RAFTLOG_BOOTSTRAP_SERVERS", dev["bootstrap_servers"])

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["fault", *words])
        out, err = capsys.readouterr()
        return code, out.strip(), err

    yield run
    main(["fault", "heal"])


def send(dev: dict[str, Any], topic: str) -> int:
    with SyncClient(dev["bootstrap_servers"]) as client, client.producer() as producer:
        return producer.send(topic, b"value").offset


def test_a_fault_of_requests_is_added_waited_for_and_healed(dev: dict[str, Any], fault: Any) -> None:
    code, number, _ = fault("add", "error", "Produce", "NOT_LEADER_OR_FOLLOWER", "--topic", "orders", "--times", "2")
    assert code == 0
    send(dev, "orders")
    assert fault("wait", number, "--fired", "2")[0] == 0
    assert f"{number}  error Produce NOT_LEADER_OR_FOLLOWER topic=orders 2 times      2" in fault("list")[1]
    found = json.loads(fault("heal", number, "--check", "--json")[1])
    assert found[0]["evidence"]["fired"] == 2 and found[0]["ended"] > 0


def test_a_killed_broker_is_started_again_when_it_is_healed(dev: dict[str, Any], fault: Any) -> None:
    at = send(dev, "kept")
    code, number, _ = fault("add", "kill", "--broker", "leader:kept/0")
    assert code == 0 and fault("wait", number)[0] == 0
    assert fault("heal", number)[0::2] == (0, "")
    assert send(dev, "kept") == at + 1


def test_a_paused_broker_is_not_paused_twice_and_its_power_is_not_cut(dev: dict[str, Any], fault: Any) -> None:
    assert fault("add", "freeze", "--broker", "1")[0] == 0
    for kind in ("freeze", "power"):
        code, _, told = fault("add", kind, "--broker", "1")
        assert code == 1 and "broker 1 stands still" in told
    assert fault("heal")[0] == 0 and send(dev, "orders") >= 0


def test_all_brokers_of_a_cluster_come_back_when_they_are_healed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Alone none of them is a majority, and none can serve before another one is started."""
    command = [sys.executable, "-m", "raftlog", "dev", "-n", "3", "--faults", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            described = json.loads(process.stdout.readline())
            monkeypatch.setenv("RAFTLOG_FAULTS", described["faults"])
            assert [main(["fault", "add", "kill", "--broker", each]) for each in ("1", "2", "3")] == [0, 0, 0]
            assert main(["fault", "heal", "--check"]) == 0
            assert send(described, "orders") == 0 and process.poll() is None
        finally:
            process.terminate()


@pytest.mark.parametrize("times", [1, 2])
def test_a_broker_whose_disk_failed_is_started_again_when_it_is_healed(
    dev: dict[str, Any], fault: Any, times: int
) -> None:
    topic = f"synced-{times}"
    with SyncClient(dev["bootstrap_servers"], timeout=0.5) as client:
        client.admin.create_topic(topic, configs={"flush.messages": "1"})
        numbers = [fault("add", "sync-error", "--broker", "1")[1] for _ in range(times)]
        with client.producer() as producer, pytest.raises(KafkaError):
            producer.send(topic, b"value")
    for number in numbers:
        assert fault("wait", number)[0] == 0 and fault("heal", number, "--check")[0] == 0
    assert send(dev, topic) >= 0


def test_a_paused_broker_and_a_cut_link_go_on(dev: dict[str, Any], fault: Any) -> None:
    assert fault("add", "freeze", "--broker", "1")[0] == 0
    _, cut, _ = fault("add", "isolate", "--link", "clients:1")
    assert fault("heal")[0] == 0
    assert send(dev, "orders") >= 0
    code, _, told = fault("heal", cut, "--check")
    assert code == 1 and "without effect: isolate clients>1 1>clients" in told


def test_a_broker_that_is_down_can_neither_be_killed_nor_keep_others_from_being_healed(
    dev: dict[str, Any], fault: Any
) -> None:
    _, cut, _ = fault("add", "isolate", "--link", "clients:1")
    assert fault("add", "freeze", "--broker", "1")[0] == fault("add", "kill", "--broker", "1")[0] == 0
    code, _, told = fault("add", "kill", "--broker", "1")
    assert code == 1 and "broker 1 does not run" in told
    assert fault("heal")[0] == 0
    assert all(spec["ended"] for spec in json.loads(fault("list", "--json")[1]))
    assert send(dev, "orders") >= 0 and cut


def test_a_fault_that_never_fires_ends_the_wait_with_a_code(fault: Any) -> None:
    _, number, _ = fault("add", "disconnect", "EndTxn", "--on-call", "2")
    code, _, told = fault("wait", number, "--timeout", "0.05")
    assert code == 1 and "disconnect EndTxn once from call 2 on" in told


@pytest.mark.parametrize(
    ("words", "advice"),
    [
        (["errr"], "did you mean error?"),
        (["error", "Produse", "NONE"], "did you mean Produce?"),
        (["error", "Produce", "NOT_LEADER"], "there is no error code 'NOT_LEADER'"),
        (["error"], "error of which API?"),
        (["kill"], "give --broker"),
        (["kill", "--broker", "7"], "there is no broker 7"),
        (["cut"], "give --link 1:2"),
        (["cut", "--link", "1-2"], "write 1:2 or clients:1"),
        (["delay", "Fetch", "--probability", "0.5"], "--probability needs --seed"),
        (["kill", "--broker", "leader:orders"], "who is that?"),
        (["kill", "Produce", "--broker", "1"], "kill has no API"),
        (["freeze", "--broker", "1", "--seconds", "2"], "freeze has no --seconds"),
        (["isolate", "--link", "clients:1", "--probability", "0.5"], "isolate has no --probability"),
        (["disconnect", "Fetch", "--on-call", "2", "--link", "clients:1"], "disconnect has no --link"),
        (["delay", "Fetch", "NONE"], "delay has no CODE"),
        (["drop", "--link", "clients:1"], "`cut` loses everything"),
        (["delay", "Fetch"], "above zero"),
        (["isolate", "--link", "1:9"], "there is no broker 9"),
        (["disconnect", "Fetch", "--times", "2", "--always"], "exclude each other"),
        (["error", "Produce", "NONE", "--topic", "orders", "--partition", "99"], "has no partition 99"),
    ],
)
def test_mistakes_are_told_with_advice(fault: Any, words: list[str], advice: str) -> None:
    code, _, told = fault("add", *words)
    assert code != 0 and advice in told


def test_a_cluster_without_faults_says_how_to_start_one(fault: Any, tmp_path: Any) -> None:
    code, _, told = fault("list", "--cluster", str(tmp_path))
    assert code == 1 and "start it with `raftlog dev --faults`" in told
