"""The simulator from the command line: one seed, many seeds, or the mutation report."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from raftlog.linearizability.simulator.catalogue import PARTS, maker, mutants
from raftlog.linearizability.simulator.faults import printed, read_schedule
from raftlog.linearizability.simulator.mutation_report import SEEDS_MAX, mutation_report
from raftlog.linearizability.simulator.runs import execute
from raftlog.linearizability.simulator.swarm import as_regression, campaign, faults_with, shortened
from raftlog.linearizability.simulator.violation import RunResult


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when all is well, 1 when an invariant failed or a mutant was not noticed."""
    options = _parser().parse_args(arguments)
    parts = options.part or list(PARTS)
    status: int = options.run(options, parts)
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="raftlog.linearizability.simulator", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="one seed, twice, and whether both runs were the same")
    run.add_argument("seed", type=int)
    run.add_argument("--mutant", default="", choices=["", *mutants()])
    run.add_argument("--trace", type=Path, help="write every step to this file")
    run.add_argument("--schedule", type=Path, help="faults from this file in place of the seed's own")
    run.add_argument("--shrink", action="store_true", help="shorten the schedule of faults when the run fails")
    run.set_defaults(run=_run)
    swarm = commands.add_parser("swarm", help="many seeds on all cores")
    swarm.add_argument("--minutes", type=float)
    swarm.add_argument("--seeds", type=int)
    swarm.add_argument("--first", type=int, default=0)
    swarm.set_defaults(run=_swarm)
    report = commands.add_parser("mutants", help="put each known fault into the code and see that it is noticed")
    report.add_argument("--seeds", type=int, help=f"of each kind of run {dict(SEEDS_MAX)}")
    report.add_argument("--mutant", action="append", choices=list(mutants()), help="this one; may be repeated")
    report.set_defaults(run=_mutation_report)
    for command in (run, swarm, report):
        command.add_argument("--part", action="append", choices=list(PARTS), help="this kind of run; may be repeated")
    return parser


def _tell(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _run(options: argparse.Namespace, parts: Sequence[str]) -> int:
    failed = False
    for part in parts:
        if options.mutant and part not in mutants()[options.mutant].parts:
            continue
        given = read_schedule(options.schedule.read_text().splitlines()) if options.schedule else None
        faults = given if given is not None else faults_with(maker(part), options.seed, options.mutant)
        with mutants()[options.mutant].apply() if options.mutant else nullcontext():
            first = execute(maker(part), options.seed, faults, kept_lines=None if options.trace else 0)
            second = execute(maker(part), options.seed, faults)
        _describe(first)
        if options.trace:
            options.trace.write_text("\n".join(first.lines) + "\n")
        if first.digest != second.digest:
            _tell(f"NOT THE SAME TWICE: {first.digest} and {second.digest}")
            failed = True
        if first.failed:
            failed = True
            if options.shrink:
                kept, again, runs = shortened(part, options.seed, options.mutant)
                _tell(f"{len(kept)} of {len(first.faults)} faults are enough (after {runs} runs):\n{printed(kept)}")
                _tell(f"{again.invariant}: {again.violation}")
                _tell("\n".join(as_regression(part, options.seed, kept, again)))
    return 1 if failed else 0


def _describe(result: RunResult) -> None:
    counts = ", ".join(f"{count} {what}" for what, count in sorted(result.counts.items()))
    _tell(f"{result.part} seed {result.seed}: {result.seconds:.3f} s, {result.events} events, {counts}")
    _tell(f"trace {result.digest}")
    _tell(printed(result.faults))
    if result.failed:
        _tell(f"FAILED at {result.at:.3f} s: {result.invariant}: {result.violation}")


def _swarm(options: argparse.Namespace, parts: Sequence[str]) -> int:
    minutes = options.minutes / len(parts) if options.minutes else None
    if minutes is None and options.seeds is None:
        options.seeds = 1000
    campaigns = [campaign(part, options.first, minutes=minutes, seeds=options.seeds, tell=_tell) for part in parts]
    return 1 if any(each.failed for each in campaigns) else 0


def _mutation_report(options: argparse.Namespace, parts: Sequence[str]) -> int:
    seeds_max = SEEDS_MAX if options.seeds is None else dict.fromkeys(PARTS, options.seeds)
    return 1 if mutation_report(parts, seeds_max, _tell, options.mutant or ()) else 0


if __name__ == "__main__":
    sys.exit(main())
