"""A correct history is clean; with one fault in it, it shows that fault's anomaly and no other."""

from __future__ import annotations

import copy
import pickle
import random
from functools import cache

import pytest

from raftlog.linearizability.checker.history import History, Operation
from raftlog.linearizability.checker.kafka import CATALOGUE, Judgement, KafkaOptions, KafkaReport, analyze
from tests.effort import at_least
from tests.linearizability.checker.kafka import group_faults
from tests.linearizability.checker.kafka.faults import FAULTS, Fault
from tests.linearizability.checker.kafka.service import Service
from tests.linearizability.checker.kafka.story import names

WANTED = 6  # histories with each fault

# What a fault cannot show by itself: how the search ended, and what is allowed unless it is forbidden.
TOLD_ELSEWHERE = {
    "int-send-skip",
    "G0",
    "G0-process",
    "G0-realtime",
    "PL-1-cycle-exists",
    "strong-PL-1-cycle-exists",
    "PL-2-cycle-exists",
    "strong-PL-2-cycle-exists",
    "cycle-search-timeout",
    "empty-transaction-graph",
}


@cache
def pickled(seed: int, mode: str) -> bytes:
    """A correct history, which many faults begin with."""
    return pickle.dumps(Service(seed, mode=mode).run(250).operations)


def correct(seed: int, mode: str) -> list[Operation]:
    """A copy that a fault may change."""
    operations: list[Operation] = pickle.loads(pickled(seed, mode))
    return operations


def report_of(operations: list[Operation], options: KafkaOptions) -> KafkaReport:
    return analyze(History.of(operations), options)


@cache
def errors_without_fault(seed: int, mode: str, options: KafkaOptions) -> object:
    return report_of(correct(seed, mode), options).errors


def test_every_anomaly_has_a_fault_that_shows_it() -> None:
    assert {fault.name for fault in FAULTS} | TOLD_ELSEWHERE == set(CATALOGUE)
    assert group_faults.SECOND


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.name}-{fault.inject.__name__}")
def test_one_fault_shows_as_its_anomaly(fault: Fault) -> None:
    met = alone = 0
    for seed in range(at_least(80)):
        faulty = correct(seed, fault.mode)
        if not fault.inject(faulty, random.Random(seed)):
            continue
        assert errors_without_fault(seed, fault.mode, KafkaOptions(**fault.options)) == ()
        report = report_of(faulty, KafkaOptions(**fault.options))
        found = set(names(report, Judgement.ERROR))
        assert fault.name in found, f"seed {seed}: {found}\n{report.text()}"
        assert found <= {fault.name} | fault.also, f"seed {seed}: {found}\n{report.text()}"
        met += 1
        alone += found == {fault.name}
        if met >= WANTED and (alone or "unseen" in fault.also):
            break
    assert met >= WANTED
    assert alone or "unseen" in fault.also, "it never comes alone"


def faulty_history(fault: Fault) -> list[Operation]:
    """The first faulty history of a fault."""
    for seed in range(at_least(80)):
        operations = correct(seed, fault.mode)
        if fault.inject(operations, random.Random(seed)):
            return operations
    raise AssertionError("the fault found no place")


def shows(operations: History, fault: Fault, name: str) -> bool:
    return name in names(analyze(operations, KafkaOptions(**fault.options)), Judgement.ERROR)


@pytest.mark.long
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.name}-{fault.inject.__name__}")
def test_a_witness_alone_shows_its_anomaly_and_no_part_of_it_does(fault: Fault) -> None:
    """In a history given whole, and in one streamed through, whose operations are made again from the columns."""
    operations = faulty_history(fault)
    options = KafkaOptions(**fault.options)
    for report in (report_of(operations, options), analyze(iter(operations), options)):
        for part in report.verdict.parts:
            witness = part.witness
            assert witness is not None
            name = str(part.key)
            assert shows(witness.alone(), fault, name)
            assert len(witness.operations) <= 8
            for left_out in witness.operations:
                rest = [one for one in witness.operations if one is not left_out]
                assert not rest or not shows(History.of(copy.deepcopy(rest)), fault, name)
                assert not witness.minimal or not shows(witness.alone(left_out), fault, name)
