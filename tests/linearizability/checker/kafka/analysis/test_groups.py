"""Consumer groups: committed offsets, generations, owners. Each anomaly with a near miss."""

from __future__ import annotations

from typing import Any

from tests.linearizability.checker.kafka.story import FAIL, INFO, Story


def commit(story: Story, process: int, offset: int, **more: Any) -> Story:
    given: dict[str, Any] = {"group": "g", "offsets": {"x": offset}}
    for name in ("member", "generation", "reset"):
        if name in more:
            given[name] = more.pop(name)
    return story.do(process, "commit", given, **more)


def fetch(story: Story, process: int, offset: int | None, **more: Any) -> Story:
    return story.do(process, "committed", {"group": "g", "keys": ["x"]}, [["x", offset]], **more)


def logged(count: int = 20) -> Story:
    story = Story()
    for offset in range(count):
        story.send(1, "x", offset, offset)
    return story.poll(99, {"x": [(offset, offset) for offset in range(count)]})


def test_a_groups_commits_do_not_go_back() -> None:
    story = commit(commit(logged(), 2, 5, generation=1, member="a"), 3, 7, generation=1, member="b")
    assert story.errors() == []
    assert commit(story, 2, 6, generation=1, member="a").errors() == ["nonmonotonic-commit"]


def test_commits_that_overlap_have_no_order() -> None:
    story = commit(logged(), 2, 9, generation=1, at=(100, 110))
    assert commit(story, 3, 5, generation=1, at=(105, 120)).errors() == []


def test_offsets_may_be_reset_on_purpose() -> None:
    story = commit(commit(logged(), 2, 9, generation=1), 3, 0, reset=True)
    assert commit(story, 2, 3, generation=1).errors() == []


def test_consumers_that_assign_their_keys_may_overwrite_each_other() -> None:
    story = commit(commit(logged(), 2, 9), 3, 4)
    assert story.errors() == []
    assert story.allowed() == ["nonmonotonic-commit"]


def test_a_consumer_that_assigns_its_keys_does_not_go_back_itself_unless_it_seeks() -> None:
    assert commit(commit(logged(), 2, 9), 2, 4).errors() == ["nonmonotonic-commit"]
    assert commit(commit(logged(), 2, 9).do(2, "seek", [["x", 4]]), 2, 4).errors() == []


def test_subscribed_consumers_do_not_go_back_even_without_generations() -> None:
    story = logged().do(2, "subscribe", {"keys": ["x"], "group": "g"}).do(3, "subscribe", {"keys": ["x"], "group": "g"})
    assert commit(commit(story, 2, 9), 3, 4).errors() == ["nonmonotonic-commit"]


def test_a_fetch_must_show_what_was_committed() -> None:
    assert fetch(commit(logged(), 2, 5), 3, 5).errors() == []
    assert fetch(commit(logged(), 2, 5), 3, None).errors() == ["lost-commit"]
    assert fetch(commit(commit(logged(), 2, 5), 2, 9), 3, 5).errors() == ["lost-commit"]


def test_a_fetch_may_miss_a_commit_that_overlaps_it() -> None:
    story = commit(logged(), 2, 5, at=(100, 110))
    assert fetch(story, 3, None, at=(110, 120)).errors() == []


def test_a_fetch_may_show_an_unknown_commit_long_after() -> None:
    story = commit(commit(logged(), 2, 5, outcome=INFO), 3, 9)
    assert fetch(story, 4, 5).errors() == []


def test_fetches_do_not_go_back() -> None:
    story = commit(logged(), 2, 5)
    story = commit(story, 2, 9, at=(100, 200))
    story = fetch(story, 3, 9, at=(110, 120))
    assert story.errors() == []
    assert fetch(story, 3, 5, at=(130, 140)).errors() == ["nonmonotonic-committed-read"]


def test_fetches_of_automatic_commits_do_not_go_back_either() -> None:
    assert fetch(fetch(logged(), 3, 5), 3, 9).errors() == []
    assert fetch(fetch(logged(), 3, 9), 3, 5).errors() == ["nonmonotonic-committed-read"]


def test_a_failed_commit_is_not_seen() -> None:
    story = commit(commit(logged(), 2, 5), 2, 9, outcome=FAIL)
    assert fetch(story, 3, 5).errors() == []
    assert fetch(commit(commit(logged(), 2, 5), 2, 9, outcome=FAIL), 3, 9).errors() == ["aborted-commit-read"]


def test_a_member_of_an_older_generation_cannot_commit() -> None:
    story = logged().do(2, "join", {"group": "g"}, {"member": "a", "generation": 4, "keys": ["x"]})
    story.do(3, "join", {"group": "g"}, {"member": "b", "generation": 5, "keys": ["x"]})
    assert commit(story, 2, 5, member="a", generation=4, outcome=FAIL).errors() == []
    assert commit(story, 2, 5, member="a", generation=4).errors() == ["fenced-commit"]


def test_a_commit_of_a_fenced_member_that_nobody_answered_does_not_take_effect_either() -> None:
    def rebalanced() -> Story:
        story = logged().do(2, "join", {"group": "g"}, {"member": "a", "generation": 4, "keys": ["x"]})
        return story.do(3, "join", {"group": "g"}, {"member": "b", "generation": 5, "keys": ["x"]})

    assert commit(rebalanced(), 2, 5, member="a", generation=4, outcome=INFO).errors() == []
    story = fetch(commit(rebalanced(), 2, 5, member="a", generation=4, outcome=INFO), 4, 5)
    assert story.errors() == ["fenced-commit"]
    told = story.report().anomaly("fenced-commit").examples[0].text
    assert "committed 5 and it was seen to take effect, although" in told
    other = commit(rebalanced(), 2, 5, member="a", generation=4, outcome=INFO)
    assert fetch(commit(other, 3, 5, member="b", generation=5), 4, 5).errors() == []
    before = fetch(rebalanced(), 4, 5, at=(1, 2))
    assert commit(before, 2, 5, member="a", generation=4, outcome=INFO).errors() == []


def test_a_commit_that_overlaps_the_rebalance_may_take_effect() -> None:
    story = logged().do(3, "join", {"group": "g"}, {"member": "b", "generation": 5, "keys": ["x"]}, at=(100, 120))
    assert commit(story, 2, 5, member="a", generation=4, at=(119, 130)).errors() == []


def test_a_late_commit_of_an_older_generation_must_not_replace_a_newer_ones() -> None:
    story = commit(logged(), 2, 5, member="a", generation=4, outcome=INFO)
    story = commit(story, 3, 9, member="b", generation=5)
    assert fetch(story, 4, 9).errors() == []
    assert fetch(story, 4, 5).errors() == ["fenced-commit"]


def test_a_late_commit_of_the_same_generation_may() -> None:
    story = commit(logged(), 2, 5, member="a", generation=5, outcome=INFO)
    assert fetch(commit(story, 3, 9, member="b", generation=5), 4, 5).errors() == []


def test_a_generation_gives_a_key_to_one_member() -> None:
    story = logged().do(2, "join", {"group": "g"}, {"member": "a", "generation": 4, "keys": ["x"]})
    story.do(3, "join", {"group": "g"}, {"member": "b", "generation": 5, "keys": ["x"]})
    story.do(2, "join", {"group": "h"}, {"member": "c", "generation": 4, "keys": ["x"]})
    assert story.errors() == []
    story.do(4, "describe-group", {"group": "g"}, {"generation": 5, "members": {"a": ["x"], "b": ["y"]}})
    assert story.errors() == ["two-owners"]


def test_a_commit_does_not_pass_what_was_polled() -> None:
    story = Story()
    for offset in range(6):
        story.send(1, "x", offset, offset)
    story.poll(99, {"x": [(offset, offset) for offset in range(6)]})
    # The final reader above is of no group.
    story.operations[-1].process = "reader"
    story.options["group"] = "nobody"
    story.do(2, "subscribe", {"keys": ["x"], "group": "g"}).poll(2, {"x": [(0, 0), (1, 1)]})
    assert commit(story, 2, 2).errors() == []
    assert commit(story, 2, 4).errors() == ["commit-past-processed"]


def consumer(committed: int, gap: bool = False, **more: Any) -> Story:
    """A group that polled offsets 0 and 1 of a log of four and committed; with a gap, offsets 2 and 3 are markers."""
    story = Story(group="nobody")
    for offset in (0, 1, 4, 5) if gap else (0, 1, 2, 3):
        story.send(1, "x", offset, offset)
    values = (0, 1, 4, 5) if gap else (0, 1, 2, 3)
    story.poll(99, {"x": [(offset, offset) for offset in values]})
    story.do(2, "subscribe", {"keys": ["x"], "group": "g"}).poll(2, {"x": [(0, 0), (1, 1)]})
    return commit(story, 2, committed, **more)


def test_markers_and_aborted_records_may_be_passed() -> None:
    assert consumer(4, gap=True).errors() == []
    assert consumer(5, gap=True).errors() == ["commit-past-processed"]


def test_another_members_polls_count_for_the_group() -> None:
    story = consumer(2).do(3, "subscribe", {"keys": ["x"], "group": "g"}).poll(3, {"x": [(2, 2), (3, 3)]})
    assert commit(story, 3, 4).errors() == []


def test_a_poll_that_began_after_the_commit_had_ended_does_not_count() -> None:
    assert consumer(4).poll(2, {"x": [(2, 2), (3, 3)]}).errors() == ["commit-past-processed"]


def test_a_deliberate_seek_or_reset_may_pass_records() -> None:
    assert consumer(4, reset=True).errors() == []
    story = consumer(2).do(2, "seek", [["x", 4]])
    assert commit(story, 2, 4).errors() == []


def test_automatic_commits_are_judged_by_what_is_fetched() -> None:
    story = consumer(2)
    assert fetch(story, 3, 4).errors() == ["commit-past-processed"]


def test_where_processing_is_recorded_it_is_what_counts() -> None:
    """A committed offset must not pass the poll that is still being processed."""
    story = consumer(2)
    story.do(2, "process", [["x", 0]])
    assert story.errors() == ["commit-past-processed"]
    processed = Story(group="nobody")
    for offset in range(3):
        processed.send(1, "x", offset, offset)
    processed.poll(99, {"x": [(0, 0), (1, 1), (2, 2)]})
    processed.do(2, "subscribe", {"keys": ["x"], "group": "g"}).poll(2, {"x": [(0, 0), (1, 1)]})
    processed.do(2, "process", [["x", 1]])
    assert commit(processed, 2, 2).errors() == []


def test_offsets_committed_in_a_transaction_take_effect_with_it() -> None:
    story = logged().txn(2, ("poll", {"x": [(0, 0)]}), ("commit", "g", {"x": 1}))
    assert fetch(story, 3, 1).errors() == []
    story = logged().txn(2, ("poll", {"x": [(0, 0)]}), ("commit", "g", {"x": 1}))
    assert fetch(story, 3, None).errors() == ["lost-commit"]
    failed = logged().txn(2, ("poll", {"x": [(0, 0)]}), ("commit", "g", {"x": 1}), outcome=FAIL)
    assert fetch(failed, 3, 1).errors() == ["aborted-commit-read"]


def test_a_transactions_offsets_may_come_late_where_the_caller_allows_it() -> None:
    story = logged().txn(2, ("poll", {"x": [(0, 0)]}), ("commit", "g", {"x": 1}), at=(100, 110))
    story = fetch(story, 3, None, at=(115, 116))
    assert story.errors() == ["lost-commit"]
    assert story.errors(transaction_visibility=10_000_000) == []


def test_a_member_that_sought_back_may_commit_back_and_the_group_goes_on_from_there() -> None:
    story = commit(logged(), 2, 9, generation=1).do(2, "seek", [["x", 4]]).poll(2, {"x": [(4, 4), (5, 5)]})
    story = commit(commit(story, 2, 5, generation=1), 3, 6, generation=2)
    assert story.errors() == []
    assert commit(story, 3, 5, generation=2).errors() == ["nonmonotonic-commit"]


def test_seeking_in_another_key_excuses_nothing() -> None:
    story = commit(logged(), 2, 9, generation=1).do(2, "seek", [["y", 4]])
    assert commit(story, 2, 5, generation=1).errors() == ["nonmonotonic-commit"]


def test_a_groups_offset_may_be_taken_away_on_purpose() -> None:
    story = commit(logged(), 2, 9)
    story.do(3, "commit", {"group": "g", "offsets": {"x": None}, "reset": True})
    assert fetch(story, 4, None).errors() == []
    assert fetch(story, 4, 9).errors() == ["nonmonotonic-committed-read"]


def test_an_offset_fetched_before_anybody_here_committed_it_was_there_then_and_not_later() -> None:
    story = fetch(logged(), 3, 4)
    story = fetch(commit(story, 2, 6), 3, 6)
    story.do(9, "commit", {"group": "g", "offsets": {"x": 4}, "reset": True})
    assert fetch(story, 3, 4).errors() == []
    assert fetch(story, 3, 6).errors() == ["nonmonotonic-committed-read"]


def test_an_offset_once_committed_by_somebody_else_is_not_dated_by_a_commit_of_it_under_way() -> None:
    story = fetch(logged(), 3, 6, at=(100, 101))
    story.do(9, "commit", {"group": "g", "offsets": {"x": 4}, "reset": True}, at=(102, 105))
    story = fetch(story, 3, 6, at=(103, 108))
    story = fetch(commit(story, 2, 6, outcome=INFO, at=(107, 110)), 3, 4, at=(120, 121))
    assert story.errors() == []


def test_a_failed_reset_took_nothing_away() -> None:
    story = logged().do(3, "commit", {"group": "g", "offsets": {"x": None}, "reset": True}, outcome=FAIL)
    assert fetch(story, 4, None).errors() == []


def test_once_another_offset_was_fetched_an_unknown_commit_that_was_seen_does_not_come_back() -> None:
    story = commit(logged(), 2, 5, outcome=INFO, at=(100, 101))
    story = commit(story, 3, 9, outcome=INFO, at=(102, 103))
    story = fetch(fetch(story, 4, 5, at=(110, 111)), 4, 9, at=(112, 113))
    assert story.errors() == []
    assert fetch(story, 4, 5, at=(114, 115)).errors() == ["nonmonotonic-committed-read"]


def test_a_reset_forward_is_not_past_what_was_processed() -> None:
    story = consumer(2)
    story.do(7, "commit", {"group": "g", "offsets": {"x": 4}, "reset": True})
    assert fetch(story, 3, 4).errors() == []


def test_where_members_have_epochs_only_owners_of_the_same_key_fence() -> None:
    def joined(protocol: str, second: list[str]) -> Story:
        story = logged()
        for process, epoch, keys in ((2, 4, ["x"]), (3, 5, second)):
            asked = {"group": "g", "protocol": protocol}
            answer = {"member": f"m{process}", "generation": epoch, "keys": keys}
            story.do(process, "join", asked, answer)
        return commit(story, 2, 5, member="m2", generation=4)

    assert joined("consumer", ["y"]).errors() == []
    assert joined("consumer", ["x"]).errors() == ["fenced-commit"]
    assert joined("classic", ["y"]).errors() == ["fenced-commit"]


def test_a_transactions_offsets_of_a_fenced_member_do_not_take_effect() -> None:
    story = logged().do(3, "join", {"group": "g"}, {"member": "b", "generation": 5, "keys": ["x"]})
    asked = [["poll"], ["commit", "g", {"x": 1}, {"member": "a", "generation": 4}]]
    answer = [["poll", {"x": [[0, 0]]}], *asked[1:]]
    assert story.do(2, "txn", asked, answer, outcome=FAIL).errors() == []
    assert story.do(2, "txn", asked, answer).errors() == ["fenced-commit"]
