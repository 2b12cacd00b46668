"""Commands that run while their broker is killed and started again."""

from __future__ import annotations

import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

import pytest

from raftlog.testing import Cluster, cluster
from tests.raftlog.cli.conftest import Run

pytestmark = pytest.mark.long

DEADLINE_SECONDS = 20.0


@pytest.fixture
def brokers() -> Iterator[Cluster]:
    with cluster() as started:
        yield started


def command(brokers: Cluster, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "raftlog", *arguments, "-b", brokers.bootstrap_servers],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def next_line(stream: IO[bytes] | None) -> bytes:
    assert stream is not None
    assert select.select([stream], [], [], DEADLINE_SECONDS)[0], "nothing was printed in time"
    return stream.readline()


def test_a_follower_goes_on_where_it_was_and_ends_quietly_on_ctrl_c(brokers: Cluster, run: Run) -> None:
    server = ["-b", brokers.bootstrap_servers]
    assert run("produce", "t", *server, stdin="before\n").code == 0
    follower = command(brokers, "consume", "t")
    assert next_line(follower.stdout) == b"before\n"
    brokers.brokers[0].restart(kill=True)
    assert run("produce", "t", *server, stdin="after\n").code == 0
    assert next_line(follower.stdout) == b"after\n"
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=DEADLINE_SECONDS)
    assert (follower.returncode, out, err) == (0, b"", b"")


def test_each_line_is_stored_once_when_the_broker_is_killed_between_lines(brokers: Cluster, run: Run) -> None:
    server = ["-b", brokers.bootstrap_servers]
    follower = command(brokers, "consume", "t", "-K", ":") if run("topic", "create", "t", *server).code == 0 else None
    producer = command(brokers, "produce", "t", "--json")
    assert follower is not None and producer.stdin is not None
    for number in range(3):
        producer.stdin.write(b"line %d\n" % number)
        producer.stdin.flush()
        assert next_line(follower.stdout) == b":line %d\n" % number
        brokers.brokers[0].restart(kill=True)
    out, err = producer.communicate(timeout=DEADLINE_SECONDS)
    assert producer.returncode == 0, err
    assert b'"records": 3' in out and b'"last_offset": 2' in out
    follower.terminate()
    follower.communicate(timeout=DEADLINE_SECONDS)
    assert run("consume", "t", "-e", *server).out == "line 0\nline 1\nline 2\n"


def test_a_broker_that_stays_away_is_told_after_the_time_limit(brokers: Cluster, run: Run) -> None:
    assert run("topic", "create", "t", "-b", brokers.bootstrap_servers).code == 0
    follower = command(brokers, "consume", "t", "--timeout", "0.5")
    producer = command(brokers, "produce", "t", "--timeout", "0.5")
    assert producer.stdin is not None
    producer.stdin.write(b"x\n")
    producer.stdin.flush()
    assert next_line(follower.stdout) == b"x\n"
    brokers.brokers[0].kill()
    out, err = follower.communicate(timeout=DEADLINE_SECONDS)
    assert follower.returncode == 1 and out == b"" and b"no broker answers" in err
    _, err = producer.communicate(b"y\n", timeout=DEADLINE_SECONDS)
    assert producer.returncode == 1 and b"no broker answers" in err
