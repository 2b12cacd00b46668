"""The search depth first: held to the one breadth first, given up at every moment, interrupted at every moment."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.linearizability.checker.budget import Budget, Meter, OutOfBudget
from raftlog.linearizability.checker.check import check, split
from raftlog.linearizability.checker.history import FAIL, INFO, OK, History, Operation, without
from raftlog.linearizability.checker.models.counter import Counter
from raftlog.linearizability.checker.models.key_value import KeyValue
from raftlog.linearizability.checker.models.queue import Queue
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.search import depth_first
from raftlog.linearizability.checker.search.search import Search
from raftlog.linearizability.checker.verdict import Invalid, Status, Valid
from tests.effort import at_least
from tests.linearizability.checker.objects import WORLDS, record

pytestmark = pytest.mark.long

SEARCHED = sorted({*WORLDS} - {"log", "partial-log", "equal-records"})


def some_history(name: str, seed: int, count: int = 40) -> History:
    random = Random(seed)
    clients, unknown = random.randint(2, 7), random.choice((0.0, 0.0, 0.05, 0.15))
    wrong = random.choice((0.0, 0.1, 0.3))
    return record(WORLDS[name], random, count=count, clients=clients, unknown=unknown, wrong=wrong)


@pytest.mark.parametrize("name", SEARCHED)
def test_both_searches_say_the_same_and_find_the_same_first_bad_return(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = WORLDS[name].model
    seen = dict.fromkeys(Status, 0)
    compared = 0
    for seed in range(at_least(120)):
        for part in split(model, some_history(name, seed).operations).values():
            operations = without(FAIL, part)
            deep, broad = Search(model, operations), Search(model, operations)
            try:
                status = deep.run(Meter(Budget(configurations=4_000)))
                with monkeypatch.context() as patch:
                    patch.setattr(depth_first, "_WRONG_TURNS", -(1 << 40))
                    assert broad.run(Meter(Budget(configurations=4_000))) is status, seed
            except OutOfBudget:
                continue
            seen[status] += 1
            if status is Status.INVALID and not (deep.may_be_inexact or broad.may_be_inexact):
                assert deep.refused == broad.refused, seed
                compared += 1
    assert min(seen[Status.VALID], seen[Status.INVALID]) > 5, seen
    assert compared > 5 or name == "queue"  # whose states without a future are gone at once


@pytest.mark.parametrize("name", ["cas-register", "counter", "queue", "set"])
def test_wherever_it_is_given_up_the_answer_is_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = WORLDS[name].model
    for seed in range(at_least(60)):
        history = some_history(name, seed, 30)
        statuses = set()
        for turns in (-(1 << 40), -40, -20, 0, 600):
            monkeypatch.setattr(depth_first, "_WRONG_TURNS", turns)
            monkeypatch.setattr(depth_first, "_ORDERS", max(turns, 1))
            monkeypatch.setattr(depth_first, "_LOOK_EVERY", 1)
            statuses.add(check(history, model).status)
        assert len(statuses) == 1, seed


@pytest.mark.parametrize("name", ["cas-register", "key-value"])
def test_it_goes_on_where_its_budget_ended(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth_first, "_LOOK_EVERY", 1)
    monkeypatch.setattr(depth_first, "_STRETCH", 3)
    model = WORLDS[name].model
    interrupted = 0
    for seed in range(40):
        history = some_history(name, seed)
        expected = check(history, model)
        for key, part in split(model, history.operations).items():
            search = Search(model, without(FAIL, part))
            while True:
                try:
                    status = search.run(Meter(Budget(configurations=2)))
                    break
                except OutOfBudget:
                    interrupted += 1
            told = next(one for one in expected.parts if one.key == key)
            assert told.status in (status, Status.UNKNOWN), seed
    assert interrupted > 100


def test_many_equal_orders_are_left_to_the_search_breadth_first() -> None:
    """Additions of unknown outcome lead to ever new states: orders of them never end."""
    operations = [Operation(place, "add", 1, None, None, 0, None, INFO) for place in range(40)]
    operations.append(Operation(99, "read", None, 41, None, 1, 2, OK))
    history = History.of(operations)
    assert isinstance(check(history, Counter(), budget=Budget(configurations=100_000)), Invalid)
    operations[-1].output = 40
    assert isinstance(check(history, Counter()), Valid)


def test_a_long_history_without_concurrency_is_one_configuration() -> None:
    operations = []
    for number in range(4_500):
        call = 4 * number
        operations.append(Operation(1, "enqueue", number, None, None, call, call + 1, OK))
        operations.append(Operation(1, "dequeue", None, number, None, call + 2, call + 3, OK))
    verdict = check(operations, Queue())
    assert isinstance(verdict, Valid)
    assert verdict.parts[0].configurations <= 10
    operations[-1].output = -1
    assert isinstance(check(operations, Queue()), Invalid)


def test_a_write_overwritten_unseen_may_return_after_the_one_that_overwrote_it() -> None:
    writes = [Operation(n, "write", n % 2, None, None, 0, 10 + n, OK) for n in range(4)]
    reads = [Operation(9, "read", None, value, None, 20 + n, 20 + n, OK) for n, value in enumerate((1, 1))]
    assert isinstance(check([*writes, *reads], Register()), Valid)
    reads[1].output = 0
    assert isinstance(check([*writes, *reads], Register()), Invalid)


@pytest.mark.parametrize("turns", [400, -(1 << 40)], ids=["depth first", "breadth first"])
def test_a_write_of_unknown_outcome_that_changes_nothing_may_hide_another(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """append a, put b, put a, append b: the second put leaves "a" behind, as it was before the first."""
    monkeypatch.setattr(depth_first, "_WRONG_TURNS", turns)
    operations = [
        Operation(0, "append", "a", None, None, 7, 9, OK),
        Operation(2, "put", "a", None, None, 12, None, INFO),
        Operation(1, "put", "b", None, None, 13, 17, OK),
        Operation(0, "append", "b", None, None, 16, 16, OK),
        Operation(1, "get", None, "ab", None, 20, 24, OK),
    ]
    assert isinstance(check(operations, KeyValue()), Valid)
    del operations[1]
    assert isinstance(check(operations, KeyValue()), Invalid)


@pytest.mark.parametrize("turns", [400, -(1 << 40)], ids=["depth first", "breadth first"])
def test_before_a_write_that_returns_one_of_unknown_outcome_may_have_served_another_operation(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compare-and-set needs the write of 2, and both come before the write of 0; so for the append and the get."""
    monkeypatch.setattr(depth_first, "_WRONG_TURNS", turns)
    operations = [
        Operation(0, "write", 0, None, None, 3, 4, OK),
        Operation(1, "cas", [2, 1], True, None, 4, 5, OK),
        Operation(2, "cas", [1, 2], False, None, 6, 9, OK),
        Operation(3, "write", 2, None, None, 0, None, INFO),
    ]
    assert isinstance(check(operations, CasRegister()), Valid)
    assert isinstance(check(operations[:3], CasRegister()), Invalid)
    operations = [
        Operation(0, "put", "c", None, None, 5, 10, OK),
        Operation(1, "append", "b", None, None, 6, 11, OK),
        Operation(2, "get", None, "ab", None, 7, 12, OK),
        Operation(3, "put", "a", None, None, 4, None, INFO),
        Operation(4, "get", None, "c", None, 20, 21, OK),
    ]
    assert isinstance(check(operations, KeyValue()), Valid)
    del operations[3]
    assert isinstance(check(operations, KeyValue()), Invalid)


def test_what_is_only_wrong_before_the_choices_remembered_is_found_breadth_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(depth_first, "_CHOICES", 2)
    monkeypatch.setattr(depth_first, "_LOOK_EVERY", 1)
    for name in ("cas-register", "key-value", "counter"):
        model = WORLDS[name].model
        for seed in range(40):
            history = some_history(name, seed)
            found = check(history, model).status
            with monkeypatch.context() as patch:
                patch.setattr(depth_first, "_CHOICES", 1_000)
                assert check(history, model).status is found, seed


@pytest.mark.parametrize("clients", [30, 300])
def test_many_clients_at_one_register_take_few_wrong_turns(clients: int) -> None:
    world = WORLDS["cas-register"]
    for seed in range(3):
        history = record(world, Random(seed), count=1_000, clients=clients)
        verdict = check(history, world.model)
        assert isinstance(verdict, Valid)
        assert verdict.parts[0].configurations < 2_000, seed
