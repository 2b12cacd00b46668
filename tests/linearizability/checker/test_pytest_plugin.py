"""What a user's test gets: the fixture, the assertion with its witness, and no cost where neither is used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from raftlog.linearizability import Recorder, assert_linearizable
from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.models.register import Register

USERS_TEST = """
from raftlog.linearizability import assert_linearizable
from raftlog.linearizability.checker.models.register import Register


def record(history, wrong):
    history.ok(history.invoke("writer", "write", 1))
    reading = history.invoke("reader", "read")
    history.ok(reading, None if wrong else 1)


def test_good(kafka_history):
    record(kafka_history, wrong=False)
    assert_linearizable(kafka_history, Register())


def test_bad(kafka_history):
    record(kafka_history, wrong=True)
    assert_linearizable(kafka_history, Register())
"""


def python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.long
def test_a_failing_test_prints_the_witness(tmp_path: Path) -> None:
    (tmp_path / "test_users.py").write_text(USERS_TEST)
    plugin = ["-p", "raftlog.testing.pytest_plugin"]
    done = python("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:raftlog", *plugin, folder=tmp_path)
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout
    told = " ".join(done.stdout.replace("\nE", "\n").split())
    assert "The read by process reader answered None, but the register holds 1" in told
    assert "├ 1 write(1) ┤" in done.stdout
    assert "assertions.py" not in done.stdout  # the failure points at the user's line


def test_the_fixture_is_a_recorder(kafka_history: Recorder) -> None:
    kafka_history.ok(kafka_history.invoke(1, "write", 2))
    kafka_history.info(kafka_history.invoke(2, "write", 3))
    kafka_history.ok(kafka_history.invoke(1, "read"), 3)
    assert_linearizable(kafka_history, Register())


def test_an_unknown_verdict_fails_too() -> None:
    lost = [Operation(number, "write", number, call=0, returned=None, outcome=INFO) for number in range(24)]
    reads = [Operation(99, "read", None, number % 24, call=number, returned=number, outcome=OK) for number in range(48)]
    with pytest.raises(AssertionError, match="ran out"):
        assert_linearizable([*lost, *reads], Register(), seconds=0.0)
