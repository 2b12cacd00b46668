"""The order in which one operation and one process sees and fills a key. Each anomaly with a near miss."""

from __future__ import annotations

from typing import Any

from raftlog.linearizability.checker.kafka import Judgement, analyze
from tests.linearizability.checker.kafka.story import FAIL, INFO, Story, names


def five(**options: Any) -> Story:
    """Five records in x, read by process 9 from the beginning."""
    story = Story(**options)
    for offset in range(5):
        story.send(1, "x", f"v{offset}", offset)
    return story.poll(9, {"x": [(offset, f"v{offset}") for offset in range(5)]})


def test_a_skip_inside_one_poll() -> None:
    assert five().poll(2, {"x": [(0, "v0"), (1, "v1")]}).errors() == []
    assert five().poll(2, {"x": [(0, "v0"), (2, "v2")]}).errors() == ["int-poll-skip"]


def test_offsets_without_a_record_are_no_skip() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 7).poll(2, {"x": [(0, "a"), (7, "b")]})
    assert story.errors() == []


def test_a_skip_between_two_polls_of_one_transaction() -> None:
    whole = ("poll", {"x": [(0, "v0")]}), ("poll", {"x": [(1, "v1")]})
    torn = ("poll", {"x": [(0, "v0")]}), ("poll", {"x": [(2, "v2")]})
    assert five().txn(2, *whole).errors() == []
    assert five().txn(2, *torn).errors() == ["int-poll-skip"]


def test_a_skip_between_two_polls_of_one_poll_operation() -> None:
    answer = [["poll", {"x": [[0, "v0"]]}], ["poll", {"x": [[2, "v2"]]}]]
    assert five().do(2, "poll", [["poll"], ["poll"]], answer).errors() == ["int-poll-skip"]


def test_going_back_inside_one_poll() -> None:
    assert five().poll(2, {"x": [(1, "v1"), (0, "v0")]}).errors() == ["int-nonmonotonic-poll"]
    assert five().poll(2, {"x": [(1, "v1"), (1, "v1")]}).errors() == ["int-nonmonotonic-poll"]


def test_the_inside_of_failed_and_unknown_polls_counts_too() -> None:
    assert five().poll(2, {"x": [(0, "v0"), (2, "v2")]}, outcome=FAIL).errors() == ["int-poll-skip"]
    assert five().poll(2, {"x": [(1, "v1"), (0, "v0")]}, outcome=INFO).errors() == ["int-nonmonotonic-poll"]


def test_a_rebalance_during_the_operation_excuses_its_keys_and_no_others() -> None:
    assert five().poll(2, {"x": [(0, "v0"), (2, "v2")]}, rebalance=["x"]).errors() == []
    assert five().poll(2, {"x": [(2, "v2"), (0, "v0")]}, rebalance=[["revoked", ["x"]]]).errors() == []
    assert five().poll(2, {"x": [(0, "v0"), (2, "v2")]}, rebalance=["y"]).errors(
        subscription_modes=frozenset({"assign"})
    ) == ["int-poll-skip"]


def test_a_value_whose_offset_is_unknown_says_nothing_about_order() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b").send(1, "x", "c", 2)
    story.poll(2, {"x": [(0, "a"), (None, "b"), (2, "c")]})
    assert story.errors() == []


def test_others_records_between_a_transactions_sends_are_allowed() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("send", "x", "b", 2), at=(0, 9)).send(2, "x", "c", 1, at=(1, 3))
    story.poll(3, {"x": [(0, "a"), (1, "c"), (2, "b")]})
    assert story.errors() == []
    assert "int-send-skip" in story.allowed()


def test_going_back_between_sends_of_one_transaction() -> None:
    back = Story().txn(1, ("send", "x", "a", 1), ("send", "x", "b", 0)).poll(2, {"x": [(0, "b"), (1, "a")]})
    assert back.errors() == ["int-nonmonotonic-send"]
    forth = Story().txn(1, ("send", "x", "a", 0), ("send", "x", "b", 1)).poll(2, {"x": [(0, "a"), (1, "b")]})
    assert forth.errors() == []


def test_a_process_that_skips_between_two_polls() -> None:
    whole = five().poll(2, {"x": [(0, "v0")]}).poll(2, {"x": [(1, "v1")]})
    assert whole.errors() == []
    skipping = five().poll(2, {"x": [(0, "v0")]}).poll(2, {"x": [(2, "v2")]})
    assert skipping.errors() == ["poll-skip"]


def test_a_process_that_goes_back_between_two_polls() -> None:
    back = five().poll(2, {"x": [(0, "v0"), (1, "v1")]}).poll(2, {"x": [(1, "v1")]})
    assert back.errors() == ["nonmonotonic-poll"]


def test_skips_and_steps_back_are_allowed_where_consumers_subscribe() -> None:
    for second, name in ((2, "poll-skip"), (0, "nonmonotonic-poll")):
        story = five().do(2, "subscribe", ["x"]).poll(2, {"x": [(0, "v0")]}).poll(2, {"x": [(second, f"v{second}")]})
        assert story.errors() == []
        assert name in story.allowed()
        assert story.errors(subscription_modes=frozenset({"assign"})) == [name]


def test_who_assigned_its_keys_skips_nothing_because_others_subscribe() -> None:
    for second, name in ((2, "poll-skip"), (0, "nonmonotonic-poll")):
        story = five().do(3, "subscribe", ["x"]).do(2, "assign", ["x"])
        story.poll(2, {"x": [(0, "v0")]}).poll(2, {"x": [(second, f"v{second}")]})
        assert story.errors() == [name]
        assert story.errors(subscription_modes=frozenset({"assign", "subscribe"})) == []
        left = five().do(2, "subscribe", ["x"]).poll(2, {"x": [(0, "v0")]}).do(2, "assign", ["x"])
        assert left.poll(2, {"x": [(second, f"v{second}")]}).errors() == [], "the group may have moved it before"


def test_a_skip_inside_one_poll_is_an_error_even_where_consumers_subscribe() -> None:
    assert five().do(2, "subscribe", ["x"]).poll(2, {"x": [(0, "v0"), (2, "v2")]}).errors() == ["int-poll-skip"]


def test_the_place_is_forgotten_when_an_assign_omits_the_key() -> None:
    story = five().do(2, "assign", ["x", "y"]).poll(2, {"x": [(0, "v0")]})
    kept = story.do(2, "assign", ["x"]).poll(2, {"x": [(3, "v3")]})
    assert kept.errors() == ["poll-skip"]
    story = five().do(2, "assign", ["x", "y"]).poll(2, {"x": [(0, "v0")]})
    dropped = story.do(2, "assign", ["y"]).do(2, "assign", ["x"]).poll(2, {"x": [(3, "v3")]})
    assert dropped.errors() == []


def test_a_failed_assign_changes_nothing() -> None:
    story = five().do(2, "assign", ["x"]).poll(2, {"x": [(0, "v0")]})
    story.do(2, "assign", ["y"], outcome=FAIL).poll(2, {"x": [(3, "v3")]})
    assert story.errors() == ["poll-skip"]


def test_seeking_forgets_the_place() -> None:
    whole = [(offset, f"v{offset}") for offset in range(5)]
    assert five().poll(2, {"x": whole}).do(2, "seek", [["x", 0]]).poll(2, {"x": whole}).errors() == []
    prefix = {"keys": ["x"], "position": "beginning"}
    assert five().poll(2, {"x": whole}).do(2, "assign", prefix).poll(2, {"x": whole}).errors() == []
    assert five().poll(2, {"x": whole}).do(2, "assign", ["x"]).poll(2, {"x": whole}).errors() == ["nonmonotonic-poll"]


def test_an_assign_from_what_is_committed_does_not_go_on_where_the_process_was() -> None:
    for again, error in (([(2, "v2")], "nonmonotonic-poll"), ([(4, "v4")], "poll-skip")):
        for assigned in (["x"], {"keys": ["x"], "position": "committed", "group": "g"}):
            story = five().do(2, "assign", ["x"]).poll(2, {"x": [(offset, f"v{offset}") for offset in range(3)]})
            story.do(2, "assign", assigned).poll(2, {"x": again})
            assert story.errors() == ([] if isinstance(assigned, dict) else [error])


def test_only_ok_polls_move_the_place() -> None:
    """A client that did not finish its operation seeks back to where the operation began."""
    story = five().poll(2, {"x": [(0, "v0")]}).poll(2, {"x": [(1, "v1"), (2, "v2")]}, outcome=INFO)
    assert story.poll(2, {"x": [(1, "v1")]}).errors() == []
    story = five().poll(2, {"x": [(0, "v0")]}).poll(2, {"x": [(1, "v1"), (2, "v2")]}, outcome=FAIL)
    assert story.poll(2, {"x": [(3, "v3")]}).errors() == ["poll-skip"]


def test_a_crash_begins_a_new_client() -> None:
    story = five().poll(2, {"x": [(0, "v0")]}).do(2, "crash", outcome=INFO).poll(2, {"x": [(0, "v0")]})
    assert story.errors() == []


def test_a_process_whose_sends_go_back() -> None:
    back = Story().send(1, "x", "a", 1).send(1, "x", "b", 0).poll(2, {"x": [(0, "b"), (1, "a")]})
    assert back.errors() == ["nonmonotonic-send", "realtime-append"]
    two = Story().send(1, "x", "a", 1, at=(0, 5)).send(2, "x", "b", 0, at=(1, 4)).poll(3, {"x": [(0, "b"), (1, "a")]})
    assert two.errors() == []


def test_an_unknown_send_counts_for_its_process() -> None:
    story = Story().send(1, "x", "a", outcome=INFO).send(1, "x", "b", 0).poll(2, {"x": [(0, "b"), (1, "a")]})
    assert story.errors() == ["nonmonotonic-send"]


def test_a_failed_send_does_not_count_for_its_process() -> None:
    story = Story().send(1, "x", "a", outcome=FAIL).send(1, "x", "b", 0).poll(2, {"x": [(0, "b")]})
    assert story.errors() == []


def test_sends_in_flight_at_the_same_time_have_no_order() -> None:
    story = Story().send(1, "x", "a", 1, at=(0, 5)).send(1, "x", "b", 0, at=(1, 4)).poll(2, {"x": [(0, "b"), (1, "a")]})
    assert story.errors() == []


def test_a_record_that_only_a_dirty_reader_saw_may_be_passed_over_by_others() -> None:
    story = Story().send(1, "x", "a", 0).txn(2, ("send", "x", "b", 1), outcome=FAIL).send(1, "x", "c", 3)
    story.do(3, "assign", {"keys": ["x"], "isolation": "read_uncommitted"})
    story.poll(3, {"x": [(0, "a"), (1, "b"), (3, "c")]}).poll(4, {"x": [(0, "a"), (3, "c")]})
    assert story.errors() == []


def test_examples_are_ordered_by_how_far_they_jump() -> None:
    story = five().poll(2, {"x": [(0, "v0"), (2, "v2")]}).poll(3, {"x": [(0, "v0"), (4, "v4")]})
    found = story.report().anomaly("int-poll-skip")
    assert found is not None
    assert [example.details["delta"] for example in found.examples] == [4, 2]
    assert "past 3 known records" in found.examples[0].text


def test_a_send_that_never_returned_may_be_the_earlier_of_two_called_at_one_stamp() -> None:
    def story(second: int) -> Story:
        sends = Story().send(1, "x", "a", 2, at=(4, 4)).send(1, "x", "b", outcome=INFO, at=(second, None))
        return sends.poll(2, {"x": [(0, "b"), (2, "a")]}, at=(6, 7))

    assert story(4).errors() == []
    assert "nonmonotonic-send" in story(5).errors()


def test_polls_in_flight_at_the_same_time_are_two_operations_in_whichever_order_they_are_read() -> None:
    story = five().poll(2, {"x": [(0, "v0"), (1, "v1")]}, at=(20, 30)).poll(2, {"x": [(3, "v3")]}, at=(21, 25))
    assert story.errors() == ["poll-skip"]
    by_return = sorted(story.operations, key=lambda operation: operation.returned or 0)
    assert names(analyze(by_return), Judgement.ERROR) == ["poll-skip"]
