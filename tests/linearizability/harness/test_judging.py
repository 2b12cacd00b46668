"""From a run's folder to its verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from raftlog.linearizability.harness.judge import allowed, judge, judge_money
from raftlog.linearizability.harness.settings import RunSettings
from raftlog.linearizability.harness.workloads.catalogue import WORKLOADS

EXAMPLE = Path(__file__).parent / "example"
"""A short run in which the only in-sync replica died; the report is built on it too."""


def errors(check: dict[str, Any]) -> set[str]:
    return {each["name"] for each in check["anomalies"] if each["judgement"] == "error"}


def history(path: Path, *operations: dict[str, Any]) -> Path:
    lines = [{"type": "operation", "process": 1, "call": at, "return": at + 1, **each} for at, each in
             enumerate(operations)]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_the_example_is_judged_as_it_was_when_it_ran() -> None:
    recorded = json.loads((EXAMPLE / "run.json").read_text())["verdict"]
    again = judge(EXAMPLE / "history.jsonl", WORKLOADS["append"], [])
    assert again["status"] == recorded["status"] == "invalid"
    assert errors(again) == errors(recorded["checks"][0]) and "inconsistent-offsets" in errors(again)


def test_a_transfer_of_which_one_leg_was_read_is_money_lost(tmp_path: Path) -> None:
    whole = {"accounts-0": [[0, "1.1:-5"]], "accounts-1": [[0, "1.1:5"]]}
    torn = {"accounts-0": [[2, "1.2:-7"]]}
    good = judge_money(history(tmp_path / "good", {"function": "poll", "output": [["poll", whole]]}))
    bad = judge_money(
        history(
            tmp_path / "bad",
            {"function": "poll", "output": [["poll", whole]]},
            {"function": "poll", "output": {"ops": [["poll", torn]]}},
        )
    )
    assert (good["status"], good["measurements"]["balance"]) == ("valid", 0)
    assert (bad["status"], bad["measurements"]["balance"]) == ("invalid", -7) and "1.2" in bad["reason"]


def test_what_was_not_read_back_is_no_proof_of_a_loss(tmp_path: Path) -> None:
    sent = {"function": "send", "input": [["send", "a-0", "1"]], "output": [["send", "a-0", [0, "1"]]]}
    path = history(tmp_path / "history.jsonl", sent, {"function": "poll", "output": [["poll", {}]]})
    append, settings = WORKLOADS["append"], RunSettings("append")
    assert errors(judge(path, append, allowed(append, settings, is_read_back=True))) == {"unseen"}
    assert errors(judge(path, append, allowed(append, settings, is_read_back=False))) == set()


def test_a_producer_without_idempotence_may_write_twice_and_one_that_waits_for_the_leader_alone_may_lose() -> None:
    append = WORKLOADS["append"]
    plain = RunSettings("append", options={"idempotence": "false"})
    hasty = RunSettings("append", options={"idempotence": "false", "acks": "1"})
    assert "duplicate" in allowed(append, plain, is_read_back=True)
    assert "lost-write" in allowed(append, hasty, is_read_back=True)
    assert allowed(append, RunSettings("append"), is_read_back=True) == []
