"""Running commands in this process, and names that no other test uses."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli.arguments import BOOTSTRAP_VARIABLE
from raftlog.cli.main import main
from tests.conftest import Broker

_numbers = itertools.count()


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as the one line of JSON it must be."""
        (line,) = self.out.splitlines()
        return json.loads(line)

    @property
    def error(self) -> Any:
        (line,) = self.err.splitlines()
        return json.loads(line)["error"]


Run = Callable[..., Outcome]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """`run("topic", "list", stdin="...")` as the shell would, without a new interpreter each time."""
    monkeypatch.delenv(BOOTSTRAP_VARIABLE, raising=False)

    def run_command(*arguments: str, stdin: str = "") -> Outcome:
        source = tmp_path / "stdin"
        source.write_text(stdin)
        with source.open() as file:
            monkeypatch.setattr("sys.stdin", file)
            capfd.readouterr()
            code = main(list(arguments))
            captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run_command


@pytest.fixture
def on_broker(run: Run, broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run`, with the session's broker as the one that commands talk to."""
    monkeypatch.setenv(BOOTSTRAP_VARIABLE, broker.bootstrap_servers)
    return run


@pytest.fixture
def name() -> str:
    """A name for a topic or a group, used by nobody else."""
    return f"cli-{os.getpid()}-{next(_numbers)}"


@pytest.fixture
def topic(on_broker: Run, name: str) -> str:
    """A topic with three partitions."""
    assert on_broker("topic", "create", name, "-p", "3").code == 0
    return name
