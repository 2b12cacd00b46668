"""The decision of a two-phase sink: what is written down, and what follows from it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.pipeline.sink.decision import (
    Decision,
    Plan,
    ProtocolChanged,
    TooManyTasks,
    check_switch,
    driver_id,
    is_decided,
    is_task,
    plan,
    read_decision,
    transactional_id,
)
from raftlog.pipeline.sink.marker import METADATA_BYTES_MAX, SinkInUse

DECISION = Decision("q", 7, "aaaa", (3, 4, 5, 9))
SLOTS = st.lists(st.integers(0, 99_999), unique=True, max_size=60).map(lambda slots: tuple(sorted(slots)))


@given(slots=SLOTS, version=st.integers(1, 2))
def test_a_decision_is_read_as_it_was_written(slots: tuple[int, ...], version: int) -> None:
    decision = Decision("q" * 36, 12, "12345678", slots, version)
    assert read_decision([(decision.offset, decision.metadata())]) == decision


def test_the_latest_decision_counts() -> None:
    older = DECISION._replace(batch=6)
    assert read_decision([(each.offset, each.metadata()) for each in (older, DECISION, older)]) == DECISION
    assert read_decision([]) is None


@pytest.mark.parametrize("metadata", ["", "x", "{}", "[]", DECISION.metadata().replace("two-phase", "three-phase")])
def test_what_is_no_decision_is_not_taken_for_one(metadata: str) -> None:
    with pytest.raises(SinkInUse, match="give the sink another sinkId"):
        read_decision([(8, metadata)])


def test_ten_thousand_tasks_are_few_bytes_and_too_many_ragged_ones_are_refused_with_a_way_out() -> None:
    assert len(DECISION._replace(slots=tuple(range(10_000))).metadata()) < 200
    with pytest.raises(TooManyTasks, match="coalesce"):
        DECISION._replace(slots=tuple(range(0, 2_000, 2))).metadata()
    assert len(DECISION._replace(slots=tuple(range(0, 800, 2))).metadata()) <= METADATA_BYTES_MAX


def test_only_ids_of_tasks_of_this_sink_are_ended() -> None:
    assert is_task("s", transactional_id("s", "aaaa", 3))
    for other in (driver_id("s"), transactional_id("s2", "aaaa", 3), "s", "s:x", "s-0", "s:aaaa:x", "s:a:b:3"):
        assert not is_task("s", other)


def test_a_batch_is_decided_when_its_decision_or_a_later_one_is_there() -> None:
    assert [is_decided(DECISION, "s", "q", batch) for batch in (6, 7, 8)] == [True, True, False]
    assert not is_decided(None, "s", "q", 0)
    with pytest.raises(SinkInUse, match="'s' belongs to query q, which has written up to batch 7"):
        is_decided(DECISION, "s", "r", 8)


def test_a_protocol_is_not_changed_in_the_middle_of_a_batch() -> None:
    check_switch(None, 3, "s", "task")
    check_switch(2, 3, "s", "task")
    with pytest.raises(ProtocolChanged, match="start the query once with the option as it was"):
        check_switch(3, 3, "s", "two-phase")


def ids(run: str, *slots: int) -> list[str]:
    return [transactional_id("s", run, slot) for slot in slots]


def test_what_was_decided_before_is_committed_and_what_tasks_wrote_again_is_aborted() -> None:
    again = Decision("q", 7, "bbbb", (1,))
    found = plan(DECISION, again, "s", [*ids("aaaa", 4, 9), *ids("bbbb", 1)])
    assert found == Plan([], None, ids("aaaa", 3, 4, 5, 9), ids("bbbb", 1))


def test_an_earlier_decision_is_carried_out_before_another_takes_its_place() -> None:
    following = Decision("q", 8, "bbbb", (1,))
    found = plan(DECISION, following, "s", [*ids("aaaa", 4), *ids("cccc", 2), *ids("bbbb", 1)])
    assert found == Plan(ids("aaaa", 4), following, ids("bbbb", 1), ids("cccc", 2))


TASKS = st.tuples(st.sampled_from(["aaaa", "bbbb"]), st.integers(0, 4))


@given(
    found=st.none() | st.builds(Decision, st.just("q"), st.integers(0, 3), st.just("aaaa"), SLOTS),
    batch=st.integers(0, 3),
    slots=st.sets(st.integers(0, 4)),
    open_tasks=st.sets(TASKS),
)
def test_a_transaction_is_committed_if_and_only_if_the_decision_that_holds_then_names_it(
    found: Decision | None, batch: int, slots: set[int], open_tasks: set[tuple[str, int]]
) -> None:
    wanted = Decision("q", batch, "bbbb", tuple(sorted(slots)))
    ongoing = {transactional_id("s", *each) for each in open_tasks} | set(wanted.ids("s"))
    todo = plan(found, wanted, "s", ongoing)
    before = set(found.ids("s")) if found is not None else set()
    holds = todo.decide or (found if found is not None and found.batch >= batch else None)
    named = set(holds.ids("s")) if holds is not None else set()
    assert set(todo.commit) == named
    assert set(todo.commit_first) == ((before & ongoing) if todo.decide is not None or holds is None else set())
    assert not set(todo.abort) & (named | before)
    assert ongoing <= set(todo.abort) | named | set(todo.commit_first), "nothing stays open"
