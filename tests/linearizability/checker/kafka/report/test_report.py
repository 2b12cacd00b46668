"""What a report says: status, text, JSON, verdict, page; and what it says when a budget ends."""

from __future__ import annotations

import gc
import json
import weakref
from collections.abc import Iterator

import pytest

from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.history import OK, Annotation, History, HistoryError, Operation
from raftlog.linearizability.checker.kafka import CATALOGUE, KafkaOptions, Severity, analyze, page_report
from raftlog.linearizability.checker.kafka.columns.intake import Intake
from raftlog.linearizability.checker.kafka.columns.order import settle
from raftlog.linearizability.checker.kafka.columns.restore import restored
from raftlog.linearizability.checker.kafka.columns.subscriptions import mark_subscriptions
from raftlog.linearizability.checker.kafka.report.describe import describe, keys_of
from raftlog.linearizability.checker.page.html import chunks
from raftlog.linearizability.checker.page.text import render_text
from raftlog.linearizability.checker.verdict import Invalid, Status, Unknown, Valid
from tests.linearizability.checker.kafka.service import Service
from tests.linearizability.checker.kafka.story import INFO, Story


def faulty() -> Story:
    """A late append, and a lost value that weighs more."""
    story = Story().send(1, "x", "a", 10).send(2, "x", "b", 5).send(3, "x", "<i>c</i>", 11).send(3, "x", "d", 12)
    return story.poll(4, {"x": [(5, "b"), (10, "a")]}).poll(5, {"x": [(12, "d")]})


def test_a_report_is_neither_true_nor_false() -> None:
    with pytest.raises(TypeError, match="look at its status"):
        bool(faulty().report())


def test_errors_come_first_and_by_severity() -> None:
    story = faulty().poll(4, {"x": [(10, "a")]})
    report = story.report()
    assert report.status is Status.INVALID
    assert [one.name for one in report.errors] == ["lost-write", "unseen", "realtime-append", "nonmonotonic-poll"]
    severities = [list(Severity).index(one.severity) for one in report.errors]
    assert severities == sorted(severities)


def test_the_text_names_definitions_examples_and_operations() -> None:
    text = faulty().report().text()
    assert text.startswith("INVALID: 3 kinds of error in 6 operations of 5 processes on 1 key (4 records")
    assert CATALOGUE["lost-write"].text in text
    assert "'<i>c</i>' (x, offset 11), sent by process 3's send (line 3), was acknowledged at 0.005 s" in text
    assert "had shown 'a' (x, offset 10) 1 ms before that send began" in text


def test_examples_are_capped_and_the_rest_is_counted() -> None:
    story = Story().send(0, "x", "top", 100, at=(0, 1))
    for number in range(20):
        story.send(1 + number, "x", number, number, at=(2 + number, 900))
    story.poll(99, {"x": [*((number, number) for number in range(20)), (100, "top")]}, at=(901, 902))
    late = story.report().anomaly("realtime-append")
    assert late is not None
    assert (late.count, len(late.examples)) == (20, 8)
    weights = [example.details["known"] - example.details["offset"] for example in late.examples]
    assert weights == sorted(weights, reverse=True)
    assert "… 15 more" in story.report().text()


def test_the_json_form_is_plain() -> None:
    encoded = json.loads(json.dumps(faulty().report().to_json()))
    assert encoded["status"] == "invalid"
    assert encoded["anomalies"][0]["severity"] == "critical"
    assert encoded["anomalies"][0]["examples"][0]["operations"][0]["line"] == 3
    assert encoded["measurements"]["operations"] == {"poll": {"ok": 2}, "send": {"ok": 4}}


def test_a_report_becomes_a_verdict() -> None:
    verdict = faulty().report().verdict
    assert isinstance(verdict, Invalid)
    assert verdict.witness.words.startswith("lost-write: ")
    assert [part.key for part in verdict.parts] == ["lost-write", "unseen", "realtime-append"]
    assert "send x '<i>c</i>' at 11" in {verdict.describe_operation(one) for one in verdict.witness.operations}
    assert isinstance(Story().send(1, "x", "a", 0).poll(2, {"x": [(0, "a")]}).report().verdict, Valid)
    empty = analyze(History.of([])).verdict
    assert isinstance(empty, Unknown)
    assert "no send" in empty.reason


def test_operations_are_made_again_as_they_were() -> None:
    """What is streamed through is not kept; from its columns it is restored whole enough to be analysed again."""
    for mode in ("mixed", "exactly-once"):
        history = Service(5, mode=mode).run(300)
        report = analyze(history)
        intake = Intake(KafkaOptions())
        intake.read(history)
        columns = intake.finish()
        mark_subscriptions(columns, KafkaOptions(), range(len(columns)))
        settle(columns, range(len(columns)))
        again = analyze(History.of([restored(columns, number) for number in range(len(columns))]))
        assert again.status is report.status is Status.VALID
        assert again.measurements.operations == report.measurements.operations
        assert again.measurements.records_polled == report.measurements.records_polled
        assert [one.name for one in again.anomalies] == [one.name for one in report.anomalies]


def test_every_operation_of_a_history_is_described_and_belongs_to_its_keys() -> None:
    history = Service(3, mode="mixed").run(400)
    functions = {operation.function for operation in history}
    assert {"send", "poll", "txn", "join", "commit", "init-producer", "leader"} <= functions
    for operation in history:
        assert describe(operation)
        if operation.function not in ("init-producer",) and operation.output and operation.function != "poll":
            assert keys_of(operation) or operation.function in ("join", "commit")
    odd = history.operations[0]
    odd.input, odd.output, odd.function = {"ops": [5, ["send"]]}, [["poll", 7]], "txn"
    assert describe(odd)
    assert keys_of(odd) == ()


def test_the_page_shows_the_findings_with_their_operations() -> None:
    story = faulty()
    history = story.history()
    history.annotations.append(Annotation("kill", 0, 5))
    report = analyze(history)
    page = page_report(report, history, title="a test")
    assert page.findings[0].title == "lost-write"
    assert page.witness is not None
    assert page.witness.operations[0] in history.operations
    html = "".join(chunks(page))
    assert "lost-write" in html
    assert "<i>c" not in html
    assert "lost-write" in render_text(page)


def test_the_page_of_a_streamed_history_shows_the_operations_of_its_examples() -> None:
    story = faulty()
    report = analyze(iter(story.operations))
    page = page_report(report)
    assert 3 <= len(page.history) <= 6
    assert "".join(chunks(page))
    again = page_report(report, story.history())
    assert len(again.history) == 6
    assert "".join(chunks(again))


def test_allowed_anomalies_are_notes_on_the_page() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("send", "y", "b", 1), at=(0, 9))
    story.txn(2, ("send", "x", "c", 1), ("send", "y", "d", 0), at=(0, 9))
    story.poll(3, {"x": [(0, "a"), (1, "c")], "y": [(0, "d"), (1, "b")]})
    page = page_report(story.report())
    assert page.status is Status.VALID
    assert {(finding.title, finding.severity) for finding in page.findings} == {("G0", "note")}


def test_out_of_time_the_answer_is_unknown_and_says_why() -> None:
    ticks = iter(range(1_000_000))
    options = KafkaOptions(budget=Budget(seconds=2, megabytes=None, clock=lambda: float(next(ticks))))
    report = analyze(Service(1).run(), options)
    assert report.status is Status.UNKNOWN
    assert report.limit == "time"
    assert "2 s are over" in (report.reason or "")
    assert report.anomaly("cycle-search-timeout") is not None


def test_out_of_memory_the_answer_is_unknown_and_says_why() -> None:
    report = analyze(Service(1).run(), KafkaOptions(budget=Budget(megabytes=0.001)))
    assert (report.status, report.limit) == (Status.UNKNOWN, "memory")
    verdict = report.verdict
    assert isinstance(verdict, Unknown)
    assert verdict.limit == "memory"


def test_an_error_found_before_the_budget_ended_is_an_error() -> None:
    """The steps of the cycle search end; what was found before counts."""
    story = faulty().txn(6, ("send", "p", "a", 0), ("poll", {"q": [(0, "b")]}), at=(50, 59))
    story.txn(7, ("send", "q", "b", 0), ("poll", {"p": [(0, "a")]}), at=(50, 59))
    report = story.report(cycle_steps=0)
    assert report.status is Status.INVALID
    assert report.errors[0].name == "lost-write"


def test_cycles_that_uncommitted_reads_may_excuse_are_undecided_without_steps() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 9))
    story.txn(2, ("send", "y", "b", 0), ("poll", {"x": [(0, "a")]}), at=(0, 9))
    report = story.report(cycle_steps=0, isolation="read_uncommitted")
    assert report.status is Status.UNKNOWN
    assert "steps for searching cycles ran out" in (report.reason or "")


def test_real_time_cycles_are_reported_as_existing_without_steps() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"y": [(0, "b")]}), at=(0, 20))
    story.poll(2, {"x": [(0, "a")]}, at=(2, 4)).send(3, "y", "b", 0, at=(6, 8)).poll(4, {"y": [(0, "b")]}, at=(30, 31))
    assert "strong-PL-2-cycle-exists" in story.errors(cycle_steps=0)
    assert "strong-PL-1-cycle-exists" in story.allowed(cycle_steps=0)


def test_options_refuse_what_makes_no_sense() -> None:
    for options, words in (
        ({"allow": frozenset({"lost"})}, "no anomaly is called lost"),
        ({"allow": frozenset({"G0"}), "forbid": frozenset({"G0"})}, "both allowed and forbidden: G0"),
        ({"isolation": "serializable"}, "isolation is 'serializable'"),
        ({"subscription_modes": frozenset({"push"})}, "no subscription mode is called push"),
        ({"max_staleness": -1}, "cannot be negative"),
    ):
        with pytest.raises(ValueError, match=words):
            KafkaOptions(**options)


def test_what_is_allowed_can_be_forbidden_and_the_other_way_round() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("send", "y", "b", 1), at=(0, 9))
    story.txn(2, ("send", "x", "c", 1), ("send", "y", "d", 0), at=(0, 9))
    story.poll(3, {"x": [(0, "a"), (1, "c")], "y": [(0, "d"), (1, "b")]})
    assert story.errors() == []
    assert story.errors(forbid=frozenset({"G0"})) == ["G0"]
    assert faulty().errors(allow=frozenset({"unseen", "lost-write"})) == ["realtime-append"]


def test_causes_of_unknown_outcomes_are_counted() -> None:
    story = Story().send(1, "x", "a", outcome=INFO, error="timeout").send(2, "x", "b", outcome=INFO, error="timeout")
    story.do(3, "crash", outcome=INFO, error="wanted").poll(4, {})
    measured = story.report().measurements
    assert measured.info_causes == {"timeout": 2}
    assert measured.never_ok == ("send",)


class Cyclic:
    """Garbage that only the collector finds."""

    def __init__(self) -> None:
        self.itself = self


def test_while_a_stream_is_read_the_collector_looks_only_at_what_is_new() -> None:
    kept, generations = [], []
    forgotten: list[weakref.ref[Cyclic]] = []

    def stream() -> Iterator[Operation]:
        gc.callbacks.append(note := lambda phase, info: generations.append(info["generation"]))
        for number in range(5_000):
            records = [[10 * number + place, 10 * number + place] for place in range(10)]
            kept.append(Operation(1, "poll", [["poll"]], [["poll", {"x": records}]], None, number, number, OK))
            forgotten.append(weakref.ref(Cyclic()))
            yield kept[-1]
        gc.callbacks.remove(note)

    assert analyze(stream()).measurements.records_polled == 50_000
    assert set(generations) == {1}
    assert forgotten[0]() is None
    assert gc.isenabled()


def test_the_collector_runs_again_after_a_history_that_is_none() -> None:
    with pytest.raises(HistoryError):
        analyze([Operation(1, "push", [], None, None, 0, 1, OK)])
    assert gc.isenabled()
    gc.disable()
    try:
        assert faulty().report().status is Status.INVALID
        assert not gc.isenabled()
    finally:
        gc.enable()
