"""Answers of a register that no write explains, found without search."""

from __future__ import annotations

from random import Random

import pytest

from raftlog.linearizability.checker.budget import Budget, Meter
from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.exact.overwritten import check_overwritten
from raftlog.linearizability.checker.exact.zones import ZoneViolation
from raftlog.linearizability.checker.history import INFO, OK, Operation, TimeUnit
from raftlog.linearizability.checker.models.register import CasRegister, Register
from raftlog.linearizability.checker.parts.search import SearchPart
from raftlog.linearizability.checker.verdict import Invalid, Status
from tests.effort import at_least
from tests.linearizability.checker.brute_force import is_linearizable
from tests.linearizability.checker.objects import WORLDS, record

CLIENTS = 1_000


def crowd(spoilt: Operation) -> list[Operation]:
    """A thousand clients, all at once in a register of five values, then one operation more.

    Each writes 0 to 4 and reads it, so every order of the writes looks as good as any other.
    """
    writes = [Operation(n, "write", n % 5, None, None, n, 2_000 + n, OK) for n in range(CLIENTS)]
    reads = [Operation(n, "read", None, n % 5, None, 3_000 + n, 5_000 + n, OK) for n in range(CLIENTS)]
    return [*writes, *reads, spoilt]


@pytest.mark.parametrize("name", ["register", "cas-register"])
def test_what_it_finds_is_what_the_definition_refuses(name: str) -> None:
    world = WORLDS[name]
    found: dict[str, int] = {}
    for seed in range(at_least(3_000)):
        random = Random(seed)
        history = record(world, random, count=random.randint(3, 9), clients=3, unknown=0.1, wrong=0.4)
        violation = check_overwritten(history.operations)
        if violation is None:
            continue
        assert not is_linearizable(world.model, history.operations), seed
        assert not is_linearizable(world.model, violation.operations), seed
        found[violation.kind] = found.get(violation.kind, 0) + 1
    assert found["overwritten"] > 30
    assert found["early"] > 10


def test_an_answer_that_nobody_wrote_is_found_among_a_thousand_clients() -> None:
    verdict = check(crowd(Operation(CLIENTS, "read", None, 99, None, 9_000, 9_001, OK)), CasRegister())
    assert isinstance(verdict, Invalid)
    assert "answered 99, which nobody wrote" in verdict.witness.words


def test_a_value_that_was_written_over_before_the_question_is_found_among_a_thousand_clients() -> None:
    last_of_all = Operation(CLIENTS, "write", 7, None, None, 7_000, 7_001, OK)
    stale = Operation(CLIENTS + 1, "read", None, 3, None, 9_000, 9_001, OK)
    verdict = check([*crowd(last_of_all), stale], Register(), budget=Budget())
    assert isinstance(verdict, Invalid)
    assert "found 3, although 7 had been written over it" in verdict.witness.words
    assert verdict.witness.minimal


def test_writes_of_unknown_outcome_explain_but_overwrite_nothing() -> None:
    stale = Operation(CLIENTS + 1, "read", None, 3, None, 9_000, 9_001, OK)
    late = Operation(CLIENTS + 2, "read", None, 7, None, 9_100, 9_101, OK)
    perhaps = Operation(CLIENTS, "write", 7, None, None, 7_000, None, INFO)
    assert check_overwritten([*crowd(stale), perhaps, late]) is None


def test_an_answer_of_what_was_there_at_first_is_refused_once_something_was_written() -> None:
    write = Operation(0, "write", 1, None, None, 0, 10, OK)
    read = Operation(1, "read", None, None, None, 11, 12, OK)
    assert check_overwritten([write, read]) == ZoneViolation("overwritten", (None, 1), (write, read))
    assert check_overwritten([write, Operation(1, "read", None, None, None, 10, 12, OK)]) is None


def test_a_compare_and_set_that_leaves_what_it_found_is_no_write_of_what_it_found() -> None:
    alone = Operation(0, "cas", [3, 3], True, None, 0, 10, OK)
    assert check_overwritten([alone]) == ZoneViolation("unwritten", (3,), (alone,))
    assert check_overwritten([alone], initial=3) is None


@pytest.mark.parametrize("name", ["register", "cas-register"])
def test_what_it_finds_is_explained_as_the_search_would_explain_it(name: str) -> None:
    world = WORLDS[name]
    found = 0
    for seed in range(at_least(400)):
        random = Random(seed)
        history = record(world, random, count=random.randint(10, 60), clients=4, unknown=0.05, wrong=0.1)
        if check_overwritten(history.operations) is None:
            continue
        verdict = check(history, world.model)
        assert isinstance(verdict, Invalid), seed
        if verdict.parts[0].algorithm == "zones":
            continue
        found += 1
        search = SearchPart(world.model, history.operations)
        assert search.run(Meter(Budget())) is Status.INVALID, seed
        own = search.witness(None, TimeUnit.NANOSECONDS, Meter(Budget()))
        witness = verdict.witness
        assert witness.prefix_end == own.prefix_end, seed
        assert witness.operations == own.operations, seed
        assert witness.words == own.words or "which nobody wrote" in witness.words, seed
    assert found > 40
