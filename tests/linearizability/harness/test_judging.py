"""From a run's folder to its verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from raftlog.linearizability.harness.folder import copy_settled
from raftlog.linearizability.harness.judge import Terms, allowed, judge, judge_money, terms_of
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
    again = judge(EXAMPLE / "history.jsonl", WORKLOADS["append"], Terms(0, (), ()))
    assert again["status"] == recorded["status"] == "invalid"
    assert errors(again) == errors(recorded["checks"][0]) and "inconsistent-offsets" in errors(again)


def test_a_transfer_of_which_one_leg_was_read_is_money_lost(tmp_path: Path) -> None:
    whole = {"accounts-0": [[0, "1.1:-5"]], "accounts-1": [[0, "1.1:5"]]}
    torn = {"accounts-0": [[2, "1.2:-7"]]}
    good = judge_money(history(tmp_path / "good", {"function": "poll", "output": [["poll", whole]]}), is_read_back=True)
    path = history(
        tmp_path / "bad",
        {"function": "poll", "output": [["poll", whole]]},
        {"function": "poll", "output": {"ops": [["poll", torn]]}},
    )
    bad = judge_money(path, is_read_back=True)
    assert (good["status"], good["measurements"]["balance"]) == ("valid", 0)
    assert (bad["status"], bad["measurements"]["balance"]) == ("invalid", -7) and "1.2" in bad["reason"]
    assert judge_money(path, is_read_back=False)["status"] == "valid", "the other leg may be where nobody has read"


def test_what_was_not_read_back_is_no_proof_of_a_loss(tmp_path: Path) -> None:
    sent = {"function": "send", "input": [["send", "a-0", "1"]], "output": [["send", "a-0", [0, "1"]]]}
    path = history(tmp_path / "history.jsonl", sent, {"function": "poll", "output": [["poll", {}]]})
    append, settings = WORKLOADS["append"], RunSettings("append")
    for is_read_back, found in ((True, {"unseen"}), (False, set())):
        terms = terms_of(append, settings, is_over=True, is_read_back=is_read_back)
        assert errors(judge(path, append, terms)) == found


def test_a_producer_without_idempotence_may_write_twice_and_one_that_waits_for_the_leader_alone_may_lose() -> None:
    append = WORKLOADS["append"]
    plain = RunSettings("append", options={"idempotence": "false"})
    hasty = RunSettings("append", options={"idempotence": "false", "acks": "1"})
    assert "duplicate" in allowed(append, plain, is_read_back=True)
    assert "lost-write" in allowed(append, hasty, is_read_back=True)
    assert allowed(append, RunSettings("append"), is_read_back=True) == []


def test_the_polls_of_a_record_that_was_written_twice_are_no_error_without_idempotence(tmp_path: Path) -> None:
    sends = [{"function": "send", "input": [["send", "a-0", v]], "output": [["send", "a-0", [at, v]]]} for at, v in
             ((1, "1"), (2, "2"), (4, "3"))]  # fmt: skip
    poll = {"function": "poll", "output": [["poll", {"a-0": [[0, "1"], [1, "1"], [2, "2"], [3, "1"], [4, "3"]]}]]}
    path, append = history(tmp_path / "history.jsonl", *sends, poll), WORKLOADS["append"]
    for options, found in (({}, {"duplicate", "int-nonmonotonic-poll"}), ({"idempotence": "false"}, set[str]())):
        terms = terms_of(append, RunSettings("append", options=options), is_over=True, is_read_back=True)
        assert found <= errors(judge(path, append, terms)) and bool(found) == bool(errors(judge(path, append, terms)))


def test_an_offset_that_a_leader_gave_away_alone_is_given_again_only_without_acks_of_all(tmp_path: Path) -> None:
    sent = [{"function": "send", "input": [["send", "a-0", v]], "output": [["send", "a-0", [0, v]]]} for v in "12"]
    poll = {"function": "poll", "output": [["poll", {"a-0": [[0, "2"]]}]]}
    path, append = history(tmp_path / "history.jsonl", *sent, poll), WORKLOADS["append"]
    plain, hasty = {"idempotence": "false"}, {"idempotence": "false", "acks": "1"}
    for options, is_bad in ((plain, True), (hasty, False)):
        terms = terms_of(append, RunSettings("append", options=options), is_over=True, is_read_back=True)
        assert ("inconsistent-offsets" in errors(judge(path, append, terms))) is is_bad


def test_a_value_that_no_client_sent_is_an_error_once_all_that_was_sent_is_known(tmp_path: Path) -> None:
    poll = {"function": "poll", "output": [["poll", {"a-0": [[0, "1"]]}]]}
    path, append = history(tmp_path / "history.jsonl", poll), WORKLOADS["append"]
    for is_over, found in ((True, {"unwritten-read"}), (False, set())):
        terms = terms_of(append, RunSettings("append"), is_over=is_over, is_read_back=True)
        assert errors(judge(path, append, terms)) == found


def test_what_a_transaction_that_is_under_way_has_read_is_not_lost(tmp_path: Path) -> None:
    def moved(process: int, offset: int) -> dict[str, Any]:
        value, group = f"{offset}", ["commit", "g", {"a-0": offset + 1}]
        output = [["poll", {"a-0": [[offset, value]]}], ["send", "b-0", [offset, f"{value}>"]], group]
        asked = [["poll"], ["send", "b-0", f"{value}>"], group]
        return {"function": "txn", "process": process, "input": asked, "output": output}

    values = [f"{offset}" for offset in range(3)]
    sent = {
        "function": "txn",
        "input": [["send", "a-0", value] for value in values],
        "output": [["send", "a-0", [int(value), value]] for value in values],
    }
    # The one in the middle is committed, and its client does not know yet: a history has what has ended.
    told = [sent, moved(2, 0), moved(4, 2)]
    path, copying = tmp_path / "history.jsonl", WORKLOADS["consume-transform-produce"]
    settings = RunSettings("consume-transform-produce", "pause-client")
    lost = {"lost-write", "consumed-never"}
    for is_over, is_read_back in ((False, False), (True, False), (True, True)):
        terms = terms_of(copying, settings, is_over=is_over, is_read_back=is_read_back)
        assert lost & errors(judge(history(path, *told), copying, terms)) == (lost if is_read_back else set())
        assert not lost & errors(judge(history(path, *told, moved(3, 1)), copying, terms))


@pytest.mark.parametrize(("fault", "seconds", "is_bad"), [("none", 9, False), ("none", 11, True), ("kill", 11, False),
                                                          ("kill", 61, True)])  # fmt: skip
def test_a_transaction_that_stays_visible_in_part_is_torn(
    tmp_path: Path, fault: str, seconds: int, is_bad: bool
) -> None:
    sends = [["send", "a-0", [0, "1"]], ["send", "a-1", [0, "2"]]]
    transaction = {"function": "txn", "input": [["send", "a-0", "1"], ["send", "a-1", "2"]], "output": sends}
    later = {"call": seconds * 10**9, "return": seconds * 10**9 + 1}
    torn = {"function": "poll", "output": [["poll", {"a-0": [[0, "1"]]}, {"a-0": 2, "a-1": 0}]], **later}
    whole = {"function": "poll", "output": [["poll", {"a-0": [[0, "1"]], "a-1": [[0, "2"]]}]], **later}
    path = history(tmp_path / "history.jsonl", transaction, torn, {**whole, "process": 2})
    terms = terms_of(WORKLOADS["bank"], RunSettings("bank", fault), is_over=True, is_read_back=True)
    assert ("torn-transaction" in errors(judge(path, WORKLOADS["bank"], terms))) is is_bad


def test_while_a_run_goes_on_what_has_just_ended_is_not_judged(tmp_path: Path) -> None:
    """A member's poll may be told of later than what another one was answered because of it."""
    groups, settings = WORKLOADS["groups"], RunSettings("groups", "slow-disk")
    sends = [
        {"function": "send", "input": [["send", "a-0", value]], "output": [["send", "a-0", [int(value), value]]]}
        for value in ("0", "1")
    ]
    joined = {"function": "subscribe", "input": {"keys": ["a-0"], "group": "g", "position": "committed"}}
    polls = [{"function": "poll", "output": [["poll", {"a-0": [[offset, f"{offset}"]]}]]} for offset in (0, 1)]
    committed = {"function": "committed", "process": 2, "input": {"group": "g", "keys": ["a-0"]}, "output": {"a-0": 2}}
    whole = history(tmp_path / "whole", *sends, joined, *polls, committed)
    *before, late, after = whole.read_text().splitlines(keepends=True)
    arrived, settled = tmp_path / "arrived", tmp_path / "settled"
    arrived.write_text("".join([*before, after]))
    terms = terms_of(groups, settings, is_over=False, is_read_back=False)
    assert errors(judge(arrived, groups, terms)) == {"commit-past-processed"}
    arrived.write_text(arrived.read_text() + late[:20])
    copy_settled(arrived, settled, json.loads(late)["return"])
    assert settled.read_text() == "".join(before)
    assert not errors(judge(settled, groups, terms)) and not errors(judge(whole, groups, terms))
