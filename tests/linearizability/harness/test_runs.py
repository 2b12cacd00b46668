"""Whole runs on real brokers: the short form of the standard matrix, and losses that must be found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli.main import main


def verify(folder: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """A run's exit code, and what its folder says."""
    code = main(["verify", *arguments, "--output", str(folder)])
    return code, json.loads((folder / "run.json").read_text())


@pytest.mark.long
def test_appended_records_survive_kills_pauses_and_partitions(tmp_path: Path) -> None:
    code, run = verify(
        tmp_path / "run", "--workload", "append", "--fault", "kill,pause,partition", "--time", "9", "--clients", "3"
    )
    assert code == 0, run["verdict"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "faults.jsonl").read_text().splitlines()]
    effective = {line["number"] for line in lines if line["type"] == "end" and line["effect"]}
    assert {line["fault"] for line in lines if line.get("number") in effective and line["type"] == "begin"} == {
        "kill",
        "pause",
        "partition",
    }
    assert run["status"] == "done" and run["verdict"]["status"] == "valid"
    assert run["verdict"]["checks"][0]["measurements"]["operations"]["send"]["ok"] > 20


@pytest.mark.slow
def test_a_leader_that_acknowledges_alone_and_dies_loses_records_and_that_is_found(tmp_path: Path) -> None:
    code, run = verify(tmp_path / "run", "--workload", "append", "--fault", "isr-of-one", "--time", "60", "--seed", "3")
    found = {each["name"] for each in run["verdict"]["checks"][0]["anomalies"] if each["judgement"] == "error"}
    assert code == 1 and found & {"lost-write", "unseen", "inconsistent-offsets"}
