"""Logs: the exact check against brute force where offsets lie far apart, and what is said of each kind of violation."""

from __future__ import annotations

import sys
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation, Outcome
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.checker.log.gaps import Undecided
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.verdict import Invalid, Status, Valid
from tests.effort import at_least
from tests.linearizability.checker.as_it_grows import check_online
from tests.linearizability.checker.brute_force import is_linearizable
from tests.linearizability.checker.objects import WORLDS, scramble

FAR = 10**15
MS = 1_000_000


def moved(history: History, threshold: int, distance: int) -> History:
    """The history with every offset from the threshold on moved away."""

    def move(offset: int) -> int:
        return offset + distance if offset >= threshold else offset

    operations = []
    for operation in history.operations:
        if operation.outcome is not OK:
            operations.append(replace(operation))
        elif operation.function == "read":
            operations.append(replace(operation, input=move(operation.input)))
        else:
            operations.append(replace(operation, output=move(operation.output)))
    return History.of(operations)


@pytest.mark.long
@pytest.mark.parametrize("name", ["log", "partial-log", "equal-records"])
def test_offsets_far_apart_are_judged_as_those_that_are_near(name: str) -> None:
    model = WORLDS[name].model
    for seed in range(at_least(1500)):
        random = Random(seed)
        history = scramble(WORLDS[name], random, count=random.randint(1, 8))
        threshold = random.randint(0, 4)
        near = is_linearizable(model, moved(history, threshold, 40).operations)
        far = check(moved(history, threshold, FAR), model)
        assert (far.status is Status.VALID) == near, seed
        if isinstance(far, Invalid):
            assert far.witness.minimal, seed


def op(process: int, function: str, given: Any, output: Any, times: tuple[int, int | None], **more: Any) -> Operation:
    call, returned = times
    end = None if returned is None else returned * MS
    return Operation(process, function, given, output, call=call * MS, returned=end, outcome=more.get("outcome", OK))


APPEND = op(1, "append", ["a", "b", "c"], 0, (0, 10))
NEXT = op(2, "append", ["d"], 3, (5, 15))

TOLD = {
    "stale end": (
        [APPEND, NEXT, op(3, "end", None, 3, (50, 55))],
        "The end by process 3 returned offset 3 as the end, although the append of offset 3 had been acknowledged "
        "35 ms before it began.",
    ),
    "stale read": (
        [APPEND, NEXT, op(3, "read", 0, [["a", "b", "c"], True], (50, 55))],
        "The read by process 3 returned offset 3 as the end, although the append of offset 3 had been acknowledged "
        "35 ms before it began.",
    ),
    "late append": (
        [APPEND, op(2, "read", 0, [["a", "b", "c", "d"], False], (5, 20)), op(3, "append", ["d"], 3, (30, 40))],
        "The read by process 2 read 'd' at offset 3, which nobody had appended: the append by process 3 was called 10 "
        "ms later.",
    ),
    "wrong record": (
        [APPEND, op(3, "read", 0, [["a", "x"], False], (45, 50))],
        "The read by process 3 read 'x' at offset 1, but the append by process 1 put 'b' there.",
    ),
    "one offset twice": (
        [APPEND, op(3, "append", ["d"], 2, (5, 50))],
        "The append by process 3 was given offset 2, which belongs to the append by process 1: offsets 0 to 2.",
    ),
    "inside a batch": (
        [APPEND, op(3, "end", None, 1, (5, 50))],
        "The end by process 3 returned offset 1 as the end, but the append by process 1 appended offsets 0 to 2 in one "
        "piece.",
    ),
    "nobody appended it": (
        [APPEND, op(3, "read", 3, [["z"], False], (45, 50))],
        "The read by process 3 read 'z' at offset 3, which nobody had appended.",
    ),
    "that append failed": (
        [APPEND, op(2, "append", ["z"], None, (0, 9), outcome=FAIL), op(3, "read", 3, [["z"], False], (45, 50))],
        "The read by process 3 read 'z' at offset 3, which only the append by process 2 tried to append, and that "
        "failed.",
    ),
    "read before its append": (
        [APPEND, op(2, "append", ["z"], None, (60, None), outcome=INFO), op(3, "read", 3, [["z"], False], (45, 50))],
        "The read by process 3 read 'z' at offset 3, which nobody had appended: the append by process 2 was called 10 "
        "ms later.",
    ),
    "read of what can only have come later": (
        [
            APPEND,
            op(2, "append", ["y"], None, (0, None), outcome=INFO),
            op(3, "end", None, 4, (15, 20)),
            op(4, "append", ["z"], None, (30, None), outcome=INFO),
            op(5, "read", 3, [["z"], False], (45, 50)),
        ],
        "The read by process 5 read 'z' at offset 3, which only the append by process 4 can have put there, and that "
        "was called after process 3 had been told that the end is 4.",
    ),
    "after nothing": (
        [APPEND, op(2, "append", [], 3, (15, 20)), op(3, "end", None, 0, (45, 50))],
        "The end by process 3 returned offset 0 as the end, although the append of offsets 0 to 2 had been "
        "acknowledged 35 ms before it began.",
    ),
    "at two places": (
        [
            op(2, "append", ["z"], None, (0, None), outcome=INFO),
            op(3, "read", 0, [["z", "z"], False], (45, 50)),
        ],
        "What the append by process 2 appended was read at two places, once at offset 1.",
    ),
    "a hole": (
        [APPEND, op(3, "end", None, 5, (45, 50))],
        "The end by process 3 returned offset 5 as the end, but nobody had appended offset 3.",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_violation_of_a_log_is_told_in_words(name: str) -> None:
    operations, words = TOLD[name]
    verdict = check(History.of(operations), Log())
    assert isinstance(verdict, Invalid)
    assert verdict.witness.words == words
    assert verdict.witness.minimal


@pytest.mark.parametrize(
    "operations",
    [
        [APPEND, op(3, "end", None, 3, (45, 50))],
        [APPEND, op(3, "read", 0, [["a"], False], (45, 50))],
        [APPEND, op(3, "end", None, 0, (10, 50))],  # called at the instant at which the append was acknowledged
        [APPEND, op(2, "append", ["z"], None, (60, None), outcome=INFO), op(3, "read", 3, [["z"], False], (45, 60))],
        [APPEND, op(2, "append", ["z"], None, (0, None), outcome=INFO), op(3, "end", None, 4, (45, 50))],
    ],
)
def test_what_only_looks_like_a_violation_is_none(operations: list[Operation]) -> None:
    assert isinstance(check(History.of(operations), Log()), Valid)


@pytest.mark.parametrize("outcome", [OK, INFO])
def test_a_record_that_was_a_tuple_may_be_read_as_a_list(outcome: Outcome) -> None:
    answer, returned = (0, 40) if outcome is OK else (None, None)
    append = op(1, "append", (("k", 1), {"v": (2,)}), answer, (0, returned), outcome=outcome)
    read = op(2, "read", 0, [[["k", 1], {"v": [2]}], True], (50, 60))
    assert isinstance(check(History.of([append, read]), Log()), Valid)
    assert isinstance(check_online(History.of([append, read]), Log()), Valid)
    other = op(2, "read", 0, [[["k", 1], [["v", [2]]]], True], (50, 60))
    assert isinstance(check(History.of([append, other]), Log()), Invalid)


def test_a_long_log_with_many_unknown_outcomes_is_judged_in_time_linear_in_its_length() -> None:
    """Every third append is of unknown outcome, and nobody saw its record: as many gaps, and the ends seen behind."""
    steps = []
    for length in (2_000, 4_000):
        operations = []
        for at in range(length):
            unknown = at % 3 == 0
            outcome = INFO if unknown else OK
            times = (2 * at, None if unknown else 2 * at + 1)
            operations.append(op(1, "append", [at], None if unknown else at, times, outcome=outcome))
            if not unknown:
                operations.append(op(2, "read", at, [[at], True], (2 * at, 2 * at + 1)))
        history = History.of(operations)
        counted = 0

        def count(frame: object, event: str, _: object) -> None:
            nonlocal counted
            counted += event in ("call", "c_call")

        sys.setprofile(count)
        try:
            verdict = check(history, Log())
        finally:
            sys.setprofile(None)
        assert isinstance(verdict, Valid)
        steps.append(counted)
    assert steps[1] < 2.2 * steps[0]


def test_of_two_appends_that_are_one_sent_twice_either_explains_a_record() -> None:
    sent = op(1, "append", ("a", "b"), None, (1, None), outcome=INFO)
    other = op(2, "append", ("c",), 2, (2, 3))
    read = op(3, "read", 3, (("a", "b"), True), (5, 6))
    assert check_log([other, read, sent, replace(sent)], complete=True) is None
    found = check_log([other, read, sent], complete=True)
    assert found is not None and found.kind == "gap", "nobody appended what is at 0"
    with pytest.raises(Undecided):
        check_log([other, read, sent, replace(sent, call=2 * MS)], complete=True)
