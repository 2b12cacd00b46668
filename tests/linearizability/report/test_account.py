"""A run's folder is read, judged and told: what went wrong, when, and under which faults."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from raftlog.cli.main import main
from raftlog.linearizability.checker.verdict import Status
from raftlog.linearizability.report import Account, RunError, account_of, kafka_words, read_run, render_text
from raftlog.linearizability.report.summary import summary_of
from tests.linearizability.report import samples

OPERATIONS = 1_500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return samples.write_run(tmp_path_factory.mktemp("runs") / "broken", OPERATIONS)


@pytest.fixture(scope="module")
def account(folder: Path) -> Account:
    return account_of(read_run(folder))


@pytest.fixture
def clean(tmp_path: Path) -> Path:
    return samples.write_run(tmp_path / "clean", 300, broken=False)


def change(folder: Path, **about: object) -> None:
    file = folder / "run.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **about}))


def test_the_words_say_what_was_lost_when_and_under_which_faults(account: Account) -> None:
    what, when, turn = summary_of(account).split("\n")
    lost = next(told for told in account.told if told.kind.name == "lost-write")
    assert lost.kind.count > 10 and f"{lost.kind.count} acknowledged records were lost" in what
    assert when.startswith("In orders-0 at ")
    assert (
        "partition broker 1 | 2, 3 (20.0 s to 30.0 s) and kill broker 1 (leader of orders-0) (24.0 s to 30.0 s)" in when
    )
    assert "the log end went back from" in turn and "leader 1 → 2, epoch 3 → 4" in turn


def test_each_story_has_the_smallest_witness_and_what_happened_around_it(account: Account) -> None:
    story = account.first
    assert story is not None and story.minimal and len(story.operations) == 2
    assert all(operation in account.run.history.operations for operation in story.operations)
    kinds = [event.kind for event in story.events]
    assert kinds.index("isr") < kinds.index("truncated"), "the ISR shrank before the log was cut"
    assert story.start < story.pivot == next(event.time for event in story.events if event.kind == "truncated")
    assert {"kill", "partition"} == {fault.kind for fault in story.under}
    assert any("unclean election" in line.text for line in story.lines)


def test_the_log_around_the_offset_shows_both_values_and_who_read_which(account: Account) -> None:
    story = account.first
    assert story is not None and story.log is not None
    log = story.log
    assert len(log.values[log.focus]) == 2
    told = [row for row in log.rows if row.operation in story.operations]
    assert len(told) == 2 and {row.cells[log.focus] for row in told} == set(log.values[log.focus])
    final = next(row for row in log.rows if row.operation.process == "final reader")
    assert final.span[0] <= log.focus <= final.span[1] and not final.wrote


def test_a_fault_without_effect_makes_a_good_run_unknown_and_is_named(clean: Path) -> None:
    (clean / "logs" / "client-2.log").write_text("Traceback (most recent call last):\nRuntimeError: broken\n")
    account = account_of(read_run(clean))
    assert account.status is Status.UNKNOWN and not account.errors
    assert [fault.label for fault in account.idle_faults] == ["clock broker 2"]
    text = render_text([account])
    assert "UNKNOWN  clean" in text and "clock broker 2: WITHOUT EFFECT" in text
    assert "What client-2 wrote to its standard error" in text and "RuntimeError: broken" in text


def test_a_valid_run_says_which_of_its_faults_had_no_effect(clean: Path) -> None:
    change(clean, verdict={"status": "valid", "checks": [{"model": "kafka", "options": []}]})
    account = account_of(read_run(clean))
    assert account.status is Status.VALID
    assert summary_of(account).split("\n")[1] == "1 of 4 faults had no effect: clock broker 2."


def test_what_a_killed_run_left_is_told_as_far_as_it_goes(clean: Path) -> None:
    change(clean, status="running", verdict=None)
    faults = (clean / "faults.jsonl").read_text().splitlines()
    (clean / "faults.jsonl").write_text("\n".join(faults[:3]) + '\n{"type": "beg')
    (clean / "samples.jsonl").unlink()
    history = clean / "history.jsonl"
    whole = len(read_run(clean).history)
    history.write_bytes(history.read_bytes()[:-9])
    account = account_of(read_run(clean))
    assert account.status is Status.UNKNOWN and "did not come to its end" in account.reason
    assert len(account.run.history) == whole - 1
    assert [fault.end is None for fault in account.run.faults] == [False, True]
    assert "the run ended before its effect was known" in render_text([account])


def test_a_run_that_was_cut_off_is_judged_as_it_would_have_been(clean: Path) -> None:
    change(clean, verdict=None, check=["--transaction-visibility-ms", "60000"])
    assert kafka_words(read_run(clean)) == ["--transaction-visibility-ms", "60000"]


def test_a_run_in_which_nothing_happened_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "history.jsonl").write_text('{"type": "history", "version": 1, "time_unit": "ns"}\n')
    account = account_of(read_run(tmp_path))
    assert account.status is Status.UNKNOWN and account.first is None
    assert "No error was found in 0 operations" in render_text([account])


def test_what_another_check_found_is_told_beside_it(clean: Path) -> None:
    line = account_of(read_run(clean)).run.history.operations[5].line
    example = {"text": "The balances add up to 90.", "key": None, "operations": [{"line": line}], "details": {}}
    found = {"name": "wrong-total", "definition": "A read shows another sum.", "severity": "critical"}
    bank = {"model": "bank", "anomalies": [{**found, "judgement": "error", "count": 3, "examples": [example]}]}
    change(clean, verdict={"status": "invalid", "reason": "1 kind of error.", "checks": [bank]})
    account = account_of(read_run(clean))
    [told] = account.errors
    assert (told.kind.name, told.kind.model, told.kind.count) == ("wrong-total", "bank", 3)
    assert [operation.line for operation in told.stories[0].operations] == [line]
    assert summary_of(account).startswith("wrong-total 3 times.")


def test_a_history_of_another_model_is_judged_by_it_and_has_its_witness(clean: Path) -> None:
    told = [(0, "add", True, 21), (1, "contains", False, 25)]
    lines = [
        {"type": "operation", "process": process, "function": function, "input": "topic-1", "output": output}
        | {"call": samples.at(time), "return": samples.at(time + 1)}
        for process, function, output, time in told
    ]
    (clean / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert "did not come to its end" in as_cut_off(clean).reason, "before it is judged nobody knows the model"
    change(clean, verdict={"status": "invalid", "checks": [{"model": "set", "options": [], "anomalies": []}]})
    account = account_of(read_run(clean))
    [error] = account.errors
    assert (error.kind.name, error.kind.model) == ("not-linearizable", "set")
    [story] = error.stories
    assert [operation.function for operation in story.operations] == ["add", "contains"]
    assert [fault.kind for fault in story.under] == ["partition", "kill"]
    assert "├ contains('topic-1')" in render_text([account])


def as_cut_off(folder: Path) -> Account:
    change(folder, verdict=None)
    return account_of(read_run(folder))


def test_lines_of_kafka_and_json_logs_are_put_on_the_clock_of_the_history(clean: Path) -> None:
    stamp = "2026-11-23"
    (clean / "logs" / "broker-1.log").write_text(
        f"[{stamp} 12:00:10,250] WARN Shrinking ISR (kafka.cluster.Partition)\njava.io.IOException: no\n\tat x\n"
        f'{{"time": "{stamp}T12:00:11.000Z", "level": "ERROR", "logger": "log", "node": 1, "message": "full"}}\n'
        "no stamp at all\n"
    )
    first, second = [line for line in read_run(clean).logs if line.broker == "1"]
    assert (first.time, first.level) == (samples.at(10.25), "WARN")
    assert first.text.startswith("Shrinking ISR") and first.text.endswith("at x")
    assert (second.time, second.level) == (samples.at(11), "ERROR") and second.text.startswith("log full")


@pytest.mark.parametrize(
    ("file", "content", "reason"),
    [
        ("run.json", "{", "run.json: Expecting"),
        (
            "faults.jsonl",
            '{"type": "end", "number": 9, "time": 5}\n',
            ":1: fault 9 ends without a beginning",
        ),
        ("samples.jsonl", '{"time": "noon"}\n', "samples.jsonl:1: time is no integer"),
        ("samples.jsonl", "{]\n", "samples.jsonl:1:"),
        ("samples.jsonl", '{"time": 5, "partitions": {"a-0": {"isr": [1, "x"]}}}\n', "1: isr[1] is not an integer"),
        ("samples.jsonl", '{"time": 5, "partitions": {"a-0": {"isr": [NaN]}}}\n', "NaN is not JSON"),
        ("faults.jsonl", '{"type": "begin", "number": [1], "time": 5}\n', ":1: number is no integer"),
        ("faults.jsonl", f'{{"type": "begin", "number": 1, "time": {10**400}}}\n', ":1: time is no integer of 64 bits"),
        ("samples.jsonl", '{"time": 5, "rate": 1e999}\n', "samples.jsonl:1: a number is too large"),
        ("samples.jsonl", "[" * 100_000 + "\n", "samples.jsonl:1: maximum recursion depth exceeded"),
        ("run.json", "[" * 100_000, "run.json: maximum recursion depth exceeded"),
        ("run.json", '{"origin": 5, "began": 1e999}', "run.json: a number is too large"),
        ("run.json", '{"verdict": []}', "run.json: verdict is not an object"),
        ("run.json", '{"verdict": {"checks": [{"anomalies": [5]}]}}', "checks[0]: anomalies[0] is not an object"),
        ("run.json", '{"verdict": {"doubts": true}}', "run.json: verdict: doubts is not a list"),
        ("run.json", '{"phases": [{"begin": 1, "end": "later"}]}', "phases[0]: end is not an integer"),
        ("run.json", '{"phases": [null]}', "phases has a null in it"),
    ],
)
def test_a_file_that_makes_no_sense_is_named_with_its_line(clean: Path, file: str, content: str, reason: str) -> None:
    (clean / file).write_text(content)
    with pytest.raises(RunError) as raised:
        read_run(clean)
    assert reason in str(raised.value)


def test_a_text_with_another_end_of_a_line_in_it_is_one_line(clean: Path) -> None:
    (clean / "faults.jsonl").write_text('{"type": "begin", "number": 1, "time": 5, "kind": "a\u2028b"}\n', "utf-8")
    assert [fault.kind for fault in read_run(clean).faults] == ["a\u2028b"]


def test_a_line_of_a_log_with_an_impossible_stamp_belongs_to_the_one_before(clean: Path) -> None:
    change(clean, origin=5, began=10**400)
    assert not read_run(clean).logs, "on no clock that the history could have"
    change(clean, began=0)
    impossible = "2025-99-01 00:00:00,1 ERROR two"
    (clean / "logs" / "broker-1.log").write_text(f"2025-06-01 10:00:00,5 ERROR one\n{impossible}\n")
    assert [line.text for line in read_run(clean).logs if line.broker == "1"] == [f"one\n{impossible}"]


def test_the_text_form_has_lanes_witness_log_lines_and_command(account: Account) -> None:
    text = render_text([account], width=100)
    lines = text.splitlines()
    ruled = [line for line in lines if line.startswith("orders-0 leader")]
    assert ruled and set(ruled[0].split()[-1]) == {"1", "2"}
    assert "The smallest witness: 2 operations" in text
    assert "The log of orders-0 around offset" in text and "final reader read" in text
    assert "ERROR   replica    node=2 orders-0: unclean election" in text
    assert lines[-1] == f"Run it again: {account.run.command}"


def test_the_command_prints_the_text_and_says_what_is_wrong(
    clean: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["report", str(clean)]) == 0
    assert capsys.readouterr().out.startswith("UNKNOWN  clean")
    assert main(["report", str(tmp_path)]) == 3
    assert "is no run of raftlog verify" in capsys.readouterr().err
    assert main(["report", str(clean), str(clean), str(clean)]) == 64
    change(clean, verdict={"status": "valid", "checks": [{"model": "kafka", "options": ["--isolation", "chaos"]}]})
    assert main(["report", str(clean)]) == 3
    assert "options of the check" in capsys.readouterr().err
