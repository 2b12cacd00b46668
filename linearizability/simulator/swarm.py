"""Many runs on all cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random

from raftlog.linearizability.simulator.catalogue import maker, mutants
from raftlog.linearizability.simulator.faults import Fault
from raftlog.linearizability.simulator.properties import never_reached, properties, watched
from raftlog.linearizability.simulator.runs import SimulationMaker, execute
from raftlog.linearizability.simulator.scenarios import CLUSTER_SCENARIOS
from raftlog.linearizability.simulator.shrink import OPERATION_RUNS_MAX, shrink, shrink_operations
from raftlog.linearizability.simulator.violation import RunResult

SEEDS_PER_BATCH = 10
TOLD_SECONDS = 60.0
"""A campaign says this often how far it is."""
FAILURES_SHRUNK_MAX = 5
"""So many failing seeds are shortened in one campaign; of the others the seed is told."""

CANARIES = {"core": "truncate-on-overlap", "quorum": "no-fsync", "cluster": "ack-before-replication"}
"""Of each kind of run a mutant that every campaign must notice, or its silence means nothing."""
CANARY_SEEDS_MAX = 5

Batch = tuple[str, int, int]
"""(kind of run, first seed, seed behind the last)."""


def run_seed(part: str, seed: int, mutant: str = "", *, faults: Sequence[Fault] | None = None) -> RunResult:
    """One run, with a mutant put back if one is named."""
    make = maker(part)
    reached: Counter[str] = Counter()
    with mutants()[mutant].apply() if mutant else nullcontext(), watched(part, reached):
        result = execute(make, seed, faults if faults is not None else faults_with(make, seed, mutant))
    result.reached = dict(reached)
    return result


def faults_with(make: SimulationMaker, seed: int, mutant: str) -> list[Fault] | None:
    """The seed's schedule with the workload or the scenario that a mutant shows in; None where nothing is changed."""
    known = mutants()[mutant] if mutant else None
    if known is None or not (known.workload or known.scenario):
        return None
    from raftlog.linearizability.simulator.cluster.run import CLIENTS, WORKLOADS  # loads the broker

    run = make(seed, None, 0)
    own = run.faults
    workloads = [fault for fault in own if fault.kind in WORKLOADS]
    if known.workload:
        workloads = [Fault(0.0, known.workload, 1)]
    if known.scenario:
        nodes = max(node for node in run.world.machines if node != CLIENTS)
        return [*workloads, *CLUSTER_SCENARIOS[known.scenario](Random(f"{seed} order"), nodes)]
    return [*workloads, *[fault for fault in own if fault.kind not in WORKLOADS]]


def shortened(
    part: str, seed: int, mutant: str = "", operation_runs: int = OPERATION_RUNS_MAX
) -> tuple[list[Fault], RunResult, int]:
    """The shortest failing schedule found for a seed that fails, with rests for clients whose work it does not need;
    the run with it, and how many runs that took.
    """
    with mutants()[mutant].apply() if mutant else nullcontext():
        make = maker(part)
        first = execute(make, seed, faults_with(make, seed, mutant))
        fails = lambda faults: execute(make, seed, faults).failed  # noqa: E731
        kept, runs = shrink(first.faults, fails)
        run = make(seed, kept, 0)
        kept, more = shrink_operations(kept, run.client_count, run.fault_seconds, fails, operation_runs)
        return kept, execute(make, seed, kept), runs + more


def as_regression(part: str, seed: int, kept: Sequence[Fault], again: RunResult) -> Iterator[str]:
    """The entry of REGRESSIONS in `tests/linearizability/simulator/test_runs.py` that runs it again, for ever."""
    yield f'    "{again.invariant}: {again.violation[:60]}": ('.replace("\n", " ")
    yield f'        "{part}",'
    yield f"        {seed},"
    for number, fault in enumerate(kept, 1):
        end = '",' if number == len(kept) else '\\n"'
        yield f'        "{fault}{end}'
    if not kept:
        yield '        "",'
    yield "    ),"


def _run_batch(batch: Batch) -> list[RunResult]:
    part, first, behind = batch
    results = []
    for seed in range(first, behind):
        result = run_seed(part, seed)
        result.lines.clear()
        results.append(result)
    return results


@dataclass(slots=True)
class Campaign:
    """What many runs came to."""

    part: str
    seeds: int = 0
    failing: list[RunResult] = field(default_factory=list)
    events: int = 0
    virtual_seconds: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    reached: Counter[str] = field(default_factory=Counter)
    missing: Sequence[str] = ()
    """What would have had to be reached, or seen to fail, and was not."""

    def add(self, result: RunResult) -> None:
        """One more."""
        self.seeds += 1
        self.events += result.events
        self.virtual_seconds += result.seconds
        self.done.update(result.done)
        self.counts.update(result.counts)
        self.reached.update(result.reached)
        if result.failed:
            self.failing.append(result)

    @property
    def failed(self) -> bool:
        """Whether a seed failed, or the campaign shows too little."""
        return bool(self.failing or self.missing)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {kind}" for kind, count in sorted(self.done.items()))
        counts = ", ".join(f"{count} {what}" for what, count in sorted(self.counts.items()))
        return (
            f"{self.part}: {self.seeds} seeds, {len(self.failing)} failing; {self.virtual_seconds / 3600:.1f} hours"
            f" of virtual time, {self.events} events; {counts}; faults: {faults or 'none'}"
        )


def campaign(
    part: str, first: int, *, minutes: float | None, seeds: int | None, tell: Callable[[str], None]
) -> Campaign:
    """Run seeds from `first` on, on all cores, for so many minutes or so many seeds. Failing ones are told at once."""
    whole = Campaign(part, missing=_without_alarm(part))
    began = time.monotonic()

    def batches() -> Iterator[Batch]:
        seed = first
        while True:
            behind = seed + SEEDS_PER_BATCH
            if seeds is not None:
                behind = min(behind, first + seeds)
            if seed >= behind or (minutes is not None and time.monotonic() - began > minutes * 60):
                return
            yield part, seed, behind
            seed = behind

    with multiprocessing.get_context("fork").Pool(os.cpu_count(), maxtasksperchild=50) as pool:
        # A generator that is read as results come: a plain imap would read all of an endless one.
        told = began
        for results in _windowed(pool.apply_async, batches(), 2 * (os.cpu_count() or 1)):
            for result in results:
                whole.add(result)
            for result in [one for one in results if one.failed]:
                tell(f"{part} seed {result.seed}: {result.invariant}: {result.violation} (at {result.at:.3f} s)")
            if time.monotonic() - told > TOLD_SECONDS:
                told = time.monotonic()
                tell(f"{part}: {whole.seeds} seeds, {len(whole.failing)} failing, after {told - began:.0f} s")
    for result in whole.failing[:FAILURES_SHRUNK_MAX]:
        kept, again, runs = shortened(part, result.seed)
        tell(f"{part} seed {result.seed}, {len(kept)} of {len(result.faults)} faults after {runs} runs:")
        tell(f"    {again.invariant}: {again.violation}")
        for line in as_regression(part, result.seed, kept, again):
            tell(line)
    for text in (each.text for each in properties(part)):
        tell(f"{part}: {whole.reached[text]:8,} times {text}")
    whole.missing = [*whole.missing, *(f"never: {text}" for text in never_reached(part, whole.reached))]
    for text in whole.missing:
        tell(f"{part}: {text}")
    tell(str(whole))
    return whole


def _without_alarm(part: str) -> Sequence[str]:
    """What is wrong with the campaign's eyes: a run with a known fault in the code must fail."""
    name = CANARIES[part]
    results = (run_seed(part, seed, name) for seed in range(CANARY_SEEDS_MAX))
    return [] if any(result.failed for result in results) else [f"the canary lives: {name} was not noticed"]


def _windowed(submit: Callable[..., object], batches: Iterator[Batch], window: int) -> Iterator[list[RunResult]]:
    waiting: list[object] = []
    for batch in batches:
        waiting.append(submit(_run_batch, (batch,)))
        if len(waiting) >= window:
            yield waiting.pop(0).get()  # type: ignore[attr-defined]
    for result in waiting:
        yield result.get()  # type: ignore[attr-defined]
