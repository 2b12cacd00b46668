"""`raftlog check`: exit codes, formats, what is printed, and that no input costs more than was allowed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from raftlog.cli.main import main
from tests.linearizability.checker.page.reading import data_of
from tests.paths import HISTORIES, ROOT
from tests.raftlog.cli.conftest import Run

LINEARIZABLE = {"002", "005", "007", "018", "025"}

GOOD = [
    {"type": "invoke", "process": 0, "function": "append", "input": ["a"], "time": 1},
    {"type": "ok", "process": 0, "output": 0, "time": 5},
    {"type": "invoke", "process": 1, "function": "end", "time": 8},
    {"type": "ok", "process": 1, "output": 1, "time": 9},
]
BAD = [*GOOD[:3], {"type": "ok", "process": 1, "output": 0, "time": 9}]


def written(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_a_valid_history_exits_with_0(run: Run, tmp_path: Path) -> None:
    outcome = run("check", written(tmp_path / "good.jsonl", GOOD), "--model", "log")
    assert outcome.code == 0
    assert outcome.out.startswith("VALID") and "explains every answer" in outcome.out


def test_an_invalid_history_exits_with_1_and_shows_the_witness(run: Run, tmp_path: Path) -> None:
    outcome = run("check", written(tmp_path / "bad.jsonl", BAD), "--model", "log")
    assert outcome.code == 1
    told = " ".join(outcome.out.split())
    assert "The end by process 1 returned offset 0 as the end, although the append of offset 0 had been" in told
    assert "├ ✕ end -> 0 ┤" in outcome.out
    assert outcome.err == ""


def test_a_history_that_was_not_kept_is_counted_all_the_same(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path / "good.jsonl", GOOD)
    count = next(part for part in run("check", path, "--model", "log").out.split(", ") if "operation" in part)
    outcome = run("check", path, "--model", "log", "--online")
    assert count in outcome.out and "process" not in outcome.out


def test_json_tells_the_same_on_one_line(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path / "bad.jsonl", BAD)
    outcome = run("check", path, "--model", "log", "--json")
    assert outcome.code == 1
    assert outcome.json["status"] == "invalid" and outcome.json["source"] == path
    witness = outcome.json["witness"]
    documented = {"key", "words", "minimal", "prefix_end", "refused", "operations", "possible"}
    assert witness.keys() == documented and witness["possible"][0].keys() == {"state", "order", "refusals"}
    documented = {"status", "model", "source", "operation_count", "part_count", "seconds", "parts", "witness"}
    assert outcome.json.keys() == documented | {"uncompared"}
    assert witness["minimal"] is True and witness["refused"] == 1
    assert [operation["line"] for operation in witness["operations"]] == [1, 3]
    assert run("check", written(tmp_path / "good.jsonl", GOOD), "--model", "log", "--json").json["status"] == "valid"


def test_of_several_bad_keys_the_one_that_is_bad_first_is_shown(run: Run, tmp_path: Path) -> None:
    operations = [("late", "write", 0), ("early", "write", 2), ("early", "read", 4), ("late", "read", 6)]
    lines: list[dict[str, Any]] = []
    for key, function, time in operations:
        lines.append({"type": "invoke", "process": key, "function": function, "input": 1, "key": key, "time": time})
        lines.append({"type": "ok", "process": key, "output": 5, "time": time + 1})
    path = written(tmp_path / "bad.jsonl", lines)
    told = "The read by process early answered 5"
    for arguments in ((), ("--online",)):
        outcome = run("check", path, "--model", "register", *arguments)
        assert outcome.code == 1
        assert told in outcome.out.splitlines()[1] and "Key early:" in outcome.out
        outcome = run("check", path, "--model", "register", "--json", *arguments)
        assert (outcome.json["witness"]["key"], outcome.json["witness"]["prefix_end"]) == ("early", 5)
        assert outcome.json["uncompared"] == []
    page = tmp_path / "page.html"
    run("check", path, "--model", "register", "--html", str(page))
    data = data_of(page.read_text())
    assert data["parts"][data["open"]]["name"] == "early" and told in data["words"]


def test_text_that_cannot_be_encoded_is_escaped_in_json(run: Run, tmp_path: Path) -> None:
    cas = {"type": "operation", "process": 1, "function": "cas", "input": [1, 2], "output": True}
    path = written(tmp_path / "half.jsonl", [{**cas, "call": 1, "return": 2, "key": "\ud800"}])
    outcome = run("check", path, "--model", "cas-register", "--json")
    assert outcome.code == 1
    assert outcome.json["witness"]["key"] == "\ud800"


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "bad.jsonl:5: not JSON"),
        ('{"type": "ok", "process": 7, "time": 10}', "bad.jsonl:5: a completion without a call: process 7 has nothing"),
        ('{"type": "invoke", "process": 7, "function": "end", "time": 2}', "bad.jsonl:5: time 2 is before 9"),
        ('{"type": "invoke", "process": 7, "function": "pop", "time": 12}', "bad.jsonl:5: 'pop' is no function of"),
        ('{"type": "invoke", "process": 7, "function": "append", "input": 3, "time": 12}', "bad.jsonl:5: append takes"),
    ],
)
def test_an_unreadable_history_exits_with_3_and_names_the_line(
    run: Run, tmp_path: Path, line: str, complaint: str
) -> None:
    path = written(tmp_path / "bad.jsonl", GOOD)
    with open(path, "a") as file:
        file.write(line + "\n")
    for options in ([], ["--online"]):
        outcome = run("check", path, "--model", "log", *options)
        assert outcome.code == 3
        assert complaint in outcome.err and outcome.out == ""
    assert complaint in run("check", path, "--model", "log", "--json").error["message"]


def test_the_readme_shows_what_is_printed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    root = ROOT
    monkeypatch.chdir(root)
    monkeypatch.setenv("COLUMNS", "100")
    shown = (root / "README.md").read_text().partition("$ raftlog check ")[2].partition("\n...\n```")[0]
    command, *lines = shown.splitlines()
    printed = run("check", *command.split()).out.splitlines()
    assert lines[0].partition("checked in")[0] == printed[0].partition("checked in")[0]
    assert lines[1:] == printed[1 : len(lines)]


def test_a_file_that_is_not_there_exits_with_3(run: Run, tmp_path: Path) -> None:
    outcome = run("check", str(tmp_path / "none.jsonl"), "--model", "log")
    assert outcome.code == 3 and "none.jsonl: No such file" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--model", "lgo"], "did you mean log?"),
        (["--model", "log", "--format", "csv"], "jsonl, jepsen, porcupine"),
        (["--model", "log", "--budget-mb", "-1"], "is not a positive number of megabytes"),
        (["--model", "nowhere:Model"], "cannot be loaded"),
        ([], "--model"),
    ],
)
def test_a_wrong_command_line_exits_with_64(run: Run, tmp_path: Path, arguments: list[str], complaint: str) -> None:
    outcome = run("check", written(tmp_path / "good.jsonl", GOOD), *arguments)
    assert outcome.code == 64 and complaint in outcome.err


def test_the_page_is_written_where_asked(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    outcome = run("check", written(tmp_path / "bad.jsonl", BAD), "--model", "log", "--html", str(page))
    assert outcome.code == 1
    text = page.read_text()
    assert text.startswith("<!doctype html>") and "returned offset 0 as the end" in text
    assert "<title>invalid: " in text


@pytest.mark.long
def test_a_page_that_would_take_too_much_memory_shows_the_witness(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    long_one(path, 20_000)
    with path.open("a") as file:
        file.write('{"type": "invoke", "process": "last", "function": "read", "time": 4000000}\n')
        file.write('{"type": "ok", "process": "last", "output": "nobody\'s", "time": 4000001}\n')
    pages = [tmp_path / "whole.html", tmp_path / "witness.html"]
    for page, megabytes in zip(pages, ("500", "12"), strict=True):
        outcome = run("check", str(path), "--model", "register", "--html", str(page), "--budget-mb", megabytes)
        assert outcome.code == 1 and "nobody wrote" in page.read_text()
        assert ("the page has the operations of the witness only: 12 MB" in outcome.err) == (megabytes == "12")
    assert pages[1].stat().st_size < 200_000 < pages[0].stat().st_size


def test_a_model_of_ones_own_is_loaded_by_name(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_models.py").write_text(
        "from raftlog.linearizability.checker.models.log import Log\npartial = Log(complete=False)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    late = [{**line, "output": 7} if "output" in line else line for line in GOOD[:2]]
    path = written(tmp_path / "late.jsonl", late)
    assert run("check", path, "--model", "log").code == 1  # nobody appended offsets 0 to 6
    assert run("check", path, "--model", "my_models:partial").code == 0


BROKEN_MODELS = """
from raftlog.linearizability.checker.model import Model

class Raises(Model):
    name, functions = "raises", frozenset({"append", "end"})
    def initial_state(self): return 0
    def step(self, state, call): raise KeyError("oops")

class Lists(Model):
    name, functions = "lists", frozenset({"append", "end"})
    def initial_state(self): return []
    def step(self, state, call): return [*state, call.input]

class Asks(Model):
    def __init__(self, question): pass
"""


@pytest.mark.parametrize(
    ("model", "code", "complaint"),
    [
        ("broken_models:Raises", 70, "no verdict: KeyError: 'oops'"),
        ("broken_models:Lists", 70, "no verdict: TypeError: unhashable type: 'list'"),
        ("broken_models:Asks", 64, "missing 1 required positional argument"),
        ("unreadable_models:Any", 64, "SyntaxError"),
    ],
)
def test_a_model_that_breaks_does_not_look_like_a_verdict(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, code: int, complaint: str
) -> None:
    (tmp_path / "broken_models.py").write_text(BROKEN_MODELS)
    (tmp_path / "unreadable_models.py").write_text("def (:")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "broken_models", raising=False)
    outcome = run("check", written(tmp_path / "good.jsonl", GOOD), "--model", model)
    assert outcome.code == code and complaint in outcome.err and outcome.out == ""


def test_a_page_that_cannot_be_written_is_told_apart_from_a_file_that_cannot_be_read(run: Run, tmp_path: Path) -> None:
    path = written(tmp_path / "bad.jsonl", BAD)
    outcome = run("check", path, "--model", "log", "--html", str(tmp_path / "none" / "page.html"))
    assert outcome.code == 64 and "there is no directory for the page" in outcome.err and outcome.out == ""
    outcome = run("check", path, "--model", "log", "--html", str(tmp_path))
    assert outcome.code == 73 and outcome.out.startswith("INVALID")


def test_values_that_json_lacks_are_told_as_what_is_like_them(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "sets.edn"
    read = "{:process 1, :type %s, :f :read, :value %s, :time %d}\n"
    path.write_text(read % (":invoke", "nil", 1) + read % (":ok", "#{1 2}", 2))
    outcome = run("check", str(path), "--model", "register", "--format", "jepsen", "--json")
    assert outcome.code == 1
    assert outcome.json["witness"]["operations"][0]["output"] == [1, 2]


def test_numbers_whose_sum_is_too_long_to_be_told_are_refused(run: Run, tmp_path: Path) -> None:
    add = {"type": "operation", "process": 1, "function": "add", "input": 9 * 10**4299, "call": 1, "return": 2}
    outcome = run("check", written(tmp_path / "sum.jsonl", [add]), "--model", "counter")
    assert outcome.code == 3 and "sum.jsonl:1: add takes a number of at most" in outcome.err


def test_the_page_of_a_kafka_history_keeps_to_the_budget_too(run: Run, tmp_path: Path) -> None:
    lines = [{"type": "history"}]
    for number in range(3000):
        send = {"type": "operation", "process": 0, "function": "send", "call": 2 * number, "return": 2 * number + 1}
        ops = [["send", "t-0", "x" * 2000 + str(number)]]
        lines.append({**send, "input": ops, "output": [["send", "t-0", [number, ops[0][2]]]]})
    page = tmp_path / "page.html"
    path = written(tmp_path / "kafka.jsonl", lines)
    outcome = run("check", path, "--model", "kafka", "--html", str(page), "--budget-mb", "3")
    # Whether reading it again or only the page is too much depends on what memory is free from before.
    assert "the page has the operations of the examples only: 3 MB are" in outcome.err
    assert page.stat().st_size < 2_000_000


def test_kafka_histories_have_their_own_analysis(run: Run, tmp_path: Path) -> None:
    lines = [
        {"type": "invoke", "process": 0, "function": "send", "input": {"key": "orders-0", "value": 1}, "time": 1},
    ]
    outcome = run("check", written(tmp_path / "kafka.jsonl", lines), "--model", "kafka", "--json")
    assert outcome.code in (0, 1, 2, 3)
    if outcome.code != 3:
        assert outcome.json["model"] == "kafka"


@pytest.mark.skipif(not HISTORIES.exists(), reason="the recorded histories are not there")
@pytest.mark.parametrize("path", sorted((HISTORIES / "etcd").glob("*.log")), ids=lambda path: path.stem)
def test_verdicts_on_recorded_registers_are_those_that_are_known(run: Run, path: Path) -> None:
    outcome = run("check", str(path), "--model", "cas-register", "--format", "jepsen", "--json")
    expected = "valid" if path.stem[-3:] in LINEARIZABLE else "invalid"
    assert outcome.json["status"] == expected
    assert expected == "valid" or outcome.json["witness"]["minimal"]


@pytest.mark.skipif(not HISTORIES.exists(), reason="the recorded histories are not there")
@pytest.mark.parametrize("path", sorted((HISTORIES / "kv").glob("*.txt")), ids=lambda path: path.stem)
def test_verdicts_on_recorded_key_value_stores_are_those_that_are_known(run: Run, path: Path) -> None:
    outcome = run("check", str(path), "--model", "key-value", "--format", "porcupine", "--json")
    assert outcome.json["status"] == ("valid" if path.stem.endswith("-ok") else "invalid")


def hard(path: Path, count: int) -> str:
    """Enqueues that all overlap, then dequeues that fit no order: too many orders for anybody."""
    lines: list[dict[str, Any]] = [
        {"type": "operation", "process": one, "function": "enqueue", "input": one % 7, "call": 0, "return": 10}
        for one in range(count)
    ]
    lines += [
        {"type": "operation", "process": one, "function": "dequeue", "output": one % 6, "call": 5, "return": 20}
        for one in range(count)
    ]
    return written(path, lines)


def long_one(path: Path, count: int) -> str:
    with path.open("w") as file:
        for one in range(count):
            file.write(json.dumps({"type": "invoke", "process": 0, "function": "write", "input": one, "time": 2 * one}))
            file.write("\n" + json.dumps({"type": "ok", "process": 0, "time": 2 * one + 1}) + "\n")
    return str(path)


PEAK = """
import resource, sys
from raftlog.cli.main import main
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
code = main(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, file=sys.stderr)
"""


@pytest.mark.long
@pytest.mark.parametrize("case", ["hard", "long", "one line", "wide", "wide online", "polls", "far", "online"])
def test_no_input_uses_more_memory_than_its_budget(case: str, tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    budget = 15 if case == "hard" else 40  # a search fills memory slowly
    model, options = "register", ["--budget-mb", str(budget), "--budget-seconds", "300"]
    expected = 2
    if case == "hard":
        hard(path, 40)
        model = "queue"
    elif case == "long":
        long_one(path, 200_000)
    elif case == "one line":
        path.write_text('{"type": "invoke", "process": "' + "x" * 30_000_000)
        expected = 3
    elif case.startswith("wide"):
        path.write_text('{"type": "invoke", "process": 1, "time": 1, "input": [' + "[]," * 4_000_000 + "1]}\n")
        options += ["--online"] * (case == "wide online")
    elif case == "polls":  # few operations, of many records each
        with path.open("w") as file:
            for number in range(50):
                records = [[offset, f"value {offset}"] for offset in range(30_000 * number, 30_000 * number + 30_000)]
                poll = {"process": 1, "function": "poll", "input": [["poll"]], "output": [["poll", {"t-0": records}]]}
                file.write(json.dumps({"type": "operation", "call": number, "return": number, **poll}) + "\n")
        model = "kafka"
    elif case == "far":
        far = [{**line, "output": 10**15} if line.get("output") else line for line in GOOD]
        written(path, far)
        model, expected = "log", 1
    else:
        long_one(path, 100_000)
        options.append("--online")
        expected = 0
    done = subprocess.run(
        [sys.executable, "-c", PEAK, "check", str(path), "--model", model, *options],
        capture_output=True,
        text=True,
        check=False,
    )
    code, kilobytes = map(int, done.stderr.splitlines()[-1].split())
    assert code == expected, done.stdout + done.stderr
    if expected == 2:
        assert "ran out" in done.stdout and "MB" in done.stdout
    overhead = 45_000  # the program itself and the reader's buffers
    assert kilobytes < budget * 1024 + overhead


def test_the_time_budget_is_kept_and_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = hard(tmp_path / "history.jsonl", 60)
    code = main(["check", path, "--model", "queue", "--budget-seconds", "0.5", "--budget-mb", "4000"])
    told = capfd.readouterr().out
    assert code == 2
    assert "0.5 s are over" in " ".join(told.split())
