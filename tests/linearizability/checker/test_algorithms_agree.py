"""The algorithms against each other, on histories too long to try out literally."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.budget import Budget, Meter
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.exact.zones import NotUnique, check_zones
from raftlog.linearizability.checker.history import History, Operation
from raftlog.linearizability.checker.log.check import check_log
from raftlog.linearizability.checker.log.gaps import Undecided
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.models.register import Register
from raftlog.linearizability.checker.search.search import Search
from raftlog.linearizability.checker.verdict import Status, Unknown
from tests.effort import at_least
from tests.linearizability.checker.brute_force import is_linearizable
from tests.linearizability.checker.objects import WORLDS, World, record

pytestmark = pytest.mark.long


def some_wrong(world: World, random: Random, count: int) -> History:
    wrong = random.choice((0.0, 0.02, 0.1))
    return record(world, random, count=count, clients=random.randint(2, 6), unknown=0.02, wrong=wrong)


def searched(model: Model[Any], operations: Sequence[Operation]) -> Status:
    return Search(model, operations).run(Meter(Budget(configurations=500_000)))


def test_zones_say_what_the_search_says() -> None:
    world = WORLDS["unique-register"]
    seen = dict.fromkeys(Status, 0)
    for seed in range(at_least(600)):
        random = Random(seed)
        history = some_wrong(world, random, random.randint(5, 60))
        try:
            violation = check_zones(history.operations)
        except NotUnique:
            continue
        status = searched(Register(), history.operations)
        assert (violation is None) == (status is Status.VALID), seed
        seen[status] += 1
    assert min(seen[Status.VALID], seen[Status.INVALID]) > 50


def test_the_log_check_says_what_the_search_says() -> None:
    seen = dict.fromkeys(Status, 0)
    for seed in range(at_least(400)):
        random = Random(seed)
        history = some_wrong(WORLDS["log"], random, random.randint(5, 40))
        try:
            violation = check_log(history.operations, complete=True)
        except Undecided:
            continue
        status = searched(Log(), history.operations)
        assert (violation is None) == (status is Status.VALID), seed
        seen[status] += 1
    assert min(seen[Status.VALID], seen[Status.INVALID]) > 50


@pytest.mark.parametrize("name", sorted({*WORLDS} - {"log", "partial-log", "equal-records"}))
def test_the_search_says_what_the_definition_says_of_longer_histories(name: str) -> None:
    world = WORLDS[name]
    for seed in range(at_least(60)):
        random = Random(seed)
        history = some_wrong(world, random, random.randint(15, 25))
        expected = Status.VALID if is_linearizable(world.model, history.operations) else Status.INVALID
        assert check(history, world.model).status is expected, seed


@pytest.mark.parametrize("name", sorted(WORLDS))
def test_a_small_budget_never_turns_the_answer_around(name: str) -> None:
    world = WORLDS[name]
    for seed in range(at_least(60)):
        random = Random(seed)
        history = some_wrong(world, random, 30)
        full = check(history, world.model)
        for configurations in (1, 30, 300):
            small = check(history, world.model, budget=Budget(configurations=configurations))
            assert isinstance(small, Unknown) or small.status is full.status, seed
