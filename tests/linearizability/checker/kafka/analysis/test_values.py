"""Values: doubled, replaced, lost, unseen, aborted and read, read and never sent. Each with a near miss."""

from __future__ import annotations

import pytest

from raftlog.linearizability.checker.kafka import Judgement
from tests.linearizability.checker.kafka.story import FAIL, INFO, Story


def test_two_values_at_one_offset_are_inconsistent() -> None:
    story = Story().send(1, "x", "a", 0).send(2, "x", "b", 1).poll(3, {"x": [(0, "a"), (1, "b")]})
    assert story.errors() == []
    story.poll(4, {"x": [(0, "c")]})
    assert story.errors() == ["inconsistent-offsets"]


def test_an_offset_that_an_unknown_send_claims_counts_only_once_it_was_read() -> None:
    """Another value stands where an unknown send's was said to be: a contradiction only if that send happened."""
    story = Story().do(1, "send", [["send", "x", "a"]], [["send", "x", [0, "a"]]], outcome=INFO)
    story.send(2, "x", "b", 0).poll(3, {"x": [(0, "b")]})
    assert story.errors() == []
    story.poll(4, {"x": [(0, "a")]})
    assert "inconsistent-offsets" in story.errors()


def test_offset_zero_answered_on_an_error_path_is_caught() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1).send(1, "x", "c", 0)
    story.poll(2, {"x": [(0, "a"), (1, "b"), (2, "c")]})
    found = story.errors()
    assert "inconsistent-offsets" in found
    assert "duplicate" in found


def test_one_value_at_two_offsets_is_a_duplicate() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 2)
    story.poll(2, {"x": [(0, "a"), (2, "b")]})
    assert story.errors() == []
    duplicated = Story().send(1, "x", "a", 0).send(1, "x", "b", 2)
    duplicated.poll(2, {"x": [(0, "a"), (1, "a"), (2, "b")]})
    assert "duplicate" in duplicated.errors()


def test_the_same_value_in_two_keys_is_no_duplicate() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "y", "a", 5).poll(2, {"x": [(0, "a")], "y": [(5, "a")]})
    assert story.errors() == []


def test_an_acknowledged_value_below_what_was_read_is_lost() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1).send(1, "x", "c", 2)
    story.poll(2, {"x": [(0, "a")]}).poll(3, {"x": [(2, "c")]})
    assert story.errors() == ["lost-write", "unseen"]
    story.poll(4, {"x": [(1, "b")]})
    assert story.errors() == []


def test_an_unknown_send_below_what_was_read_is_not_lost() -> None:
    story = Story().do(1, "send", [["send", "x", "a"]], [["send", "x", [0, "a"]]], outcome=INFO)
    story.send(2, "x", "b", 1).poll(3, {"x": [(1, "b")]})
    assert story.errors() == []


def test_seeing_one_value_of_an_unknown_transaction_makes_the_others_mandatory() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("send", "y", "b", 0), outcome=INFO, partly=True)
    story.send(2, "y", "c", 1).poll(3, {"y": [(1, "c")]})
    assert story.errors() == []
    story.poll(3, {"x": [(0, "a")]})
    assert story.errors() == ["lost-write"]


def test_a_read_by_a_failed_poll_does_not_save_a_lost_value() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1)
    story.poll(2, {"x": [(0, "a"), (1, "b")]}, outcome=FAIL).poll(3, {"x": [(1, "b")]})
    assert story.errors() == ["lost-write", "unseen"]


def test_an_acknowledged_value_behind_all_that_was_read_is_unseen() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1).poll(2, {"x": [(0, "a")]})
    report = story.report()
    assert story.errors() == ["unseen"]
    unseen = report.anomaly("unseen")
    assert unseen is not None
    assert unseen.examples[0].details["part"] == "tail"
    assert report.measurements.unseen["at_end"] == {"x": 1}
    assert story.errors(allow=frozenset({"unseen"})) == []


def test_unknown_and_failed_sends_may_stay_unseen() -> None:
    story = Story().send(1, "x", "a", 0).poll(2, {"x": [(0, "a")]})
    story.send(3, "x", "b", outcome=INFO).send(4, "x", "c", outcome=FAIL)
    assert story.errors() == []


def test_unseen_examples_say_where_in_the_log_they_lie() -> None:
    story = Story()
    for offset in range(6):
        story.send(1, "x", f"v{offset}", offset)
    story.send(1, "x", "somewhere")
    story.poll(2, {"x": [(1, "v1")]}).poll(3, {"x": [(4, "v4")]})
    unseen = story.report().anomaly("unseen")
    assert unseen is not None
    parts = {example.details["value"]: example.details["part"] for example in unseen.examples}
    assert parts == {"v0": "prefix", "v2": "middle", "v3": "middle", "v5": "tail", "somewhere": "unknown"}


def test_at_most_32_unseen_values_of_a_key_are_shown() -> None:
    story = Story()
    for offset in range(50):
        story.send(1, "x", offset, offset)
    story.send(1, "y", "a", 0)
    unseen = story.report().anomaly("unseen")
    assert unseen is not None
    assert unseen.count == 51
    assert len([example for example in unseen.examples if example.key == "x"]) == 32
    assert len([example for example in unseen.examples if example.key == "y"]) == 1


def test_the_number_unseen_is_kept_over_time() -> None:
    story = Story().send(1, "x", "a", 0, at=(0, 10)).send(1, "x", "b", 1, at=(11, 20))
    story.poll(2, {"x": [(0, "a"), (1, "b")]}, at=(90, 100))
    unseen = story.report().measurements.unseen
    assert unseen["total"][5] == 0
    assert unseen["total"][15] == 1
    assert unseen["total"][50] == 2
    assert unseen["total"][-1] == 0


def test_reading_what_failed_is_an_aborted_read() -> None:
    story = Story().send(1, "x", "a", outcome=FAIL, error="NOT_ENOUGH_REPLICAS").poll(2, {})
    assert story.errors() == []
    story.poll(2, {"x": [(0, "a")]})
    assert story.errors() == ["G1a"]
    g1a = story.report().anomaly("G1a")
    assert g1a is not None
    assert "NOT_ENOUGH_REPLICAS" in g1a.examples[0].text


def test_reading_what_is_unknown_is_no_aborted_read() -> None:
    story = Story().send(1, "x", "a", outcome=INFO).poll(2, {"x": [(0, "a")]})
    assert story.errors() == []


def test_a_failed_poll_of_an_aborted_value_is_not_counted() -> None:
    story = Story().send(1, "x", "a", outcome=FAIL).poll(2, {"x": [(0, "a")]}, outcome=FAIL)
    assert story.errors() == []


def test_readers_of_uncommitted_data_may_see_aborted_transactions() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), outcome=FAIL).poll(2, {"x": [(0, "a")]})
    assert story.errors() == ["G1a"]
    assert story.errors(isolation="read_uncommitted") == []
    assert story.allowed(isolation="read_uncommitted") == ["G1a"]


def test_a_consumer_may_name_its_own_isolation_level() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), outcome=FAIL)
    story.do(2, "assign", {"keys": ["x"], "isolation": "read_uncommitted"}).poll(2, {"x": [(0, "a")]})
    assert story.errors() == []
    story.do(3, "assign", {"keys": ["x"]}).poll(3, {"x": [(0, "a")]})
    assert story.errors() == ["G1a"]


def test_a_failed_plain_send_is_an_error_even_for_readers_of_uncommitted_data() -> None:
    story = Story().send(1, "x", "a", outcome=FAIL).poll(2, {"x": [(0, "a")]})
    assert story.errors(isolation="read_uncommitted") == ["G1a"]


def test_sends_outside_txn_can_be_declared_transactions() -> None:
    story = Story().send(1, "x", "a", outcome=FAIL).poll(2, {"x": [(0, "a")]})
    assert story.errors(isolation="read_uncommitted", transactions=True) == []


def test_a_transaction_must_not_poll_what_it_sent() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"x": [(0, "a")]})).poll(2, {"x": [(0, "a")]})
    assert story.errors() == ["precommitted-read"]
    assert story.errors(isolation="read_uncommitted") == []
    assert story.allowed(isolation="read_uncommitted") == ["precommitted-read"]


def test_a_transaction_may_poll_what_an_earlier_one_sent() -> None:
    story = Story().txn(1, ("send", "x", "a", 0)).txn(1, ("send", "x", "b", 2), ("poll", {"x": [(0, "a")]}))
    story.poll(2, {"x": [(0, "a"), (2, "b")]})
    assert story.errors() == []


def test_even_a_failed_transaction_must_not_poll_what_it_sent() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("poll", {"x": [(0, "a")]}), outcome=FAIL, partly=True)
    assert story.errors() == ["precommitted-read"]


def test_a_value_nobody_sent_is_reported_and_can_be_forbidden() -> None:
    story = Story().send(1, "x", "a", 0).poll(2, {"x": [(0, "a"), (1, "garbage")]})
    assert story.errors() == []
    assert story.allowed() == ["unwritten-read"]
    assert story.errors(forbid=frozenset({"unwritten-read"})) == ["unwritten-read"]


def test_a_send_that_begins_after_a_higher_offset_was_acknowledged_must_not_get_a_lower_one() -> None:
    late = Story().send(1, "x", "a", 10, at=(0, 5)).send(2, "x", "b", 5, at=(6, 9))
    late.poll(3, {"x": [(5, "b"), (10, "a")]})
    assert late.errors() == ["realtime-append"]
    overlapping = Story().send(1, "x", "a", 10, at=(0, 5)).send(2, "x", "b", 5, at=(5, 9))
    overlapping.poll(3, {"x": [(5, "b"), (10, "a")]})
    assert overlapping.errors() == []


def test_a_send_must_not_get_an_offset_below_what_was_polled_before_it_began() -> None:
    story = Story().send(1, "x", "a", at=(0, 20)).poll(2, {"x": [(7, "a")]}, at=(1, 3))
    story.send(3, "x", "b", 6, at=(4, 8)).poll(4, {"x": [(6, "b"), (7, "a")]})
    assert story.errors() == ["realtime-append"]


def test_the_most_telling_late_append_comes_first() -> None:
    story = Story().send(1, "x", "a", 100, at=(0, 1))
    story.send(2, "x", "near", 99, at=(2, 3)).send(3, "x", "far", 1, at=(4, 5))
    story.poll(4, {"x": [(1, "far"), (99, "near"), (100, "a")]})
    appends = story.report().anomaly("realtime-append")
    assert appends is not None
    assert appends.judgement is Judgement.ERROR
    assert "'far'" in appends.examples[0].text


@pytest.mark.parametrize("value", [1, True, 1.5, 2**63 - 1, 2**70, -(2**70), "1", None, [1, {"a": 2}]])
def test_a_value_is_told_as_it_was_sent_whatever_it_is(value: object) -> None:
    story = Story().send(1, "x", value, 0).send(1, "x", 7, 1).poll(2, {"x": [(1, 7)]})
    told = story.report().anomaly("lost-write")
    assert told is not None
    found = told.examples[0].details["value"]
    assert (found, type(found)) == (value, type(value))
