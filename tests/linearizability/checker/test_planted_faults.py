"""A correct object with arbitrary overlapping intervals is always valid; one fault planted in it is always found."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import OK, History, Operation
from raftlog.linearizability.checker.verdict import Invalid, Unknown
from tests.effort import at_least
from tests.linearizability.checker.brute_force import is_linearizable
from tests.linearizability.checker.objects import WORLDS, record

NOBODY = "nobody ever wrote this"


def stale_log_end(operation: Operation) -> bool:
    if operation.function != "end" or operation.output == 0:
        return False
    operation.output = 0
    return True


def answers(function: str, value: Any) -> Callable[[Operation], bool]:
    def spoil(operation: Operation) -> bool:
        if operation.function != function:
            return False
        operation.output = value
        return True

    return spoil


def strange_record(operation: Operation) -> bool:
    if operation.function != "read" or not operation.output[0]:
        return False
    operation.output = [[NOBODY, *operation.output[0][1:]], operation.output[1]]
    return True


# A fault that no order can explain, whatever else happened.
FAULTS: dict[str, Callable[[Operation], bool]] = {
    "register": answers("read", NOBODY),
    "unique-register": answers("read", NOBODY),
    "cas-register": answers("read", NOBODY),
    "key-value": answers("get", NOBODY),
    "log": strange_record,
    "queue": answers("dequeue", NOBODY),
    "set": answers("read", [NOBODY]),
    "counter": answers("read", 10**6),
    "offsets": answers("fetch", 10**6),
}


@pytest.mark.parametrize("name", sorted(WORLDS))
@pytest.mark.parametrize("unknown", [0.0, 0.03])
def test_what_a_correct_object_answered_is_valid(name: str, unknown: float) -> None:
    undecided = 0
    for seed in range(40):
        random = Random(seed)
        clients = random.randint(1, 4 if name == "queue" else 8)  # many at a queue fit many orders
        history = record(WORLDS[name], random, count=random.randint(1, 120), clients=clients, unknown=unknown)
        verdict = check(history, WORLDS[name].model, budget=Budget(configurations=50_000))
        assert not isinstance(verdict, Invalid), seed
        undecided += isinstance(verdict, Unknown)
    assert undecided <= (4 if unknown else 0)


@pytest.mark.parametrize("name", sorted(FAULTS))
def test_one_planted_fault_is_found_and_shown_by_a_minimal_witness(name: str) -> None:
    world = WORLDS[name]
    planted = 0
    for seed in range(30):
        random = Random(seed)
        history = record(world, random, count=random.randint(20, 120), clients=random.randint(2, 5))
        order = [operation for operation in history.operations if operation.outcome is OK]
        random.shuffle(order)
        fault = next((operation for operation in order if FAULTS[name](operation)), None)
        if fault is None:
            continue
        planted += 1
        verdict = check(History.of(history.operations), world.model)
        assert isinstance(verdict, Invalid), seed
        witness = verdict.witness
        assert witness.minimal, seed
        assert any(operation is fault for operation in witness.operations), seed
        assert not is_linearizable(witness.model, witness.alone().operations), seed
    assert planted > 20


def test_a_stale_end_of_a_log_is_found_wherever_it_is() -> None:
    found = 0
    for seed in range(at_least(60)):
        random = Random(seed)
        history = record(WORLDS["log"], random, count=60, clients=3)
        early = next((op for op in history.operations if op.function == "append" and op.output is not None), None)
        ends = [op for op in history.operations if early is not None and early.precedes(op)]
        fault = next((operation for operation in ends if stale_log_end(operation)), None)
        if fault is None:
            continue
        found += 1
        verdict = check(History.of(history.operations), WORLDS["log"].model)
        assert isinstance(verdict, Invalid), seed
        assert any(operation is fault for operation in verdict.witness.operations), seed
        assert len(verdict.witness.operations) == 2, seed
    assert found > 30
