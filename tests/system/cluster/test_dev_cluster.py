"""`raftlog dev -n 3`: one line when it serves; a broker that is killed stays down until it is started by hand."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

from raftlog.testing.pids import lives
from tests.raftlog.cli.conftest import Run
from tests.raftlog.cli.conftest import run as in_process
from tests.raftlog.cli.test_dev import dev as started
from tests.waiting import wait_until

run = in_process  # fixtures
dev = started


def test_three_brokers_of_which_one_is_killed_and_started_by_hand(dev: Any, run: Run, tmp_path: Path) -> None:
    running = dev("-n", "3", "--json")
    described = json.loads(running.first_line())
    brokers = described["brokers"]
    assert [broker["id"] for broker in brokers] == [1, 2, 3]
    assert described["bootstrap_servers"] == ",".join(broker["address"] for broker in brokers)
    server = ["-b", described["bootstrap_servers"]]
    assert run("topic", "create", "t", *server).out == "t created with 1 partition and 3 replicas\n"
    assert run("produce", "t", *server, stdin="before\n").code == 0
    victim = brokers[1]
    os.kill(victim["pid"], signal.SIGKILL)
    wait_until(lambda: not lives(victim["pid"]), "it is dead")
    assert run("produce", "t", *server, stdin="without it\n").code == 0

    def fenced() -> list[int]:
        found = run("cluster", "status", "--json", *server).json["brokers"]
        return [broker["id"] for broker in found if broker["fenced"]]

    wait_until(lambda: fenced() == [2], "it stays down")
    by_hand = subprocess.Popen(victim["command"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: fenced() == [], "it is back")
        assert run("consume", "t", "-e", "-b", victim["address"]).out == "before\nwithout it\n"
    finally:
        by_hand.terminate()
        assert by_hand.wait(20) == 0
    code, out, err = running.end(signal.SIGINT)
    assert (code, out) == (0, "") and "broker 2" in err and "SIGKILL" in err
