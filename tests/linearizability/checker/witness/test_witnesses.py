"""What a witness tells a person: the states that were possible, which object it is about, and values as written."""

from __future__ import annotations

import time
from typing import Any

import pytest

from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import OK, History, Operation, TimeUnit
from raftlog.linearizability.checker.model import Call
from raftlog.linearizability.checker.models.counter import Counter
from raftlog.linearizability.checker.models.key_value import KeyValue
from raftlog.linearizability.checker.models.lock import Lock
from raftlog.linearizability.checker.models.offsets import ConsumerOffsets
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.models.register import Register
from raftlog.linearizability.checker.page import report_of
from raftlog.linearizability.checker.page.text import render_text
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Invalid, Status
from raftlog.linearizability.checker.witness.reduce import Core
from raftlog.linearizability.checker.witness.witness import witness_of
from tests.linearizability.checker.as_it_grows import check_online

Step = tuple[int, str, Any, Any]


def one_after_another(steps: list[Step], model: Any, key: Any = None) -> Invalid:
    operations = [
        Operation(process, function, given, output, key, 2 * place, 2 * place + 1, OK)
        for place, (process, function, given, output) in enumerate(steps)
    ]
    verdict = check(operations, model)
    assert isinstance(verdict, Invalid)
    assert verdict.witness.minimal
    return verdict


def test_a_lock_that_may_have_been_taken_was_taken_with_the_token_that_was_answered() -> None:
    verdict = one_after_another(
        [
            (1, "acquire", None, 33),
            (1, "release", 33, True),
            (2, "acquire", None, 34),
            (2, "access", 34, True),
            (1, "access", 33, True),
        ],
        Lock(),
    )
    assert verdict.witness.refused.input == 33
    assert "answered True for token 33, but the lock is held, the last token is 34" in verdict.witness.words
    (state,) = verdict.witness.possible
    assert state.description == "is held, the last token is 34, the resource saw 34"


def test_a_generation_that_may_have_begun_is_the_one_that_was_answered() -> None:
    commit = {"offset": 7, "partition": "t-0", "generation": 1}
    verdict = one_after_another(
        [(1, "join", None, 1), (2, "join", None, 2), (1, "commit", commit, True)], ConsumerOffsets()
    )
    assert "took effect for generation 1, although the group is in generation 2" in verdict.witness.words
    assert "generation 3" not in render_text(report_of(verdict))


def test_the_text_says_which_key_it_is_about() -> None:
    verdict = one_after_another([(1, "write", 1, None), (2, "read", None, 3)], Register(), key="accounts/7")
    assert "\nKey accounts/7:\n" in render_text(report_of(verdict))


def test_objects_are_told_as_objects() -> None:
    verdict = one_after_another([(1, "write", {"b": [1], "a": None}, None), (2, "read", None, {"a": 2})], Register())
    assert "answered {'a': 2}, which nobody wrote" in verdict.witness.words
    frozen = freeze({"b": [1], "a": {"c": 1}})
    assert repr(freeze([frozen])) == "({'a': {'c': 1}, 'b': (1,)},)"
    assert [(name, repr(value)) for name, value in frozen] == [("a", "{'c': 1}"), ("b", "(1,)")]
    assert frozen == freeze({"a": {"c": 1}, "b": (1,)}) and frozen != tuple(frozen)


def test_what_may_as_well_not_have_happened_is_marked() -> None:
    steps: list[Step] = [(1, "enqueue", "a", None), (1, "enqueue", "b", None), (2, "dequeue", None, "b")]
    text = render_text(report_of(one_after_another(steps, Queue())))
    assert "enqueue('a') ┤" in text and "enqueue('b') ~ ┤" in text
    assert "(~ it makes no difference whether this happened)" in text


def test_a_violation_that_does_not_become_small_is_told_without_trying_its_orders() -> None:
    reads = [Operation(1, "read", None, 7, None, 2 * place, 2 * place + 1, OK, index=place) for place in range(50_000)]
    began = time.process_time()
    witness = witness_of(Core(Register(), reads, {id(reads[0])}, False), None, reads[-1].returned or 0, TimeUnit.STEPS)
    assert time.process_time() - began < 5  # all pairs of so many would take minutes
    assert witness.refused is reads[-1] and not witness.minimal and witness.context == (reads[0],)
    assert "no order explains read() -> 7 together with the 49,999 other operations" in witness.words


class Counted(KeyValue):
    """Notes in whose name it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def step(self, state: Any, call: Call) -> Any:
        self.asked.append(call.input)
        return super().step(state, call)


def some_parts() -> list[Operation]:
    """Of four keys the second and the last are bad."""
    operations = []
    for place, (key, wrong) in enumerate([("a", False), ("b", True), ("c", False), ("d", True)]):
        call = 10 * place
        operations.append(Operation(1, "put", key, None, key, call, call + 1, OK))
        operations.append(Operation(1, "get", None, "?" if wrong else key, key, call + 2, call + 3, OK))
    return operations


def test_the_check_ends_with_the_first_bad_part_and_the_others_are_checked_when_they_are_looked_at() -> None:
    model = Counted()
    verdict = check(some_parts(), model)
    assert isinstance(verdict, Invalid)
    assert verdict.witness.key == "b"
    assert "a" in model.asked and not {"c", "d"} & set(model.asked)
    parts = verdict.parts
    assert [part.status for part in parts] == [Status.VALID, Status.INVALID, Status.VALID, Status.INVALID]
    assert verdict.parts is parts
    assert parts[1].witness is verdict.witness
    assert parts[3].witness is not None and parts[3].witness.key == "d"
    assert {"c", "d"} <= set(model.asked)


def test_the_parts_behind_a_bad_one_are_checked_in_what_was_left_of_the_budget() -> None:
    time = 0.0
    verdict = check(some_parts(), KeyValue(), budget=Budget(seconds=10, clock=lambda: time))
    time = 1_000.0  # long after: the time since does not count
    assert [part.status for part in verdict.parts][2:] == [Status.VALID, Status.INVALID]
    model = Counted()
    verdict = check(some_parts(), model, budget=Budget(seconds=4.5, clock=lambda: float(len(model.asked))))
    assert isinstance(verdict, Invalid) and len(model.asked) == 4
    assert [(part.status, part.limit) for part in verdict.parts][2:] == [(Status.VALID, None), (Status.UNKNOWN, "time")]


def one_by_one(steps: list[Step]) -> list[Operation]:
    return [Operation(*step, None, 2 * at, 2 * at + 1, OK) for at, step in enumerate(steps)]


@pytest.mark.parametrize("again", [(), ((0, "write", 1, None),)])
def test_an_answer_from_nowhere_is_not_refused_for_what_the_object_held_long_ago(again: tuple[Step, ...]) -> None:
    steps: list[Step] = [(0, "write", 1, None), *again, (1, "read", None, 1), (2, "read", None, 99)]
    verdict = check(one_by_one(steps), Register())
    assert isinstance(verdict, Invalid) and len(verdict.witness.operations) == 1
    [possible] = verdict.witness.possible
    assert [refusal.reason for refusal in possible.refusals] == ["answered 99, which nobody wrote"]
    assert possible.description == "is in any state"
    queue = [Operation(1, "enqueue", 1, None, None, 0, 1, OK), Operation(2, "dequeue", None, 9, None, 2, 3, OK)]
    verdict = check(queue, Queue())
    assert isinstance(verdict, Invalid)
    [possible] = verdict.witness.possible
    assert [refusal.reason for refusal in possible.refusals] == ["answered 9, which nobody had enqueued"]


def test_an_answer_that_stays_wrong_whatever_else_happened_is_not_refused_for_the_state_at_the_very_start() -> None:
    steps: list[Step] = [(1, "add", 1, None), (1, "add", 2, None), (2, "read", None, 100)]
    told = "answered 100, which nothing that was called by then explains"
    for verdict in (check(one_by_one(steps), Counter()), check_online(History.of(one_by_one(steps)), Counter())):
        assert isinstance(verdict, Invalid)
        assert verdict.witness.words == f"The read by process 2 {told}."
        [possible] = verdict.witness.possible
        assert [refusal.reason for refusal in possible.refusals] == [told]
    verdict = check(one_by_one([(1, "read", None, 0), (2, "read", None, 100)]), Counter())
    assert isinstance(verdict, Invalid)
    assert verdict.witness.words == "The read by process 2 answered 100, but the counter stands at 0."
