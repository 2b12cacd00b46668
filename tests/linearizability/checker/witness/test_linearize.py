"""Orders that explain a history: they hold every operation, respect real time, and the model accepts each step."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import OK, History
from raftlog.linearizability.checker.model import REFUSED, UNKNOWN, Call, Model
from raftlog.linearizability.checker.values import freeze
from raftlog.linearizability.checker.verdict import Invalid, Placed, Valid
from raftlog.linearizability.checker.witness.linearize import respects_time
from tests.effort import at_least
from tests.linearizability.checker.objects import WORLDS, record, scramble


def assert_explains(model: Model[Any], order: tuple[Placed, ...]) -> None:
    assert respects_time(order)
    states = list(model.initial_states())
    for placed in order:
        operation = placed.operation
        output = freeze(operation.output) if operation.outcome is OK else UNKNOWN
        call = Call(operation.function, freeze(operation.input), output)
        states = [after for state in states if (after := model.step(state, call)) is not REFUSED]
        assert states, operation
        assert placed.state in states or placed.state == len(states[0])
    assert len({id(placed.operation) for placed in order}) == len(order)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(set(WORLDS) - {"partial-log"}))
def test_a_valid_history_comes_with_an_order_of_all_its_operations(name: str) -> None:
    world = WORLDS[name]
    missing = 0
    for seed in range(at_least(300)):
        random = Random(seed)
        history = record(world, random, count=random.randint(1, 30), clients=4, unknown=random.choice((0.0, 0.05)))
        verdict = check(history, world.model)
        assert isinstance(verdict, Valid), seed
        for part in verdict.parts:
            assert_explains(verdict.model, part.linearization)
            placed = {id(step.operation) for step in part.linearization}
            missing += any(op.outcome is OK and id(op) not in placed for op in part.operations)
    assert not missing


@pytest.mark.parametrize("name", ["register", "cas-register", "key-value", "queue", "counter"])
def test_an_invalid_history_comes_with_an_order_of_its_beginning(name: str) -> None:
    world = WORLDS[name]
    found = 0
    for seed in range(at_least(300)):
        random = Random(seed)
        history = scramble(world, random, count=random.randint(4, 9))
        verdict = check(history, world.model)
        for part in verdict.parts:
            assert_explains(verdict.model, part.linearization)
        found += isinstance(verdict, Invalid)
    assert found > 10


def test_a_history_without_operations_needs_no_order() -> None:
    verdict = check(History.of([]), WORLDS["register"].model)
    assert isinstance(verdict, Valid) and verdict.parts == ()
