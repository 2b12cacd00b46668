"""What a campaign on real processes has to show: its canary dies, and what it is about was reached."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raftlog.linearizability.harness import mutants as trials
from raftlog.linearizability.harness.matrix import CANARY, Cell, Matrix
from raftlog.linearizability.harness.mutated import python
from raftlog.linearizability.harness.mutation_report import MARKS, RESULTS, Found, cause, found, table, write
from raftlog.linearizability.harness.properties import ELECTED, OPEN, PROPERTIES, SHRANK, never_reached, reached
from raftlog.linearizability.simulator.catalogue import mutants


def _run(folder: Path, status: str, *, mutant: str = "", reached: dict[str, int] | None = None) -> None:
    folder.mkdir(parents=True)
    error = {"name": "lost-write", "judgement": "error", "examples": [{"text": "x is lost"}]}
    anomalies = [error] if status == "invalid" else []
    checks = [{"status": "valid", "anomalies": anomalies, "operation_count": 1}]
    run: dict[str, Any] = {
        "workload": "append", "fault": "kill", "brokers": 3, "mutant": mutant, "status": "done", "seconds": 30.0,
        "reached": reached or {}, "verdict": {"status": status, "reason": "why", "checks": checks},
        "phases": [{"name": "load", "begin": 0, "end": 6_000_000_000},
                   {"name": "final", "begin": 6_000_000_000, "end": 9_000_000_000}],
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(run))


def test_a_campaign_whose_canary_lives_or_that_came_to_too_little_says_so(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, tmp_path / "none.md", 1.0, [])
    _run(tmp_path / "append-kill-3", "valid", reached=dict.fromkeys(PROPERTIES[1:], 1))
    assert matrix.missing() == ["no canary died", f"never: {ELECTED}"]
    _run(tmp_path / f"canary-{CANARY}", "valid", mutant=CANARY, reached={ELECTED: 1})
    assert matrix.missing() == [f"a canary lives: append with kill {CANARY}", "no canary died"]
    _run(tmp_path / "canary-again", "invalid", mutant=CANARY)
    (tmp_path / f"canary-{CANARY}" / "run.json").unlink()
    assert matrix.missing() == [f"never: {ELECTED}"]


def test_a_canary_that_died_in_an_earlier_campaign_is_none_that_dies_in_this_one(tmp_path: Path) -> None:
    matrix = Matrix(tmp_path, tmp_path / "none.md", 1.0, [])
    _run(tmp_path / f"canary-{CANARY}.earlier-1", "invalid", mutant=CANARY)
    _run(tmp_path / f"canary-{CANARY}", "unknown", mutant=CANARY, reached=dict.fromkeys(PROPERTIES, 1))
    assert matrix.missing() == ["no canary died"]


def test_a_campaign_fails_that_found_an_error_or_has_a_run_without_a_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = Matrix(tmp_path, tmp_path / "none.md", 1.0, [])
    _run(tmp_path / f"canary-{CANARY}", "invalid", mutant=CANARY)
    _run(tmp_path / "append-pause-3", "valid")
    assert matrix.wrong() == []
    _run(tmp_path / "append-kill-3", "invalid")
    assert matrix.wrong() == ["invalid: append with kill, 3 brokers"]
    monkeypatch.setattr("raftlog.linearizability.harness.matrix.verify", lambda *told: "no verdict")
    matrix.do(Cell("bank", "kill", 3))
    assert matrix.wrong()[0] == "no verdict: bank-kill-3"


def test_what_a_run_came_to_is_read_from_its_folder(tmp_path: Path) -> None:
    def sample(time: int, leader: int, isr: list[int], stable: int) -> str:
        partition = {"leader": leader, "isr": isr, "last_stable": stable, "high_watermark": 9}
        return json.dumps({"time": time, "partitions": {"t-0": partition}, "quorum": None}) + "\n"

    (tmp_path / "samples.jsonl").write_text(sample(10, 1, [1, 2], 9) + sample(20, 2, [2], 8))
    operation = {"type": "operation", "function": "send", "call": 12, "return": 30, "input": [["send", "t-0", "v"]]}
    (tmp_path / "history.jsonl").write_text(json.dumps(operation) + "\n")
    counts = reached(tmp_path)
    assert (counts[ELECTED], counts[SHRANK], counts[OPEN]) == (1, 1, 1)
    assert ELECTED not in never_reached([{"reached": counts}])


def test_each_mutant_has_a_run_that_should_show_it_or_a_reason_why_none_can() -> None:
    assert set(trials.TRIALS) | set(trials.ONLY_SIMULATED) == set(mutants())
    assert not set(trials.TRIALS) & set(trials.ONLY_SIMULATED)
    assert all(trials.ONLY_SIMULATED.values()) and set(trials.SELDOM) <= set(trials.TRIALS)


def test_a_mutant_that_only_made_a_run_unknown_counts_if_the_same_run_is_valid_without_it(tmp_path: Path) -> None:
    trial = trials.TRIALS["lso-off-by-one"]
    _run(tmp_path / "lso-off-by-one" / "0", "unknown", mutant="lso-off-by-one")
    assert cause(json.loads((tmp_path / "lso-off-by-one" / "0" / "run.json").read_text()))[0] == "unknown"
    seen = found("lso-off-by-one", tmp_path)
    assert seen is not None
    assert not seen.by
    _run(tmp_path / "none" / f"{trial.key}-0", "valid")
    seen = found("lso-off-by-one", tmp_path)
    assert seen is not None
    assert (seen.by, seen.seconds) == ("unknown", 6.0)
    assert "| 6 s, transactions with none | unknown: " in table({"lso-off-by-one": seen})


def test_what_earlier_runs_found_of_a_mutant_stays_in_the_table_when_their_folders_are_gone(tmp_path: Path) -> None:
    document = tmp_path / "VERIFICATION.md"
    document.write_text("Above.\n" + MARKS[0] + MARKS[1] + "\nBelow.\n")
    _run(tmp_path / "here" / "isr-of-one" / "0", "invalid", mutant="isr-of-one")
    write(tmp_path / "here", document)
    _run(tmp_path / "elsewhere" / "lso-off-by-one" / "0", "invalid", mutant="lso-off-by-one")
    write(tmp_path / "elsewhere", document)
    text = document.read_text()
    assert "2 of them noticed by real processes too" in text
    assert text.startswith("Above.\n")
    assert text.endswith("\nBelow.\n")
    assert sorted(json.loads((tmp_path / RESULTS).read_text())) == ["isr-of-one", "lso-off-by-one"]


def test_the_table_of_mutants_says_what_is_in_the_results() -> None:
    docs = Path(__file__).parents[3] / "docs"
    kept = {name: Found(**each) for name, each in json.loads((docs / RESULTS).read_text()).items()}
    assert set(kept) <= set(trials.TRIALS)
    assert MARKS[0] + table(kept) + MARKS[1] in (docs / "VERIFICATION.md").read_text()


def test_a_process_that_is_started_with_a_mutant_has_it() -> None:
    code = (
        "from raftlog.broker.core.log.producers import ProducerStates\n"
        "raise SystemExit(ProducerStates.check.__name__ == '<lambda>')\n"
    )
    module = "tests.linearizability.harness.example"
    words = [sys.executable, "-c", f"import sys; sys.argv = ['', 'NAME', '-m', '{module}']\n{code}"]
    assert subprocess.run(words, check=False).returncode == 0
    inner = "import runpy; runpy.run_module = lambda *a, **b: exec(code)\n"
    patched = (
        f"code = {code!r}\n{inner}"
        "from raftlog.linearizability.harness.mutated import main\n"
        f"main(['producers-not-compared', '-m', '{module}'])\n"
    )
    assert subprocess.run([sys.executable, "-c", patched], check=False).returncode == 1
    assert python("") == [sys.executable]
