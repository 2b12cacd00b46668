"""What a failing test is told beside its assertion: the brokers' logs of its time, its faults, how to run it again."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from raftlog.testing.faults.faults import SEED_VARIABLE
from raftlog.testing.kafka import Kafka

LINES_MAX = 40
"""Of each broker's log; what is older is in the file."""

_begun: dict[Path, int] = {}
"""By log file: how long it was when the test began."""


def begin(running: Sequence[Kafka]) -> None:
    """A test begins: what is in the logs is not its own, nor are the faults that were made."""
    _begun.clear()
    for kafka in running:
        for file in _logs(kafka):
            _begun[file] = file.stat().st_size if file.exists() else 0
        if (faults := kafka.faults_made) is not None:
            faults.forget()


def sections(running: Sequence[Kafka], test: str) -> list[tuple[str, str]]:
    """Title and text of each, for pytest's report."""
    found = []
    seeds = []
    for kafka in running:
        for file in _logs(kafka):
            if text := _since_begin(file):
                found.append((f"{file.stem} logged", text))
        faults = kafka.faults_made
        if faults is not None and faults.made:
            found.append(("faults", faults.report()))
            seeds.append(faults.seed)
    if seeds:
        again = f"{SEED_VARIABLE}={seeds[0]} python -m pytest {shlex.quote(test)}"
        found.append(("run it again with the same faults", again))
    return found


def _logs(kafka: Kafka) -> list[Path]:
    cluster = kafka.cluster
    return [] if cluster is None else [broker.log_file for broker in cluster.brokers if broker.log_file is not None]


def _since_begin(file: Path) -> str:
    if not file.exists():
        return ""
    with file.open("rb") as opened:
        opened.seek(_begun.get(file, 0))
        lines = opened.read().decode(errors="replace").splitlines()
    left_out = [f"… {len(lines) - LINES_MAX} lines before these"] if len(lines) > LINES_MAX else []
    return "\n".join(left_out + lines[-LINES_MAX:])
