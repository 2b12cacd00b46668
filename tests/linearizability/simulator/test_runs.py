"""Runs from seeds: they hold, they repeat byte for byte, and they notice what is wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from random import Random

import pytest

from raftlog.broker.store.partition_log import PartitionLog
from raftlog.linearizability.simulator import mutation_report as mutation_report_module
from raftlog.linearizability.simulator import swarm
from raftlog.linearizability.simulator.catalogue import PARTS, maker, mutants
from raftlog.linearizability.simulator.cluster.invariants import ClusterInvariants
from raftlog.linearizability.simulator.faults import KINDS, REST, Fault, Plan, printed, read_schedule, schedule
from raftlog.linearizability.simulator.mutants.mutants import Mutant
from raftlog.linearizability.simulator.mutation_report import mutation_report, try_cell
from raftlog.linearizability.simulator.runs import execute
from raftlog.linearizability.simulator.scenarios import minority, scenario_of, usurper
from raftlog.linearizability.simulator.shrink import shrink
from raftlog.linearizability.simulator.swarm import run_seed, shortened
from raftlog.wire.errors import InvariantViolation
from tests.linearizability.simulator.regressions import REGRESSIONS

SEEDS = {"core": 30, "quorum": 10, "cluster": 3}
"""How many seeds of each kind of run belong to the suite; `make sim-swarm` runs as many as there is time for."""


@pytest.mark.parametrize(
    "checked, name, invariant", [(PartitionLog, "check_invariants", "broker"), (ClusterInvariants, "after_turn", "bug")]
)
def test_a_check_that_raises_fails_its_seed_and_not_the_campaign(
    monkeypatch: pytest.MonkeyPatch, checked: type, name: str, invariant: str
) -> None:
    def broken(*_: object) -> None:
        raise InvariantViolation("a promise does not hold")

    monkeypatch.setattr(checked, name, broken)
    told: list[str] = []
    result = run_seed("cluster", 1)
    assert result.invariant == invariant and "a promise does not hold" in result.violation
    assert result.digest and result.at == result.seconds
    whole = swarm.campaign("cluster", 1, minutes=None, seeds=2, tell=told.append)
    assert (whole.seeds, [failing.seed for failing in whole.failing]) == (2, [1, 2])


@pytest.mark.long
@pytest.mark.parametrize("part", PARTS)
def test_the_first_seeds_hold(part: str) -> None:
    for seed in range(SEEDS[part]):
        result = run_seed(part, seed)
        assert not result.failed, f"{part} seed {seed}: {result.invariant}: {result.violation}"
        assert result.counts["acknowledged"] > 0


@pytest.mark.long
@pytest.mark.parametrize("name", REGRESSIONS)
def test_what_once_failed_holds(name: str) -> None:
    part, seed, lines = REGRESSIONS[name]
    result = run_seed(part, seed, faults=read_schedule(lines.splitlines()))
    assert not result.failed, f"{name}: {result.invariant}: {result.violation}"
    assert result.done


@pytest.mark.long
def test_one_seed_gives_one_trace_in_every_process() -> None:
    """Here, and in a process whose hashes of strings differ."""
    runs = [(part, 1) for part in PARTS]
    here = [run_seed(*run).digest for run in runs]
    assert len(set(here)) == len(runs)
    script = (
        "from raftlog.linearizability.simulator.swarm import run_seed\n"
        f"print(*[run_seed(*run).digest for run in {runs}])"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "31337"}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    assert done.stdout.split() == here


@pytest.mark.long
def test_the_faults_that_a_run_printed_are_that_run_again() -> None:
    for part in ("core", "quorum"):
        for seed in range(2):
            first = run_seed(part, seed)
            again = run_seed(part, seed, faults=read_schedule(printed(first.faults).splitlines()))
            assert again.digest == first.digest, f"{part} seed {seed}"


QUICKLY_NOTICED = (
    "truncate-on-overlap", "double-vote", "vote-twice", "ack-before-fsync", "acknowledge-unverified",
    "commit-unverified", "commit-of-earlier-term", "damage-is-torn-tail", "snapshot-before-safe",
    "read-without-majority", "unknown-is-failed", "isr-of-one", "truncate-to-high-watermark",
    "cleaner-drops-last-values", "deletion-by-leader-alone", "lso-off-by-one", "init-without-fencing",
    "ids-expire-in-use", "client-numbers-anew", "end-before-vouched", "end-beyond-committed",
    "replaced-static-commits", "outsiders-commit", "batches-not-verified",
)  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("name", QUICKLY_NOTICED)
def test_a_mutant_is_noticed(name: str) -> None:
    mutant = mutants()[name]
    assert any(run_seed(mutant.parts[0], seed, name).failed for seed in range(20))


@pytest.mark.long
def test_a_wiped_disk_that_votes_is_noticed_when_it_elects_one_who_was_left_behind() -> None:
    lines = (
        "0.718 isolate 1 / 2 3 for=0.684 n=0",
        "1.194 wipe 3 for=0.092 n=0",
        "1.197 isolate leader / 1 2 3 for=1.144 n=0",
    )
    faults = read_schedule(lines)
    assert run_seed("quorum", 2, "wiped-disk-votes", faults=faults).invariant == "leader completeness"
    assert not run_seed("quorum", 2, faults=faults).failed


def test_the_board_names_what_no_run_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nothing = Mutant("nothing", ("core",), "No fault at all.", nullcontext)
    two = {mutant.name: mutant for mutant in (mutants()["truncate-on-overlap"], nothing)}
    monkeypatch.setattr(mutation_report_module, "mutants", lambda: two)
    monkeypatch.setattr(mutation_report_module, "CELLS", tmp_path / "cells.json")
    monkeypatch.setattr(swarm, "mutants", lambda: two)
    told: list[str] = []
    assert mutation_report(["core"], {"core": 2}, told.append) == ["nothing"]
    assert "| truncate-on-overlap | 1, durability |" in told and "| nothing | > 2 |" in told
    assert mutation_report(["core"], {"core": 2}, told.append, ["truncate-on-overlap"]) == []
    assert mutation_report_module.known_cells() == {
        "truncate-on-overlap": {"core": "1, durability"},
        "nothing": {"core": "> 2"},
    }


def test_a_seed_that_fails_without_the_mutation_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    always = run_seed("core", 0, "truncate-on-overlap")
    assert always.failed and try_cell("truncate-on-overlap", "core", 1).noticed
    monkeypatch.setattr(mutation_report_module, "run_seed", lambda *_, **__: always)
    assert not try_cell("truncate-on-overlap", "core", 1).noticed


def test_a_seed_has_an_order_of_faults_only_where_one_suits_its_run() -> None:
    plan = Plan(5, 0.1, 3.0, 3, 14, ("kill", "rot", "wipe"), 2)
    harmless = Plan(5, 0.1, 3.0, 3, 14, ("kill",), 2)
    assert not any(scenario_of(seed, plan, 2, loose=True) for seed in range(50))
    assert not any(scenario_of(seed, harmless, 5, loose=False) for seed in range(50))
    assert all(scenario.doubled == 0 for seed in range(50) if (scenario := scenario_of(seed, plan, 5, loose=False)))
    with_one = [seed for seed in range(300) if scenario_of(seed, plan, 5, loose=True)]
    assert 100 < len(with_one) < 200


def test_those_left_behind_and_the_harmed_are_a_majority_without_the_rest() -> None:
    for seed in range(50):
        behind, harm, rest = usurper(Random(seed), 5, ("rot", "wipe")).faults
        left, away = {behind.node, *behind.others}, {rest.node, *rest.others}
        assert len(left) == len(away) == 2 and {*left, harm.node, *away} == {1, 2, 3, 4, 5}
        assert harm.at <= rest.at <= behind.at + behind.seconds + 0.002 < rest.at + rest.seconds
        (split,) = minority(Random(seed), 5).faults
        assert len({split.node, *split.others}) == 2


def test_a_mutation_is_gone_after_its_run() -> None:
    assert run_seed("core", 0, "truncate-on-overlap").failed
    assert not run_seed("core", 0).failed


def test_the_trace_can_be_read() -> None:
    result = execute(maker("core"), 1, kept_lines=None)
    assert len(result.lines) > 500 and result.lines[0].split()[1] == "start"


@pytest.mark.long
def test_a_failing_schedule_is_shortened_to_one_that_still_fails() -> None:
    results = (run_seed("core", seed, "no-fsync") for seed in range(50))
    failing = next(result for result in results if result.failed and len(result.faults) > 3)
    kept, again, _ = shortened("core", failing.seed, "no-fsync", operation_runs=5)
    assert again.failed
    assert len([fault for fault in kept if fault.kind != REST]) < len(failing.faults)


def test_shortening_finds_the_two_faults_that_matter() -> None:
    faults = [Fault(float(number), "kill", 1, 1.0, (), number) for number in range(16)]
    kept, runs = shrink(faults, lambda tried: {3, 11} <= {fault.amount for fault in tried})
    assert [fault.amount for fault in kept] == [3, 11] and runs < 60


def test_a_schedule_can_be_printed_and_read_back() -> None:
    plan = Plan(5, 0.1, 3.0, 20, 40, tuple(kind.name for kind in KINDS), 2)
    faults = schedule(Random(7), plan)
    assert read_schedule(printed(faults).splitlines()) == faults and len(faults) >= 5
