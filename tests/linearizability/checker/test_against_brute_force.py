"""Every verdict and every witness of the checker on small random histories, against the definition tried out literally.

`make check-deep` tries 100,000 histories of each kind.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.verdict import Invalid, Status, Valid
from tests.effort import at_least
from tests.linearizability.checker.brute_force import is_linearizable
from tests.linearizability.checker.objects import WORLDS, World, scramble

pytestmark = pytest.mark.long

HISTORIES = at_least(2_000)
EXPLAIN_EVERY = 4


def histories(world: World, count: int) -> Iterator[tuple[int, History]]:
    for seed in range(count):
        random = Random(seed)
        yield seed, scramble(world, random, count=random.randint(1, 9))


def prefix_until(model: Model[Any], history: History, end: int) -> list[Operation]:
    """What was known at a moment: the operations called by then, those still open without their answers."""
    prefix = []
    for operation in history.operations:
        if operation.outcome is FAIL or operation.call > end:
            continue
        if operation.outcome is OK and operation.end > end:
            blind = replace(operation, output=None, returned=None, outcome=INFO)
            prefix.append(model.uncertain(operation) or blind)
        else:
            prefix.append(operation)
    return prefix


def first_bad_return(model: Model[Any], history: History) -> int | None:
    """The first return after which nothing explains the part that it belongs to."""
    for operation in history.operations:
        end = operation.returned
        if operation.outcome is not OK or end is None:
            continue
        key = model.part(operation)
        if not is_linearizable(model, [one for one in prefix_until(model, history, end) if model.part(one) == key]):
            return end
    return None


def assert_explains(verdict: Invalid, history: History, seed: int) -> None:
    """The witness alone is invalid, no proper part of it is, and no shorter beginning of the history is bad."""
    witness = verdict.witness
    assert witness.minimal, seed
    assert witness.words, seed
    assert witness.refused in witness.operations, seed
    assert not is_linearizable(witness.model, witness.alone().operations), seed
    context = {id(operation) for operation in witness.context}
    for operation in witness.operations:
        assert any(operation is other for other in history.operations), seed
        if id(operation) not in context:
            assert is_linearizable(witness.model, witness.alone(without=operation).operations), seed
    assert witness.prefix_end == first_bad_return(verdict.model, history), seed
    for possible in witness.possible:
        assert possible.description, seed
        assert len({id(placed.operation) for placed in possible.linearization}) == len(possible.linearization), seed


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_the_checker_agrees_with_brute_force_and_its_witnesses_are_minimal(name: str) -> None:
    world = WORLDS[name]
    seen = dict.fromkeys(Status, 0)
    for seed, history in histories(world, HISTORIES):
        verdict = check(history, world.model)
        expected = Status.VALID if is_linearizable(world.model, history.operations) else Status.INVALID
        assert verdict.status is expected, seed
        seen[verdict.status] += 1
        if seed % EXPLAIN_EVERY == 0 and isinstance(verdict, Invalid):
            assert_explains(verdict, history, seed)
        elif isinstance(verdict, Valid):
            assert all(part.witness is None for part in verdict.parts), seed
    assert min(seen[Status.VALID], seen[Status.INVALID]) > HISTORIES // 100, seen
