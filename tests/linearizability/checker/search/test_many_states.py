"""Objects that come to be in thousands of states: what that costs, and how little of their past a witness needs."""

from __future__ import annotations

from typing import Any

import pytest

from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import INFO, OK, Operation
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.counter import Counter
from raftlog.linearizability.checker.models.lock import Lock
from raftlog.linearizability.checker.models.sets import NumberedSet, Set
from raftlog.linearizability.checker.verdict import Invalid, Valid

MANY = 5_000  # more states than the past is cut off with


def one_after_another(steps: list[tuple[str, Any, Any]]) -> list[Operation]:
    return [
        Operation(number % 5, function, given, answer, None, 10 * number, 10 * number + 5, OK)
        for number, (function, given, answer) in enumerate(steps)
    ]


LATE: dict[str, tuple[Model[Any], list[tuple[str, Any, Any]]]] = {
    "lock": (
        Lock(),
        [step for token in range(MANY) for step in (("acquire", None, token), ("release", token, True))]
        + [("acquire", None, 17)],
    ),
    "counter": (Counter(), [("add", 1, number + 1) for number in range(MANY)] + [("read", None, 17)]),
}


@pytest.mark.parametrize("name", LATE)
def test_a_fault_after_thousands_of_states_is_shown_by_the_last_operations(name: str) -> None:
    model, steps = LATE[name]
    verdict = check(one_after_another(steps), model)
    assert isinstance(verdict, Invalid)
    witness = verdict.witness
    assert witness.minimal and len(witness.operations) <= 3
    assert isinstance(check(witness.alone(), witness.model), Invalid)
    assert witness.operations[-1] in verdict.parts[0].operations


def added(count: int) -> list[Operation]:
    """Adds of ten clients, each over in the time of twenty calls, every seventh of unknown outcome."""
    adds = [Operation(number % 10, "add", number, None, None, number, number + 20, OK) for number in range(count)]
    for add in adds[::7]:
        add.outcome = INFO
    return adds


@pytest.mark.parametrize("key", [None, "k"])
def test_a_set_of_thousands_fits_into_a_little_memory(key: str | None) -> None:
    operations = added(4_000)
    present = [add.input for add in operations if add.outcome is OK]
    operations.append(Operation(99, "read", None, present, None, 5_000, 5_001, OK))
    for operation in operations:
        operation.key = key
    assert isinstance(check(operations, Set(), budget=Budget(megabytes=100)), Valid)


def test_an_element_that_a_set_has_lost_is_named() -> None:
    operations = [add for add in added(1_200) if add.outcome is OK]
    present = [add.input for add in operations if add.input != 500]
    operations.append(Operation(99, "read", None, present, None, 5_000, 5_001, OK))
    verdict = check(operations, Set())
    assert isinstance(verdict, Invalid)
    witness = verdict.witness
    assert witness.minimal and len(witness.operations) == 2
    told = "The read by process 99 left out 500, which the set holds; add(500) by process 0 had returned 4.48 µs before"
    assert witness.words.startswith(told)


def test_the_elements_of_a_set_have_numbers_only_where_they_are_few_or_there_is_one_set() -> None:
    operations = [*added(1_200), Operation(99, "read", None, [], None, 0, 1, OK)]
    assert isinstance(Set().suited(operations), NumberedSet)
    operations[5].key = "another"
    assert type(Set().suited(operations)) is Set
    assert isinstance(Set().suited([operations[5], operations[-1]]), NumberedSet)
