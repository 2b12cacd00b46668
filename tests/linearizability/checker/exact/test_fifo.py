"""Queues of values that all differ: the check without search against the definition, and what is said of violations."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.verdict import Invalid, Valid
from tests.effort import at_least
from tests.linearizability.checker.brute_force import is_linearizable
from tests.linearizability.checker.test_against_brute_force import assert_explains

pytestmark = pytest.mark.long

HISTORIES = at_least(3_000)


def recorded(
    random: Random, count: int, *, clients: int = 10, unknown: float = 0.0, failed: float = 0.0
) -> list[Operation]:
    """What a correct queue answered: each operation takes effect at some moment of its interval, or never."""
    inside: list[int] = []
    operations = []
    width = random.choice((0, 1, 3, clients))
    moments = sorted(random.randint(0, random.choice((count // 2, count, 4 * count))) for _ in range(count))
    for number, moment in enumerate(moments):
        outcome = INFO if random.random() < unknown else FAIL if random.random() < failed else OK
        happens = outcome is OK or (outcome is INFO and random.random() < 0.5)
        interval = (moment - random.randint(0, width), moment + random.randint(0, width))
        operation = Operation(number % clients, "dequeue", None, None, None, *interval, outcome)
        if random.random() < 0.5:
            operation.function, operation.input = "enqueue", number
            if happens:
                inside.append(number)
        elif happens and inside:
            value = inside.pop(0)
            operation.output = value if outcome is OK else None
        operations.append(operation)
    return operations


def spoil(operations: list[Operation], random: Random) -> None:
    """Let one dequeue answer something else."""
    dequeues = [one for one in operations if one.function == "dequeue" and one.outcome is OK]
    if dequeues:
        chosen = random.choice(dequeues)
        chosen.output = random.choice((None, random.choice(dequeues).output, random.randrange(len(operations))))


def test_it_says_what_the_definition_says() -> None:
    seen = {True: 0, False: 0}
    for seed in range(HISTORIES):
        random = Random(seed)
        unknown = random.choice((0, 0, 0.2, 0.4))
        operations = recorded(random, random.randint(1, 9), unknown=unknown, failed=0.05)
        if random.random() < 0.6:
            spoil(operations, random)
        history = History.of(operations)
        verdict = check(history, Queue())
        assert verdict.parts[0].algorithm == "fifo"
        expected = is_linearizable(Queue(), operations)
        assert isinstance(verdict, Valid if expected else Invalid), seed
        seen[expected] += 1
        if isinstance(verdict, Invalid) and seed % 4 == 0:
            assert_explains(verdict, history, seed)
    assert min(seen.values()) > HISTORIES // 10, seen


@pytest.mark.parametrize("unknown", [0.0, 0.05])
def test_many_clients_are_no_matter(unknown: float) -> None:
    random = Random(1)
    operations = recorded(random, 20_000, clients=60, unknown=unknown)
    assert isinstance(check(operations, Queue()), Valid)
    answered = [one for one in operations if one.function == "dequeue" and one.output is not None]
    answered[-10].output, answered[-200].output = answered[-200].output, answered[-10].output
    verdict = check(operations, Queue())
    assert isinstance(verdict, Invalid) and verdict.witness.minimal and len(verdict.witness.operations) <= 3


def op(process: int, function: str, value: Any, call: int, returned: int | None) -> Operation:
    given, answer = (value, None) if function == "enqueue" else (None, value)
    outcome = INFO if returned is None else OK
    return Operation(process, function, given, answer, None, call, returned, outcome)


TOLD = {
    "nobody enqueued it": (
        [op(1, "enqueue", "a", 0, 1), op(2, "dequeue", "b", 2, 3)],
        "The dequeue by process 2 answered 'b', which nobody had enqueued.",
    ),
    "enqueued later": (
        [op(1, "enqueue", "a", 10, 11), op(2, "dequeue", "a", 2, 3)],
        "The dequeue by process 2 answered 'a' 7 ns before its enqueue was called.",
    ),
    "twice": (
        [op(1, "enqueue", "a", 0, 1), op(2, "dequeue", "a", 2, 3), op(3, "dequeue", "a", 2, 4)],
        "The dequeue by process 2 and the dequeue by process 3 both answered 'a', which was enqueued once.",
    ),
    "overtaken": (
        [op(1, "enqueue", "a", 0, 1), op(1, "enqueue", "b", 4, 5), op(2, "dequeue", "b", 6, 7)],
        "The dequeue by process 2 answered 'b', although 'a' had been enqueued 3 ns before it and was still inside.",
    ),
    "not empty": (
        [op(1, "enqueue", "a", 0, 1), op(2, "dequeue", None, 2, 5), op(3, "dequeue", "a", 6, 7)],
        "The dequeue by process 2 found the queue empty, although it held 'a' then.",
    ),
    "two values and one that may have taken them": (
        [
            *(op(1, "enqueue", value, 2 * place, 2 * place + 1) for place, value in enumerate("abc")),
            op(4, "dequeue", None, 0, None),
            op(2, "dequeue", "c", 10, 11),
        ],
        "More values should be gone than dequeues of unknown outcome can have removed.",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_a_violation_is_told_in_words(name: str) -> None:
    operations, words = TOLD[name]
    verdict = check(operations, Queue())
    assert isinstance(verdict, Invalid)
    assert verdict.witness.words.startswith(words)
    assert verdict.witness.minimal


def test_values_that_come_twice_are_left_to_the_search() -> None:
    enqueues = [op(1, "enqueue", 7, 0, 1), op(1, "enqueue", 7, 2, 3)]
    verdict = check([*enqueues, op(2, "dequeue", 7, 4, 5), op(2, "dequeue", 7, 6, 7)], Queue())
    assert isinstance(verdict, Valid) and verdict.parts[0].algorithm == "search"


def test_a_dequeue_that_later_found_nothing_does_not_make_the_witness_longer() -> None:
    history = History.of(
        [
            Operation(2, "enqueue", 0, None, None, 1, 8, OK),
            Operation(0, "enqueue", 2, None, None, 4, 8, OK),
            Operation(0, "enqueue", 3, None, None, 9, 14, OK),
            Operation(2, "dequeue", None, 0, None, 10, 14, OK),
            Operation(2, "dequeue", None, None, None, 14, 15, OK),
            Operation(1, "dequeue", None, 3, None, 12, 16, OK),
            Operation(2, "dequeue", None, None, None, 16, 19, OK),
        ]
    )
    verdict = check(history, Queue())
    assert isinstance(verdict, Invalid)
    assert_explains(verdict, history, 0)
    assert {operation.input or operation.output for operation in verdict.witness.operations} == {2, 3}
    assert "than dequeues of unknown outcome" not in verdict.witness.words
