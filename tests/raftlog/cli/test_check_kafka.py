"""`raftlog check --model kafka`: what the command line says decides what is an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.raftlog.cli.conftest import Run


def line(kind: str, process: int, time: int, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "process": process, "time": time, **fields}


def written(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


@pytest.fixture
def aborted(tmp_path: Path) -> str:
    """A transaction that failed, and a poll of its value 20 ms later that skips a record its process had not seen."""
    value = ["send", "x", "a"]
    lines = [
        line("invoke", 1, 0, function="txn", input=[value]),
        line("fail", 1, 5, error="aborted"),
        line("invoke", 2, 20_000_000, function="poll", input=[["poll"]]),
        line("ok", 2, 20_000_001, output=[["poll", {"x": [[0, "a"]]}]]),
    ]
    return written(tmp_path / "aborted.jsonl", lines)


def test_the_isolation_level_decides_about_an_aborted_read(run: Run, aborted: str) -> None:
    outcome = run("check", aborted, "--model", "kafka")
    assert outcome.code == 1
    assert "G1a: found once (error, critical)" in outcome.out
    relaxed = run("check", aborted, "--model", "kafka", "--isolation", "read_uncommitted")
    assert relaxed.code == 0
    assert "Found, and allowed here: G1a (1)" in relaxed.out


def test_anomalies_can_be_allowed_and_forbidden(run: Run, aborted: str) -> None:
    assert run("check", aborted, "--model", "kafka", "--allow", "G1a,unseen").code == 0
    outcome = run("check", aborted, "--model", "kafka", "--allow", "G1a", "--json")
    assert outcome.code == 0
    assert outcome.json["anomalies"][0]["judgement"] == "allowed"


def test_a_bound_makes_a_stale_read_an_error(run: Run, tmp_path: Path) -> None:
    lines = [
        line("invoke", 1, 0, function="send", input=[["send", "x", "a"]]),
        line("ok", 1, 5, output=[["send", "x", [0, "a"]]]),
        line("invoke", 2, 6, function="assign", input={"keys": ["x"], "position": "beginning"}),
        line("ok", 2, 7),
        line("invoke", 2, 30_000_000, function="poll", input=[["poll"]]),
        line("ok", 2, 30_000_001, output=[["poll", {}]]),
        line("invoke", 2, 30_000_002, function="poll", input=[["poll"]]),
        line("ok", 2, 30_000_003, output=[["poll", {"x": [[0, "a"]]}]]),
    ]
    path = written(tmp_path / "stale.jsonl", lines)
    assert run("check", path, "--model", "kafka").code == 0
    assert run("check", path, "--model", "kafka", "--max-staleness-ms", "30").code == 0
    outcome = run("check", path, "--model", "kafka", "--max-staleness-ms", "29.9")
    assert outcome.code == 1
    assert "stale-read" in outcome.out


def test_the_other_options_are_understood(run: Run, aborted: str) -> None:
    words = "--subscription-modes assign,subscribe --transactions --group g --exactly-once always"
    words += " --transaction-visibility-ms any --allow G1a"
    assert run("check", aborted, "--model", "kafka", *words.split()).code == 0


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("--model kafka --allow G1b", "no anomaly is called G1b"),
        ("--model kafka --isolation serializable", "isolation is 'serializable'"),
        ("--model kafka --subscription-modes push", "no subscription mode is called push"),
        ("--model kafka --max-staleness-ms soon", "not a number of milliseconds"),
        ("--model kafka --max-staleness-ms=-1", "not a number of milliseconds"),
        ("--model log --online --spark local", "--online and --spark exclude each other"),
        ("--model log --allow G1a", "--allow has no meaning with --model log"),
    ],
)
def test_options_that_make_no_sense_are_usage_errors(run: Run, aborted: str, words: str, complaint: str) -> None:
    outcome = run("check", aborted, *words.split())
    assert outcome.code == 64
    assert complaint in outcome.err
