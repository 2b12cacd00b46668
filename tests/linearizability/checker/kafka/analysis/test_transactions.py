"""Transactions: torn ones, and what is consumed once, twice or never. Each anomaly with a near miss."""

from __future__ import annotations

from typing import Any

from tests.linearizability.checker.kafka.story import FAIL, INFO, Story


def two_keys(**more: object) -> Story:
    """A transaction over x and y, and at the end a reader that sees everything."""
    return Story().txn(1, ("send", "x", "a", 0), ("send", "y", "b", 0), at=(0, 10), **more)


def finish(story: Story) -> Story:
    return story.poll(9, {"x": [(0, "a")], "y": [(0, "b")]}, at=(900, 901))


def test_a_transaction_is_visible_in_all_its_keys_at_one_read_point() -> None:
    whole = two_keys().poll(2, {"x": [(0, "a")], "y": [(0, "b")]}, ends={"x": 2, "y": 2}, at=(20, 21))
    assert finish(whole).errors() == []
    torn = two_keys().poll(2, {"x": [(0, "a")]}, ends={"x": 2, "y": 0}, at=(20, 21))
    assert finish(torn).errors() == ["torn-transaction"]


def test_a_read_point_that_overlaps_the_transaction_may_see_a_part() -> None:
    story = two_keys().poll(2, {"x": [(0, "a")]}, ends={"x": 2, "y": 0}, at=(9, 12))
    assert finish(story).errors() == []


def test_seeing_nothing_of_a_transaction_is_only_stale() -> None:
    story = two_keys().poll(2, {}, ends={"x": 0, "y": 0}, at=(20, 21))
    assert finish(story).errors() == []


def test_a_poll_that_does_not_say_where_the_end_was_proves_nothing() -> None:
    assert finish(two_keys().poll(2, {"x": [(0, "a")]}, at=(20, 21))).errors() == []


def test_an_open_transaction_may_hide_what_stands_behind_it() -> None:
    story = Story().txn(5, ("send", "y", "open", 0), at=(0, 500))
    story.txn(1, ("send", "x", "a", 0), ("send", "y", "b", 1), at=(0, 10))
    story.poll(2, {"x": [(0, "a")]}, ends={"x": 2, "y": 0}, at=(20, 21))
    story.poll(9, {"x": [(0, "a")], "y": [(0, "open"), (1, "b")]}, at=(900, 901))
    assert story.errors() == []


def test_a_gap_may_be_what_is_left_of_an_open_transaction() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), ("send", "y", "b", 3), at=(0, 10))
    story.poll(2, {"x": [(0, "a")]}, ends={"x": 2, "y": 1}, at=(20, 21))
    assert story.poll(9, {"x": [(0, "a")], "y": [(3, "b")]}, at=(900, 901)).errors() == []


def test_a_decided_record_before_it_does_not_hide_a_transaction() -> None:
    story = Story().send(5, "y", "plain", 0, at=(0, 1)).txn(1, ("send", "x", "a", 0), ("send", "y", "b", 1), at=(0, 10))
    story.poll(2, {"x": [(0, "a")]}, ends={"x": 2, "y": 0}, at=(20, 21))
    story.poll(9, {"x": [(0, "a")], "y": [(0, "plain"), (1, "b")]}, at=(900, 901))
    assert story.errors() == ["torn-transaction"]


def test_the_caller_may_give_markers_time_to_arrive() -> None:
    story = finish(two_keys().poll(2, {"x": [(0, "a")]}, ends={"x": 2, "y": 0}, at=(20, 21)))
    assert story.errors(transaction_visibility=9_999_999) == ["torn-transaction"]
    assert story.errors(transaction_visibility=10_000_000) == []
    assert story.errors(transaction_visibility=None) == []


def test_last_stable_offsets_of_several_keys_are_a_read_point_too() -> None:
    torn = two_keys().do(2, "last-stable-offset", None, {"x": 2, "y": 0}, at=(20, 21))
    assert finish(torn).errors() == ["torn-transaction"]
    whole = two_keys().do(2, "last-stable-offset", None, {"x": 2, "y": 2}, at=(20, 21))
    assert finish(whole).errors() == []


def test_an_unknown_transaction_is_decided_once_somebody_read_it() -> None:
    story = two_keys(outcome=INFO, partly=True)
    story.poll(2, {"x": [(0, "a")]}, ends={"x": 2, "y": 0}, at=(20, 21))
    assert finish(story).errors() == []
    story.poll(3, {"x": [(0, "a")]}, ends={"x": 2, "y": 0}, at=(30, 31))
    assert story.errors() == ["torn-transaction"]


def test_a_poll_that_jumps_over_one_part_and_returns_another_shows_a_torn_transaction() -> None:
    story = (
        Story().send(5, "y", "before", 0, at=(0, 1)).txn(1, ("send", "x", "a", 0), ("send", "y", "b", 1), at=(2, 10))
    )
    story.send(5, "y", "behind", 3, at=(11, 12))
    story.poll(2, {"x": [(0, "a")], "y": [(0, "before"), (3, "behind")]}, at=(20, 21))
    story.poll(9, {"y": [(0, "before"), (1, "b"), (3, "behind")]}, at=(900, 901))
    assert story.errors() == ["int-poll-skip", "torn-transaction"]


def test_readers_of_uncommitted_data_may_see_a_part() -> None:
    story = two_keys().poll(2, {"x": [(0, "a")]}, ends={"x": 2, "y": 0}, at=(20, 21))
    assert finish(story).errors(isolation="read_uncommitted") == []


def copied(second: list[tuple[int, str]], offset: int, **more: object) -> Story:
    """Three records in x; one transaction of the group consumed the first two, another one `second`."""
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1).send(1, "x", "c", 2)
    story.txn(2, ("poll", {"x": [(0, "a"), (1, "b")]}), ("commit", "g", {"x": 2}))
    story.txn(3, ("poll", {"x": second}), ("commit", "g", {"x": offset}), **more)
    return story.poll(9, {"x": [(0, "a"), (1, "b"), (2, "c")]})


def test_a_record_is_consumed_by_one_committed_transaction_of_a_group() -> None:
    assert copied([(2, "c")], 3).errors() == []
    assert copied([(1, "b"), (2, "c")], 3).errors() == ["consumed-twice"]


def test_a_transaction_consumes_what_lies_before_the_offset_that_it_commits() -> None:
    def shared(*ends: int) -> Story:
        story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1)
        story.txn(2, ("poll", {"x": [(0, "a"), (1, "b")]}), ("commit", "g", {"x": ends[0]}))
        for process, end in enumerate(ends[1:], 3):
            story.txn(process, ("poll", {"x": [(1, "b")]}), ("commit", "g", {"x": end}))
        return story

    assert shared(1, 2).errors() == shared(1, 1, 2).errors() == shared(1, 1).errors() == []
    assert shared(2, 2).errors() == shared(1, 2, 2).errors() == ["consumed-twice"]
    assert "consumed-twice" in shared(2, 1, 2).errors()


def test_a_group_that_was_reset_consumes_again_what_lies_behind_that() -> None:
    def again(*resets: int, process: int = 3, **more: Any) -> Story:
        story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1)
        story.txn(2, ("poll", {"x": [(0, "a"), (1, "b")]}), ("commit", "g", {"x": 2}))
        for offset in resets:
            story.do(9, "commit", {"group": "g", "offsets": {"x": offset}, "reset": True}, **more)
            story.txn(process, ("poll", {"x": [(1, "b")]}), ("commit", "g", {"x": 2}))
            process += 1
        return story

    assert again(1).errors() == again(0, 1).errors() == again(1, outcome=INFO).errors() == []
    assert again(2).errors() == again(1, outcome=FAIL).errors() == ["consumed-twice"]
    for back in (("h", "x"), ("g", "y")):
        story = again()
        story.do(9, "commit", {"group": back[0], "offsets": {back[1]: 0}, "reset": True})
        story.txn(3, ("poll", {"x": [(1, "b")]}), ("commit", "g", {"x": 2}))
        assert story.errors() == ["consumed-twice"]
    story = again(1).txn(8, ("poll", {"x": [(1, "b")]}), ("commit", "g", {"x": 2}))
    assert story.errors() == ["consumed-twice"], "it was sent back once"


def test_a_failed_transaction_did_not_consume() -> None:
    story = copied([(1, "b"), (2, "c")], 3, outcome=FAIL, partly=True)
    assert story.errors() == []


def test_another_groups_consumption_is_its_own() -> None:
    story = Story().send(1, "x", "a", 0).txn(2, ("poll", {"x": [(0, "a")]}), ("commit", "g", {"x": 1}))
    assert story.txn(3, ("poll", {"x": [(0, "a")]}), ("commit", "h", {"x": 1})).errors() == []


def test_consumption_is_only_judged_where_it_is_claimed() -> None:
    story = copied([(1, "b"), (2, "c")], 3)
    assert story.errors(exactly_once=False) == []
    plain = Story().send(1, "x", "a", 0).do(2, "subscribe", ["x"]).poll(2, {"x": [(0, "a")]})
    plain.do(3, "subscribe", ["x"]).poll(3, {"x": [(0, "a")]})
    assert plain.errors() == []
    assert plain.errors(exactly_once=True) == ["consumed-twice"]


def test_consumption_by_assigned_consumers_may_repeat() -> None:
    story = Story().send(1, "x", "a", 0).do(2, "assign", ["x"]).poll(2, {"x": [(0, "a")]}).do(3, "assign", ["x"])
    assert story.poll(3, {"x": [(0, "a")]}).errors(exactly_once=True) == []


def test_a_group_does_not_commit_past_what_its_transactions_consumed() -> None:
    assert "consumed-never" in copied([], 3).errors()
    aborted = Story().send(1, "x", "a", 0).txn(4, ("send", "x", "no", 1), outcome=FAIL).send(1, "x", "c", 3)
    aborted.txn(2, ("poll", {"x": [(0, "a")]}), ("commit", "g", {"x": 2}))
    aborted.txn(3, ("poll", {"x": [(3, "c")]}), ("commit", "g", {"x": 4}))
    assert aborted.poll(9, {"x": [(0, "a"), (3, "c")]}).errors() == []


def test_what_an_unknown_transaction_polled_may_have_been_consumed() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1).send(1, "x", "c", 2)
    story.txn(2, ("poll", {"x": [(0, "a")]}), ("commit", "g", {"x": 1}))
    story.txn(2, ("poll", {"x": [(1, "b")]}), ("commit", "g", {"x": 2}), outcome=INFO, partly=True)
    story.txn(3, ("poll", {"x": [(2, "c")]}), ("commit", "g", {"x": 3}))
    assert story.poll(9, {"x": [(0, "a"), (1, "b"), (2, "c")]}).errors() == []


def test_consume_counts_tell_how_often_subscribed_processes_consumed() -> None:
    story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1).do(2, "subscribe", ["x"])
    story.poll(2, {"x": [(0, "a"), (1, "b")]}).poll(2, {"x": [(1, "b")]})
    counts = story.report().measurements.consume_counts
    assert counts["distribution"] == {"1": 1, "2": 1}
    assert counts["repeated"] == [{"process": 2, "key": "x", "value": "b", "times": 2}]


def test_every_group_consumes_for_itself() -> None:
    story = Story().send(1, "x", "a", 0)
    for process, group in ((2, "g"), (3, "h")):
        story.do(process, "subscribe", {"keys": ["x"], "group": group}).poll(process, {"x": [(0, "a")]})
    assert story.errors(exactly_once=True) == []
    story.do(4, "subscribe", {"keys": ["x"], "group": "h"}).poll(4, {"x": [(0, "a")]})
    assert story.errors(exactly_once=True) == ["consumed-twice"]


def test_a_group_that_was_sent_forward_on_purpose_need_not_consume_what_it_passed() -> None:
    def passing(*between: object) -> Story:
        story = Story().send(1, "x", "a", 0).send(1, "x", "b", 1).send(1, "x", "c", 2)
        story.txn(2, ("poll", {"x": [(0, "a")]}), ("commit", "g", {"x": 1}))
        if between:
            story.do(2, *between)  # type: ignore[arg-type]
        story.txn(2, ("poll", {"x": [(2, "c")]}), ("commit", "g", {"x": 3}))
        return story.poll(9, {"x": [(0, "a"), (1, "b"), (2, "c")]})

    assert set(passing().errors()) == {"consumed-never", "poll-skip"}
    assert passing("seek", [["x", 2]]).errors() == []
    assert "consumed-never" in passing("seek", [["x", 1]]).errors()
    reset = passing("commit", {"group": "g", "offsets": {"x": 2}, "reset": True})
    assert "consumed-never" not in reset.errors()


def test_what_an_open_transaction_may_hide_makes_no_reader_stale() -> None:
    story = Story().txn(1, ("send", "x", "a", 0), at=(0, 10)).txn(5, ("send", "x", "b", 2), outcome=INFO, at=(11, 12))
    story.send(1, "x", "c", 3, at=(13, 14)).do(2, "assign", {"keys": ["x"], "position": "beginning"}, at=(15, 16))
    story.poll(2, {"x": [(0, "a")]}, at=(17, 18)).poll(2, {}, at=(500, 501))
    hidden = story.poll(2, {"x": [(3, "c")]}, at=(600, 601))
    assert hidden.errors(max_staleness=1_000_000) == []
    story.poll(3, {"x": [(0, "a"), (3, "c")]}, at=(300, 301))
    assert story.errors(max_staleness=1_000_000) == ["stale-read"]


def test_a_value_in_the_place_of_another_does_not_tear_its_transaction() -> None:
    story = two_keys().poll(2, {"x": [(0, "a")], "y": [(0, "other"), (1, "next")]}, at=(20, 21))
    assert "torn-transaction" not in finish(story).errors()
