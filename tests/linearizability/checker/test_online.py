"""The online form: the same answers as the check of a finished history, at once, in memory that does not grow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import OK, EventType, HistoryError, Operation
from raftlog.linearizability.checker.models.log import Log
from raftlog.linearizability.checker.models.register import Register
from raftlog.linearizability.checker.online import OnlineCheck
from raftlog.linearizability.checker.recorder import Recorder
from raftlog.linearizability.checker.verdict import Invalid, Status, Unknown, Valid, Verdict
from tests.effort import at_least
from tests.linearizability.checker.as_it_grows import check_online
from tests.linearizability.checker.brute_force import is_linearizable
from tests.linearizability.checker.endless import Growing, GrowingLog
from tests.linearizability.checker.objects import WORLDS, scramble
from tests.paths import ROOT


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(WORLDS))
def test_a_growing_history_gets_the_answer_of_the_finished_one(name: str) -> None:
    world = WORLDS[name]
    for seed in range(at_least(500)):
        random = Random(seed)
        history = scramble(world, random, count=random.randint(1, 9))
        online = check_online(history, world.model)
        assert online.status is check(history, world.model).status, seed
        if isinstance(online, Invalid) and seed % 4 == 0:
            alone = online.witness.alone().operations
            assert not is_linearizable(online.witness.model, alone), seed
            assert online.witness.minimal, seed


def growing(name: str, seed: int) -> Growing:
    return GrowingLog(seed) if name == "log" else Growing(WORLDS[name], seed)


@pytest.mark.parametrize("name", ["register", "unique-register", "cas-register", "counter", "log"])
def test_a_fault_after_a_long_time_is_found_at_once_and_explained(name: str) -> None:
    world = WORLDS[name]
    source = growing(name, 7)
    online = OnlineCheck(world.model)
    assert online.extend(source.events(4_000)) is None
    fed = 0
    for kind, operation in source.events(2_000):
        assert isinstance(operation, Operation)
        if kind is EventType.OK and operation.function == "read" and not fed:
            if name == "log":
                operation.output[0][:1] = ["never written"]
            else:
                operation.output = -77
            fed = 1
        fed += fed > 0
        if online.feed((kind, operation)) is not None:
            break
    assert isinstance(online.verdict, Invalid)
    assert fed < 400
    witness = online.verdict.witness
    assert witness.minimal and len(witness.operations) <= 3
    assert online.feed((EventType.INVOKE, operation)) is online.verdict


def test_a_recorder_can_be_checked_while_it_records() -> None:
    ticks = iter(range(1_000))
    recorder = Recorder(lambda: next(ticks))
    online = OnlineCheck(Register())
    first = recorder.invoke(0, "write", 1)
    assert online.extend(recorder.drain()) is None
    recorder.ok(first)
    stale = recorder.invoke(1, "read")
    recorder.ok(stale, None)
    recorder.ok(recorder.invoke(1, "read"), 1)
    online.extend(recorder.drain())
    verdict = online.finish()
    assert isinstance(verdict, Invalid)
    assert verdict.witness.refused is stale
    assert verdict.witness.words.startswith("The read by process 1 answered None, but the register holds 1")


@pytest.mark.parametrize(
    ("function", "given", "output", "status"),
    [
        ("end", None, 5, Status.INVALID),
        ("append", [], 5, Status.INVALID),
        ("append", ["new"], 5, Status.INVALID),
        ("read", 3, [[], True], Status.INVALID),
        ("read", 3, [["wrong"], False], Status.UNKNOWN),  # nobody knows any more what was there
    ],
)
def test_an_answer_about_what_a_log_has_forgotten_is_judged_by_what_is_left(
    function: str, given: Any, output: Any, status: Status
) -> None:
    online = OnlineCheck(Log())

    def done(function: str, given: Any, output: Any, time: int) -> None:
        operation = Operation(1, function, given, call=time)
        online.feed((EventType.INVOKE, operation))
        operation.output, operation.returned, operation.outcome = output, time + 1, OK
        online.feed((EventType.OK, operation))

    for number in range(1_000):
        done("append", [f"{number}.{place}" for place in range(100)], 100 * number, 2 * number)
    assert online.verdict is None
    done(function, given, output, 2_000)
    verdict = online.finish()
    assert verdict.status is status
    if isinstance(verdict, Unknown):
        assert "told of records that had been forgotten" in verdict.reason


def test_what_never_returns_holds_nothing_back_for_ever() -> None:
    online = OnlineCheck(Register(), patience=50)
    stuck = Operation(9, "write", 5, call=0)
    assert online.feed((EventType.INVOKE, stuck)) is None
    for event in Growing(WORLDS["register"], 3).events(400):
        assert online.feed(event) is None
    wrong = Operation(2, "read", None, call=10_000)
    online.feed((EventType.INVOKE, wrong))
    wrong.outcome, wrong.output, wrong.returned = OK, "nobody wrote this", 10_001
    assert isinstance(online.feed((EventType.OK, wrong)) or online.finish(), Invalid)


def test_an_answer_that_came_too_late_to_be_judged_leaves_the_verdict_unknown() -> None:
    online = OnlineCheck(Register(), patience=50)
    stuck = Operation(9, "read", None, call=0)
    online.feed((EventType.INVOKE, stuck))
    online.extend(Growing(WORLDS["register"], 3).events(400))
    stuck.outcome, stuck.output, stuck.returned = OK, "nobody wrote this", 100_000
    online.feed((EventType.OK, stuck))
    verdict = online.finish()
    assert isinstance(verdict, Unknown)
    assert "answers came so late" in verdict.reason


def test_a_call_that_takes_the_place_in_memory_of_one_that_was_lost_is_another() -> None:
    online = OnlineCheck(Register(), patience=5)
    online.feed((EventType.INVOKE, Operation("lost", "read", None, call=0)))
    for number in range(2000):
        operation = Operation(1, "write", number, call=2 * number + 1)
        online.feed((EventType.INVOKE, operation))
        operation.outcome, operation.returned = OK, 2 * number + 2
        online.feed((EventType.OK, operation))
    assert isinstance(online.finish(), Valid)


def test_an_operation_of_another_model_is_refused() -> None:
    with pytest.raises(HistoryError, match="'enqueue' is no function of the model log"):
        OnlineCheck(Log()).feed((EventType.INVOKE, Operation(0, "enqueue", 1, line=3)))


PROGRAM = """
import sys
from tests.linearizability.checker.endless import Growing, GrowingLog
from tests.linearizability.checker.objects import WORLDS
from raftlog.linearizability.checker.online import OnlineCheck

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * 4096

name, operations = sys.argv[1], int(sys.argv[2])
source = GrowingLog(1) if name == "log" else Growing(WORLDS[name], 1)
online = OnlineCheck(WORLDS[name].model)
sizes = []
for part in range(5):
    assert online.extend(source.events(operations // 5)) is None
    sizes.append(resident())
print(sizes[1], sizes[-1], online.finish().status.value)
"""


def test_an_answer_that_waited_until_the_log_forgets_is_judged_before() -> None:
    """A read of what is not there yet, and its append with another record, each among operations enough to forget."""
    online = OnlineCheck(Log())
    clock = iter(range(1 << 20))
    length = 0

    def done(function: str, given: Any, output: Any) -> Verdict | None:
        call = next(clock)
        operation = Operation(1, function, given, output, None, call, next(clock), OK)
        online.feed((EventType.INVOKE, operation))
        return online.feed((EventType.OK, operation))

    def grow() -> Verdict | None:
        nonlocal length
        length += 1000
        return done("append", ["x"] * 1000, length - 1000)

    late = Operation(2, "append", ["good"], 70_000, None, next(clock), 1 << 20, OK)
    online.feed((EventType.INVOKE, late))
    for _ in range(70):
        assert grow() is None
    assert done("read", 70_000, [["bad"], False]) is None
    for _ in range(64):
        assert done("read", 0, [[], False]) is None
    online.feed((EventType.OK, late))
    length += 1
    verdicts = [grow() for _ in range(64)]
    verdict = verdicts[-1]
    assert isinstance(verdict, Invalid)
    assert verdict.witness.words == "The read by process 1 read 'bad' at offset 70000, which nobody had appended."


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
@pytest.mark.parametrize(("name", "operations"), [("log", 400_000), ("unique-register", 30_000)])
def test_memory_is_bounded_by_what_is_open(name: str, operations: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name, str(operations)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    early, late, status = done.stdout.split()
    assert status == Status.VALID.value
    assert int(late) < 100 << 20
    assert int(late) - int(early) < 4 << 20
