"""Watermarks, leaders, producer epochs, stale reads. Each anomaly with a near miss."""

from __future__ import annotations

import pytest

from tests.linearizability.checker.kafka.story import FAIL, INFO, Story


@pytest.mark.parametrize(
    ("function", "name"),
    [
        ("high-watermark", "nonmonotonic-high-watermark"),
        ("last-stable-offset", "nonmonotonic-last-stable-offset"),
        ("list-offsets", "nonmonotonic-list-offsets"),
    ],
)
def test_what_only_grows_does_not_go_back(function: str, name: str) -> None:
    story = Story().do(1, function, None, {"x": 5}).do(2, function, None, {"x": 5, "y": 1})
    assert story.errors() == []
    story.do(3, function, None, {"x": 4})
    assert story.errors() == [name]
    overlapping = Story().do(1, function, None, {"x": 5}, at=(0, 5)).do(2, function, None, {"x": 4}, at=(5, 6))
    assert overlapping.errors() == []


def test_different_questions_of_list_offsets_have_nothing_to_do_with_each_other() -> None:
    story = (
        Story().do(1, "list-offsets", {"at": "latest"}, {"x": 9}).do(1, "list-offsets", {"at": "earliest"}, {"x": 2})
    )
    story.do(1, "list-offsets", {"at": 1700000000000}, {"x": 4})
    story.do(1, "list-offsets", {"at": "latest", "isolation": "read_committed"}, {"x": 7})
    assert story.errors() == []
    assert story.do(1, "list-offsets", {"at": 1700000000000}, {"x": 3}).errors() == ["nonmonotonic-list-offsets"]


def test_an_answer_that_failed_or_is_unknown_counts_for_nothing() -> None:
    story = Story().do(1, "high-watermark", None, {"x": 5}).do(1, "high-watermark", None, None, outcome=FAIL)
    story.do(1, "high-watermark", None, {"x": None}).do(1, "high-watermark", None, {"x": -1})
    assert story.errors() == []


def test_a_leader_epoch_has_one_leader() -> None:
    story = Story().do(1, "leader", None, {"x": {"leader": 1, "epoch": 3}, "y": [2, 3]})
    story.do(2, "leader", None, {"x": {"leader": 2, "epoch": 4}}).do(2, "leader", None, {"x": [None, 4]})
    assert story.errors() == []
    assert story.do(3, "leader", None, {"x": [2, 3]}).errors() == ["two-leaders"]


def test_an_older_epoch_succeeds_no_more_once_a_newer_one_is_known() -> None:
    story = Story().do(1, "init-producer", {"producer": "t"}, {"epoch": 0})
    story.txn(1, ("send", "x", "a", 0), producer=("t", 0))
    story.do(2, "init-producer", {"producer": "t"}, {"epoch": 1}).poll(9, {"x": [(0, "a")]})
    assert story.errors() == []
    story.txn(1, ("send", "x", "b", 5), producer=("t", 0), outcome=FAIL)
    story.txn(1, ("send", "x", "c", 6), producer=("t", 0), outcome=INFO)
    assert story.errors() == []
    story.txn(1, ("send", "x", "d", 7), producer=("t", 0)).poll(9, {"x": [(7, "d")]})
    assert story.errors() == ["fenced-producer"]


def test_an_unknown_transaction_of_an_older_epoch_that_is_read_has_succeeded() -> None:
    story = Story().do(2, "init-producer", {"producer": "t"}, {"epoch": 1})
    story.txn(1, ("send", "x", "c", 6), producer=("t", 0), outcome=INFO)
    assert story.errors() == []
    assert story.poll(9, {"x": [(6, "c")]}).errors() == ["fenced-producer"]


def test_a_transaction_that_overlaps_the_fence_may_succeed() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), producer=("t", 0), at=(0, 10))
    story.do(2, "init-producer", {"producer": "t"}, {"epoch": 1}, at=(5, 8)).poll(9, {"x": [(0, "a")]})
    assert story.errors() == []


def test_in_the_log_an_older_epoch_does_not_follow_a_newer_one() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), producer=("t", 0), at=(0, 20))
    story.txn(2, ("send", "x", "b", 1), producer=("t", 1), at=(0, 20)).poll(9, {"x": [(0, "a"), (1, "b")]})
    assert story.errors() == []
    story = Story().txn(1, ("send", "x", "a", 1), producer=("t", 0), at=(0, 20))
    story.txn(2, ("send", "x", "b", 0), producer=("t", 1), at=(0, 20)).poll(9, {"x": [(0, "b"), (1, "a")]})
    assert story.errors() == ["fenced-producer"]


def test_a_new_producer_id_begins_again_with_epoch_zero() -> None:
    story = Story().do(1, "init-producer", {"producer": "t"}, {"producer_id": 7, "epoch": 32766})
    story.do(1, "init-producer", {"producer": "t"}, {"producer_id": 8, "epoch": 0})
    assert story.errors() == []


def test_an_epoch_is_given_out_once() -> None:
    story = Story().do(1, "init-producer", {"producer": "t"}, {"epoch": 3})
    story.do(2, "init-producer", {"producer": "u"}, {"epoch": 3})
    assert story.errors() == []
    assert story.do(3, "init-producer", {"producer": "t"}, {"epoch": 3}, at=(0, 50)).errors() == ["epoch-reused"]


def behind() -> Story:
    """Process 2 has seen offset 0 when it polls at 100 ms; offset 1 was acknowledged at 30 ms."""
    story = Story().send(1, "x", "a", 0, at=(0, 10)).do(2, "assign", ["x"], at=(11, 12))
    story.poll(2, {"x": [(0, "a")]}, at=(13, 14)).send(1, "x", "b", 1, at=(20, 30))
    return story.poll(2, {}, at=(100, 101)).poll(3, {"x": [(0, "a"), (1, "b")]}, at=(110, 111))


def test_the_lag_of_a_poll_is_measured_and_judged_only_by_the_callers_bound() -> None:
    report = behind().report()
    assert report.errors == ()
    assert report.measurements.worst_realtime_lag["lag"] == 70_000_000
    assert report.measurements.realtime_lag["by_process"] == {"2": 70_000_000}
    assert behind().errors(max_staleness=70_000_000) == []
    assert behind().errors(max_staleness=69_999_999) == ["stale-read"]


def test_a_consumer_that_never_receives_anything_is_behind_from_the_beginning() -> None:
    story = (
        Story().send(1, "x", "a", 0, at=(0, 10)).do(2, "assign", {"keys": ["x"], "position": "beginning"}, at=(11, 12))
    )
    story.poll(2, {}, at=(100, 101)).poll(3, {"x": [(0, "a")]}, at=(110, 111))
    assert story.report().measurements.worst_realtime_lag["lag"] == 90_000_000
    assert story.errors(max_staleness=50_000_000) == ["stale-read"]


def test_a_place_that_nobody_said_is_measured_from_the_beginning_and_not_judged() -> None:
    story = Story().send(1, "x", "a", 0, at=(0, 10)).do(2, "assign", ["x"], at=(11, 12))
    story.poll(2, {}, at=(100, 101)).poll(3, {"x": [(0, "a")]}, at=(110, 111))
    assert story.report().measurements.worst_realtime_lag["lag"] == 90_000_000
    assert story.errors(max_staleness=50_000_000) == []


def test_a_subscriber_is_only_behind_in_keys_it_has_received() -> None:
    story = Story().send(1, "x", "a", 0, at=(0, 10)).do(2, "subscribe", ["x"], at=(11, 12))
    story.poll(2, {}, at=(100, 101)).poll(3, {"x": [(0, "a")]}, at=(110, 111))
    assert story.report().measurements.worst_realtime_lag["lag"] == 0


def test_a_key_that_the_first_operation_polls_twice_is_measured_at_that_operation() -> None:
    story = Story().send(1, "k", "a", 0).send(1, "k", "b", 1)
    story.txn(2, ("poll", {"k": [(0, "a")]}), ("poll", {"k": [(1, "b")]}))
    story.send(3, "other", "c", 0, at=(900, 901))
    assert "stale-read" not in story.errors(max_staleness=50_000_000)
    assert story.report().measurements.realtime_lag["by_process"].keys() == {"2"}


def test_a_key_polled_twice_is_not_held_against_the_poll_before_with_what_was_seen_only_now() -> None:
    story = Story().send(1, "k", "a", 0).send(1, "k", "b", 1).send(1, "k", "c", 2).poll(2, {})
    story.txn(2, ("poll", {"k": [(0, "a")]}), ("poll", {"k": [(1, "b")]}), at=(40, 41))
    found = story.report(max_staleness=1).anomaly("stale-read")
    assert found is not None
    assert [example.operations[1].index for example in found.examples] == [4, 4]


def test_a_stale_watermark_is_judged_by_the_callers_bound() -> None:
    story = Story().send(1, "x", "a", 4, at=(0, 10)).poll(2, {"x": [(4, "a")]}, at=(11, 12))
    story.do(3, "high-watermark", None, {"x": 4}, at=(50, 51))
    assert story.errors() == []
    assert story.errors(max_staleness=30_000_000) == ["stale-watermark"]
    assert story.errors(max_staleness=40_000_000) == []
