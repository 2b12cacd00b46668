"""Values of a register that came back more often than they were written, found without search."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.linearizability.checker.budget import Budget, Meter
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.exact.overwritten import check_overwritten
from raftlog.linearizability.checker.exact.write_counts import check_write_counts
from raftlog.linearizability.checker.history import INFO, OK, History, HistoryError, Operation, TimeUnit
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.parts.register import RegisterPart
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.verdict import Invalid, Status
from tests.effort import at_least
from tests.linearizability.checker.brute_force import is_linearizable
from tests.linearizability.checker.exact.test_overwritten import crowd
from tests.linearizability.checker.objects import WORLDS, record, scramble

REGISTERS = ["register", "cas-register"]


def write(value: object, call: int, returned: int | None = None) -> Operation:
    """Of unknown outcome without a return."""
    return Operation(call, "write", value, None, None, call, returned, INFO if returned is None else OK)


def read(value: object, call: int, returned: int) -> Operation:
    return Operation(call, "read", None, value, None, call, returned, OK)


def found(*operations: Operation, initial: object = None) -> Operation | None:
    return check_write_counts(History.of(operations).operations, initial)


@pytest.mark.parametrize("name", REGISTERS)
def test_what_was_called_before_the_answer_that_it_finds_returned_is_what_the_definition_refuses(name: str) -> None:
    world = WORLDS[name]
    alone = 0
    for seed in range(at_least(4_000)):
        random = Random(seed)
        if seed % 2:
            history = record(world, random, count=random.randint(3, 10), clients=3, unknown=0.2, wrong=0.3)
        else:
            history = scramble(world, random, count=random.randint(3, 9))
        answer = check_write_counts(history.operations)
        if answer is None:
            continue
        assert not is_linearizable(world.model, [one for one in history.operations if one.call <= answer.end]), seed
        alone += check_overwritten(history.operations) is None
    assert alone > 10


@pytest.mark.parametrize("name", REGISTERS)
def test_it_finds_whatever_was_overwritten(name: str) -> None:
    world = WORLDS[name]
    overwritten = 0
    for seed in range(at_least(3_000)):
        random = Random(seed)
        history = record(world, random, count=random.randint(3, 30), clients=4, unknown=0.1, wrong=0.2)
        if check_overwritten(history.operations) is not None:
            overwritten += 1
            assert check_write_counts(history.operations) is not None, seed
    assert overwritten > 300


def test_a_value_that_another_came_between_was_written_twice() -> None:
    history = [write(1, 0), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7), read(1, 10, 11)]
    assert found(*history) is history[-1]
    assert found(*history, write(1, 8)) is None
    assert found(*history, write(1, 12)) is history[-1]
    assert found(*history[:-1], read(2, 10, 11)) is None


def test_another_value_that_may_have_been_there_before_both_answers_or_after_comes_not_between() -> None:
    history = [write(1, 0), write(2, 1), read(2, 3, 4)]
    assert found(*history, read(1, 2, 3), read(1, 5, 6)) is None
    assert found(*history, read(1, 1, 2), read(1, 4, 6)) is None
    last = read(1, 5, 6)
    assert found(*history, read(1, 1, 2), last) is last


def test_one_write_of_unknown_outcome_explains_any_number_of_answers_that_nothing_comes_between() -> None:
    history = [write(1, 0), *(read(1, 10 * n, 10 * n + 5) for n in range(1, 9))]
    assert found(*history) is None
    assert found(*history, write(2, 3, 4)) is None


def test_a_write_that_returned_before_another_value_was_there_explains_no_later_answer() -> None:
    history = [write(1, 0, 20), write(2, 1)]
    late = read(1, 40, 41)
    assert found(*history, read(2, 30, 31), late) is late
    assert found(*history, read(2, 10, 31), late) is None


def test_what_was_there_at_first_was_there_once_without_a_write() -> None:
    history = [read(0, 0, 1), read(0, 2, 3), write(1, 4, 5), read(0, 6, 7)]
    assert found(*history, initial=0) is history[-1]
    assert found(*history, write(0, 3), initial=0) is None
    assert found(*history[:3], initial=0) is None
    assert found(*history[:3], initial=7) is history[0]


def test_a_compare_and_set_that_leaves_what_it_found_brings_nothing_back() -> None:
    one = Operation(0, "cas", [3, 3], True, None, 0, 10, OK)
    perhaps = Operation(1, "cas", [3, 3], None, None, 0, None, INFO)
    assert found(one, perhaps) is one
    assert found(one, perhaps, initial=3) is None


def test_lists_and_objects_are_values_too() -> None:
    history = [write([1, {"a": 2}], 0), read([1, {"a": 2}], 2, 3), read(None, 4, 5)]
    assert found(*history) is history[-1]
    assert found(*history[:2]) is None
    with pytest.raises(HistoryError):
        found(write(float("nan"), 0, 1), read(float("nan"), 2, 3), read(1, 4, 5))


@pytest.mark.parametrize("name", REGISTERS)
def test_what_it_finds_is_explained_as_the_search_would_explain_it(name: str) -> None:
    world = WORLDS[name]
    explained = 0
    for seed in range(at_least(500)):
        random = Random(seed)
        history = record(world, random, count=random.randint(10, 60), clients=4, unknown=0.1, wrong=0.1)
        if check_write_counts(history.operations) is None or check_overwritten(history.operations) is not None:
            continue
        verdict = check(history, world.model)
        assert isinstance(verdict, Invalid), seed
        if verdict.parts[0].algorithm == "zones":
            continue
        explained += 1
        search = SearchPart(world.model, history.operations)
        assert search.run(Meter(Budget())) is Status.INVALID, seed
        own = search.witness(None, TimeUnit.NANOSECONDS, Meter(Budget()))
        assert (verdict.witness.operations, verdict.witness.words) == (own.operations, own.words), seed
        assert verdict.witness.prefix_end == own.prefix_end, seed
    assert explained > 5


def test_where_the_search_takes_too_long_all_that_was_known_by_the_return_has_to_do() -> None:
    operations = [write(1, 0), read(1, 2, 3), write(2, 4, 5), read(2, 6, 7), read(1, 10, 11)]
    right = RegisterPart(Register(), History.of([*operations, write(1, 9, 30)]).operations)
    assert right.run(Meter(Budget())) is Status.VALID
    part = RegisterPart(Register(), History.of([*operations, write(1, 12, 30)]).operations)
    assert part.run(Meter(Budget())) is Status.INVALID
    assert part.end() == 11
    witness = part.witness(None, TimeUnit.NANOSECONDS, Meter(Budget(configurations=0)))
    assert witness.prefix_end == 11
    assert not witness.minimal
    assert witness.refused.call == 10
    assert not is_linearizable(witness.model, witness.alone().operations)


def test_a_thousand_clients_do_not_hide_it() -> None:
    last = read(1, 9_600, 9_700)
    come = [write(9, 9_000), read(9, 9_100, 9_200), read(1, 9_300, 9_400), read(9, 9_500, 9_550)]
    verdict = check([*crowd(last), *come, write(1, 9_250)], CasRegister(), budget=Budget(configurations=100_000))
    assert isinstance(verdict, Invalid)
    assert verdict.parts[0].configurations == 0
