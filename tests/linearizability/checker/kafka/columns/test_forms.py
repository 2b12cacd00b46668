"""The forms in which a history may be written, files, and input that is no history."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from raftlog.linearizability.checker.formats.jsonl import write_history
from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, HistoryError, Operation, TimeUnit
from raftlog.linearizability.checker.kafka import KafkaOptions, analyze, check_kafka
from raftlog.linearizability.checker.verdict import Status
from tests.linearizability.checker.kafka.service import Service
from tests.linearizability.checker.kafka.story import Story


def operation(function: str, given: Any, output: Any = None, **more: Any) -> Operation:
    """One operation at the time 0 to 1, of line 7."""
    outcome = more.pop("outcome", OK)
    return Operation(1, function, given, output, None, 0, 1, outcome, None, 0, 7)


def test_keys_have_three_forms_for_the_same_thing() -> None:
    story = Story().send(1, ["orders", 0], "a", 0).send(1, "orders-0", "b", 1)
    story.do(2, "poll", [["poll"]], [["poll", [[["orders", 0], [[0, "a"], [1, "b"]]]]]])
    assert story.report().status is Status.VALID
    assert story.report().measurements.keys == 1
    numbers = Story().send(1, 3, "a", 0).poll(2, {"3": [(0, "a")]})
    assert numbers.report().measurements.keys == 1


def test_values_may_be_anything_that_json_has() -> None:
    story = Story()
    values: list[Any] = [1, "1", 2.5, None, [1, [2]], {"a": 1, "b": [2]}, True]
    for offset, value in enumerate(value for value in values if value is not True):
        story.send(1, "x", value, offset)
    records = [(offset, value) for offset, value in enumerate(values[:-1])]
    assert story.poll(2, {"x": records}).report().status is Status.VALID


def test_an_answer_without_offsets_still_tells_what_was_sent() -> None:
    story = Story().do(1, "send", [["send", "x", "a"]]).do(1, "send", [["send", "x", "b"]], [["send", "x", "b"]])
    assert story.poll(2, {"x": [(0, "a"), (1, "b")]}).errors() == []


def test_minus_one_is_an_offset_that_nobody_knows() -> None:
    story = Story().send(1, "x", "a", -1).send(1, "x", "b", -1)
    assert story.poll(2, {"x": [(0, "a"), (1, "b")]}).errors() == []


def test_a_failed_send_may_be_tried_again() -> None:
    story = Story().send(1, "x", "a", outcome=FAIL).send(1, "x", "a", 0)
    assert story.poll(2, {"x": [(0, "a")]}).errors() == []


@pytest.mark.parametrize(
    ("given", "output"),
    [
        ([["send", "x", "a"]], [["send", "x", [0, "a"]]]),
        ({"ops": [["send", "x", "a"]]}, {"ops": [["send", "x", [0, "a"]]]}),
        ([["send", "x", "a"]], [("send", "x", (0, "a"))]),
        ({"ops": [["send", "x", "a"]], "producer": "p", "epoch": 0}, None),
    ],
)
def test_micro_operations_may_stand_alone_or_in_an_object(given: Any, output: Any) -> None:
    story = Story().do(1, "send", given, output).poll(2, {"x": [(0, "a")]})
    assert story.report().status is Status.VALID
    assert story.report().measurements.records_sent == 1


BAD = [
    (operation("push", []), "no such function"),
    (operation("send", 5), "not a list"),
    (operation("send", [["poll"]]), "not one of the micro-operations"),
    (operation("poll", [["send", "x", 1]]), "not one of the micro-operations"),
    (operation("send", ["send"]), "no micro-operation"),
    (operation("send", [], [["send", "x", [1, 2, 3]]]), "[offset, value]"),
    (operation("send", [["send", 1.5, "a"]], outcome=INFO), "a key is"),
    (operation("send", [["send", True, "a"]], outcome=INFO), "a key is"),
    (operation("poll", [], [["poll", {"x": [[-5, "a"]]}]]), "out of range"),
    (operation("poll", [], [["poll", {"x": [["0", "a"]]}]]), "an offset is"),
    (operation("poll", [], [["poll", {"x": [[0]]}]]), "[offset, value]"),
    (operation("poll", [], [["poll", {"x": 3}]]), "not a list"),
    (operation("poll", [], [["poll", {"x": [[2**63, "a"]]}]]), "out of range"),
    (operation("poll", {"isolation": "serializable"}, []), "isolation is"),
    (operation("poll", {"op": []}, []), "has no field 'op'"),
    (operation("poll", [], [["poll", {}, {"x": "end"}]]), '"end"'),
    (operation("txn", {"ops": [], "producer": "p"}, []), "must come together"),
    (operation("txn", {"ops": [], "producer": "p", "epoch": 70_000}, []), "out of range"),
    (operation("txn", [["commit", "g", {"x": None}]]), "the offset committed"),
    (operation("txn", [["commit", "g", {"x": 1}, {"who": 1}]]), "has no field 'who'"),
    (operation("commit", {"group": "g", "offsets": {"x": None}}), "the offset committed"),
    (operation("commit", {"group": 1.5, "offsets": {}}), '"group"'),
    (operation("commit", {"group": "g", "offsets": 3}), "pairs"),
    (operation("committed", {"group": "g", "topic": 1}, []), "has no field 'topic'"),
    (operation("assign", {"keys": "x"}), "keys is"),
    (operation("subscribe", {"keys": ["x"], "position": "middle"}), "position is"),
    (operation("join", {"group": "g", "protocol": "new"}, {}), "protocol is"),
    (operation("join", {"group": "g"}, {"member": "a", "keys": []}), '"generation"'),
    (operation("init-producer", {"producer": "p"}, {}), "must come together"),
    (operation("leader", None, {"x": 1}), "a leader is"),
    (operation("list-offsets", {"at": []}, {}), '"at"'),
    (operation("seek", {"x": "start"}), "an offset is"),
]


@pytest.mark.parametrize(("bad", "words"), BAD, ids=lambda one: one if isinstance(one, str) else one.function)
def test_what_makes_no_sense_is_named_with_its_line(bad: Operation, words: str) -> None:
    with pytest.raises(HistoryError) as caught:
        analyze([bad])
    assert words in str(caught.value)
    assert caught.value.line == 7
    assert bad.function in str(caught.value)


def test_a_value_sent_twice_is_named_with_both_lines() -> None:
    story = Story().send(1, "x", "a", 0).send(2, "x", "a", 1)
    with pytest.raises(HistoryError, match=r"history:2: .*already sent to x in line 1"):
        story.report()


def test_intervals_that_make_no_sense_are_refused() -> None:
    with pytest.raises(HistoryError, match="makes no sense"):
        analyze([Operation(1, "poll", [], None, None, 5, 4, OK)])
    with pytest.raises(HistoryError, match="no return time"):
        analyze([Operation(1, "poll", [], None, None, 5, None, OK)])
    with pytest.raises(HistoryError, match="64-bit"):
        analyze([Operation(1, "poll", [], None, None, 2**70, 2**70, OK)])


def test_an_empty_history_is_unknown() -> None:
    report = analyze(History.of([]))
    assert report.status is Status.UNKNOWN
    assert "no send" in (report.reason or "")
    assert [one.name for one in report.anomalies] == ["empty-transaction-graph"]
    assert analyze([operation("crash", None, outcome=INFO)]).status is Status.UNKNOWN


@pytest.mark.parametrize("mode", ["mixed", "exactly-once"])
def test_a_file_a_stream_and_a_history_give_the_same_report(mode: str, tmp_path: Path) -> None:
    """The operations of a file lie in the order in which they ended, and carry lines."""
    history = Service(11, mode=mode).run(300)
    stream = io.StringIO()
    write_history(history, stream)
    path = tmp_path / "history.jsonl"
    path.write_text(stream.getvalue())
    told: list[int] = []
    reports = [check_kafka(path, progress=told.append), analyze(history), analyze(reversed(history.operations))]
    first, *others = (report.to_json() for report in reports)
    for other in others:
        for report in (first, other):
            report["measurements"]["worst_realtime_lag"].pop("text", None)
        assert first["status"] == other["status"] == "valid"
        assert first["measurements"] == other["measurements"]
        assert [one["name"] for one in first["anomalies"]] == [one["name"] for one in other["anomalies"]]
        assert [one["count"] for one in first["anomalies"]] == [one["count"] for one in other["anomalies"]]


def test_an_example_of_a_file_names_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "history.jsonl"
    lines = [
        {"type": "invoke", "process": 0, "function": "send", "input": [["send", "x", "a"]], "time": 0},
        {"type": "ok", "process": 0, "output": [["send", "x", [4, "a"]]], "time": 10},
        {"type": "invoke", "process": 1, "function": "send", "input": [["send", "x", "b"]], "time": 20},
        {"type": "ok", "process": 1, "output": [["send", "x", [3, "b"]]], "time": 30},
        {"type": "invoke", "process": 2, "function": "poll", "input": [["poll"]], "time": 40},
        {"type": "ok", "process": 2, "output": [["poll", {"x": [[3, "b"], [4, "a"]]}]], "time": 50},
        {"type": "invoke", "process": 2, "function": "poll", "input": [["poll"]], "time": 60},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    report = check_kafka(path)
    (error,) = report.errors
    assert error.name == "realtime-append"
    assert [one.line for one in error.examples[0].operations][:2] == [1, 3]
    assert report.operation_count == 4
    path.write_text("\n".join([json.dumps(lines[0]), '{"type": "ok", "process": 0, "output": 5, "time": 3}']))
    with pytest.raises(HistoryError, match=r"history\.jsonl:1: send by 0: the output is 5"):
        check_kafka(path)


def test_steps_are_told_as_steps() -> None:
    story = Story().send(1, "x", "a", 4).send(2, "x", "b", 3).poll(3, {"x": [(3, "b"), (4, "a")]})
    history = History.of(story.operations, time_unit=TimeUnit.STEPS)
    text = analyze(history, KafkaOptions()).text()
    assert "steps before that send began" in text
