"""Of several bad parts the witness is that of the one whose shortest bad beginning ends first, in every form."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from random import Random
from typing import Any

import pytest

from raftlog.linearizability import assert_linearizable
from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import OK, EventType, History, Operation
from raftlog.linearizability.checker.model import Call
from raftlog.linearizability.checker.models.key_value import KeyValue
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.models.register import Register
from raftlog.linearizability.checker.online import OnlineCheck
from raftlog.linearizability.checker.page import render_text, report_of
from raftlog.linearizability.checker.page.plain import plain_verdict
from raftlog.linearizability.checker.verdict import Invalid, Status
from tests.effort import at_least
from tests.linearizability.checker.as_it_grows import check_online
from tests.linearizability.checker.objects import WORLDS, scramble_several
from tests.linearizability.checker.test_against_brute_force import first_bad_return

pytestmark = pytest.mark.long

HISTORIES = at_least(200)


def write(key: str, value: Any, call: int, returned: int) -> Operation:
    return Operation(f"writer of {key}", "write", value, None, key, call, returned, OK)


def read(key: str, value: Any, call: int, returned: int) -> Operation:
    return Operation(f"reader of {key}", "read", None, value, key, call, returned, OK)


def two_bad_keys() -> list[Operation]:
    """The key that appears first is bad last."""
    return [
        write("late", 1, 0, 1),
        write("early", 1, 2, 3),
        write("good", 1, 4, 5),
        read("early", 5, 6, 7),
        read("good", 1, 8, 9),
        read("late", 5, 10, 11),
    ]


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_the_witness_ends_where_the_first_part_goes_bad_and_the_online_form_finds_the_same(name: str) -> None:
    world = WORLDS[name]
    several = 0
    for seed in range(HISTORIES):
        history = scramble_several(world, Random(seed))
        verdict = check(history, world.model)
        online = check_online(History.of(map(replace, history.operations)), world.model)
        assert online.status is verdict.status, seed
        if not isinstance(verdict, Invalid):
            continue
        assert isinstance(online, Invalid), seed
        witness = verdict.witness
        assert witness.prefix_end == first_bad_return(verdict.model, history), seed
        assert (online.witness.prefix_end, online.uncompared) == (witness.prefix_end, ()), seed
        bad = [part for part in verdict.parts if part.status is Status.INVALID]
        assert any(part.witness is witness for part in bad) and verdict.uncompared == (), seed
        ends = sorted(part.witness.prefix_end for part in bad if part.witness is not None)
        assert ends[0] == witness.prefix_end, seed
        if ends[1:2] != ends[:1]:
            assert online.witness.refused.key == witness.refused.key, seed
        several += len(bad) > 1
    assert several >= HISTORIES // 100


def test_it_makes_no_difference_whether_the_parts_or_the_witness_are_looked_at_first() -> None:
    told = []
    for first in ("witness", "parts"):
        verdict = check(two_bad_keys(), Register())
        getattr(verdict, first)
        assert isinstance(verdict, Invalid)
        assert verdict.parts[1].witness is verdict.witness
        told.append((verdict.witness.key, verdict.witness.words, [part.status for part in verdict.parts]))
    assert told[0] == told[1]
    assert told[0][0] == "early"


def test_a_failing_assertion_and_a_page_open_at_that_witness() -> None:
    with pytest.raises(AssertionError, match=r"The read by process reader of early answered 5, which nobody wrote\."):
        assert_linearizable(two_bad_keys(), Register())
    report = report_of(check(two_bad_keys(), Register()))
    assert report.witness is not None and report.witness.key == "early"
    assert "Key early:" in render_text(report)


def test_what_was_called_late_does_not_change_what_an_early_read_is_said_to_be() -> None:
    verdict = check([*two_bad_keys(), write("early", 5, 20, 21)], Register())
    assert isinstance(verdict, Invalid)
    assert "which nobody wrote" not in verdict.witness.words
    assert [operation.call for operation in verdict.witness.operations] == [6]


class Counted(KeyValue):
    """Notes what it was asked about."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Any] = []

    def step(self, state: Any, call: Call) -> Any:
        self.asked.append(call.output)
        return super().step(state, call)


def test_another_part_is_looked_at_only_until_the_end_of_the_best_witness() -> None:
    model = Counted()
    operations = []
    for key in "ab":
        for number in range(100):
            value = "?" if key == "a" and number == 10 else number
            operations.append(Operation(key, "put", number, None, key, 4 * number, 4 * number + 1, OK))
            operations.append(Operation(key, "get", None, value, key, 4 * number + 2, 4 * number + 3, OK))
    verdict = check(operations, model)
    assert isinstance(verdict, Invalid) and verdict.witness.key == "a"
    assert max(value for value in model.asked if isinstance(value, int)) < 11
    assert [part.status for part in verdict.parts] == [Status.INVALID, Status.VALID]
    assert max(value for value in model.asked if isinstance(value, int)) == 99


class Slow(KeyValue):
    """A step with text takes long."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def step(self, state: Any, call: Call) -> Any:
        self.now += 10.0 * isinstance(call.input or call.output, str)
        return super().step(state, call)


def bad_among(others: str) -> list[Operation]:
    """A key that appears first and is bad last, and others of which only slow steps can tell."""
    operations = [Operation(1, "put", 1, None, "bad", 0, 1, OK), Operation(1, "get", None, 2, "bad", 98, 99, OK)]
    for key in others:
        operations.append(Operation(2, "put", "text", None, key, 2, 3, OK))
        operations.append(Operation(2, "get", None, "text", key, 4, 5, OK))
    return operations


@pytest.mark.parametrize(
    ("others", "uncompared", "told"),
    [
        ("b", (), ""),
        ("bc", ("c",), "The part c may have been wrong before that: the budget was not enough to see."),
        ("bcd", ("c", "d"), "Some of 2 other parts may have been wrong before that: the budget was not enough to see."),
    ],
)
def test_parts_that_the_budget_does_not_reach_are_told_and_not_passed_over(
    others: str, uncompared: tuple[str, ...], told: str
) -> None:
    model = Slow()
    verdict = check(bad_among(others), model, budget=Budget(seconds=10, clock=lambda: model.now))
    assert isinstance(verdict, Invalid) and verdict.witness.key == "bad"
    assert verdict.uncompared == uncompared
    assert report_of(verdict).words == f"{verdict.witness.words} {told}".rstrip()
    assert plain_verdict(verdict)["uncompared"] == list(uncompared)


def test_a_part_that_takes_long_leaves_time_for_a_look_at_the_others() -> None:
    operations = [Operation(number, "append", f"{number},", None, "hard", 0, 90, OK) for number in range(12)]
    operations.append(Operation(20, "get", None, "no order gives this", "hard", 91, 92, OK))
    operations.append(Operation(21, "get", None, "nobody put this", "bad", 93, 94, OK))
    ticks = count()  # each look at the clock takes a second
    verdict = check(operations, KeyValue(), budget=Budget(seconds=20, clock=lambda: float(next(ticks))))
    assert isinstance(verdict, Invalid)
    assert (verdict.witness.key, verdict.uncompared) == ("bad", ("hard",))
    assert [part.status for part in verdict.parts] == [Status.UNKNOWN, Status.INVALID]
    assert next(ticks) < 25


def test_an_open_call_does_not_let_the_online_form_tell_of_a_later_violation() -> None:
    online = OnlineCheck(Register())
    slow = Operation(1, "write", 1, None, "early", 0)
    online.feed((EventType.INVOKE, slow))  # nobody knows yet what it explains
    for operation in (read("early", 5, 1, 2), read("late", 5, 3, 4)):
        wanted, operation.output = operation.output, None
        online.feed((EventType.INVOKE, operation))
        operation.output = wanted
        verdict = online.feed((EventType.OK, operation))
    assert verdict is None
    verdict = online.finish()
    assert isinstance(verdict, Invalid)
    assert (verdict.witness.key, verdict.witness.prefix_end) == ("early", 2)
    assert [(part.key, part.status) for part in verdict.parts] == [
        ("early", Status.INVALID),
        ("late", Status.INVALID),
    ]


def test_a_part_with_an_answer_that_came_too_late_to_be_judged_is_not_compared() -> None:
    online = OnlineCheck(Register(), patience=5)

    def done(operation: Operation) -> None:
        online.feed((EventType.INVOKE, operation))
        online.feed((EventType.OK, operation))

    stuck = read("doubtful", 99, 0, 30)
    online.feed((EventType.INVOKE, stuck))
    for number in range(10):
        done(write("doubtful", number, 2 * number + 1, 2 * number + 2))
    online.feed((EventType.OK, stuck))
    assert online.verdict is None
    done(read("bad", 5, 31, 32))
    verdict = online.finish()
    assert isinstance(verdict, Invalid)
    assert (verdict.witness.key, verdict.uncompared) == ("bad", ("doubtful",))


def open_for_long() -> list[Operation]:
    """A dequeue that is open from the beginning took `a`; at the very end it answers something else."""
    operations = [Operation("slow", "dequeue", None, "wrong", None, 0, 10_000, OK)]

    def done(function: str, given: Any = None, output: Any = None) -> None:
        time = 2 * len(operations)
        operations.append(Operation("quick", function, given, output, None, time, time + 1, OK))

    for value in ("twice", "twice"):
        done("enqueue", value)
        done("dequeue", None, value)
    for value in "abc":
        done("enqueue", value)
    done("dequeue", None, "b")
    for value in range(9):
        done("enqueue", value)
    done("dequeue", None, "c")
    return operations


def test_an_answer_that_is_right_as_long_as_a_call_is_open_is_not_blamed_for_what_that_call_answers() -> None:
    for verdict in (check(open_for_long(), Queue()), check_online(History.of(open_for_long()), Queue())):
        assert isinstance(verdict, Invalid)
        witness = verdict.witness
        assert witness.prefix_end == 10_000
        assert [operation.process for operation in witness.operations] == ["slow"]


def test_what_was_called_after_the_refused_answer_explains_what_else_was_open_then() -> None:
    """The online form took the read's 3 for wrong, because the add of 2 came after the return that it had refused."""
    add = Operation(1, "add", 1, 5, None, 0, 20, OK)
    one = Operation(2, "read", None, 1, None, 6, 10, OK)
    three = Operation(3, "read", None, 3, None, 5, 15, OK)
    two = Operation(4, "add", 2, None, None, 12, 14, OK)
    verdict = check_online(History.of([add, one, three, two]), WORLDS["counter"].model)
    assert isinstance(verdict, Invalid)
    assert verdict.witness.prefix_end == 20 and add in verdict.witness.operations
