"""The mutation report of real processes: after how many seconds a run notices each of the simulator's mutants.

`python -m raftlog.linearizability.harness.mutation_report`. Each mutant is run with the workload and the fault that
should show it, seed after seed, until it is noticed. What is done is not done again, so it can be stopped and started
at any time. The table goes into docs/VERIFICATION.md, beside what `make sim-mutants` has found.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from raftlog.linearizability.harness.campaign import run_of, tell, verify
from raftlog.linearizability.harness.mutants import ONLY_SIMULATED, SELDOM, TRIALS, Trial
from raftlog.linearizability.harness.results import write_table
from raftlog.linearizability.simulator.catalogue import mutants
from raftlog.linearizability.simulator.mutation_report import known_cells, write_by_mutant

FOLDER = Path("verify") / "mutants"
DOCUMENT = Path("docs") / "VERIFICATION.md"
RESULTS = "verification-mutants.json"
"""Beside the document: of each mutant what its last runs came to."""
MARKS = "<!-- mutants -->\n", "<!-- /mutants -->"
SECONDS_MAX = 90.0
"""Of load, after which a mutant counts as not noticed."""
NONE = "none"
"""The folder of runs without a mutant."""


class Found(NamedTuple):
    """What the runs of one mutant came to. `seconds`: from the beginning of the load until it was noticed, over all
    seeds that were tried; `by`: the anomaly, "" if none was found; `trial`: workload, fault and settings.
    """

    seconds: float
    by: str
    example: str
    trial: str


def arguments_of(trial: Trial, mutant: str, seed: int) -> list[str]:
    """The arguments of `raftlog verify`."""
    words = ["--workload", trial.workload, "--fault", trial.fault, "--time", f"{trial.seconds:g}"]
    words += ["--brokers", str(trial.brokers), "--seed", str(seed), "--rate", f"{trial.rate:g}"]
    words += ["--libraries", trial.libraries] if trial.libraries else []
    for flag, pairs in (("--set", trial.settings), ("--option", trial.options)):
        for key, value in pairs.items():
            words += [flag, f"{key}={value}"]
    return words + (["--mutant", mutant] if mutant else [])


def seeds_of(trial: Trial) -> range:
    """Those that are tried."""
    return range(max(1, round(SECONDS_MAX / trial.seconds)))


def cause(run: Mapping[str, Any]) -> tuple[str, str]:
    """By what a run is not valid, and an example; empty for one that is."""
    verdict = run["verdict"]
    for check in verdict["checks"]:
        for each in check["anomalies"]:
            if each["judgement"] == "error":
                return str(each["name"]), str(each["examples"][0]["text"]) if each["examples"] else ""
    if verdict["status"] == "valid" or any(check["status"] == "unknown" for check in verdict["checks"]):
        return "", ""  # what the checker could not judge says nothing
    return "unknown", str(verdict["reason"])


def load_seconds(run: Mapping[str, Any]) -> float:
    """From the beginning of the load until the run was judged: an error that is found early ends it."""
    phases = {each["name"]: each for each in run["phases"]}
    begin, end = phases["load"]["begin"], phases["load"]["end"]
    is_early = (end - begin) / 1e9 < run["seconds"] - 0.5
    last = end if is_early else run["phases"][-1]["end"]
    return float(last - begin) / 1e9


def do(name: str, trial: Trial, folder: Path, seed: int) -> dict[str, Any] | None:
    """One run of a mutant ("" for none), unless it is done; None when there is no verdict."""
    where = folder / (name or NONE) / (str(seed) if name else f"{trial.key}-{seed}")
    if (found := run_of(where)) is not None:
        return found
    tell(f"{name or 'without a mutant'}, seed {seed}: {verify(where, arguments_of(trial, name, seed))}")
    return run_of(where)


def found(name: str, folder: Path) -> Found | None:
    """What the runs that there are say of a mutant; None if it has none. A run that is unknown says something when the
    same run without the mutant is valid.
    """
    trial = TRIALS[name]
    seconds, known = 0.0, False
    for seed in seeds_of(trial):
        run = run_of(folder / name / str(seed))
        if run is None:
            continue
        known = True
        seconds += load_seconds(run)
        by, example = cause(run)
        if by == "unknown":
            without = run_of(folder / NONE / f"{trial.key}-{seed}")
            by = "" if without is None or cause(without)[0] else by
        if by:
            return Found(round(seconds, 1), by, example, str(trial))
    return Found(round(seconds, 1), "", "", str(trial)) if known else None


def try_mutant(name: str, folder: Path) -> Found | None:
    """Run a mutant until it is noticed."""
    trial = TRIALS[name]
    for seed in seeds_of(trial):
        run = do(name, trial, folder, seed)
        if run is not None and cause(run)[0] == "unknown":
            do("", trial, folder, seed)
        result = found(name, folder)
        if result is not None and result.by:
            return result
    return found(name, folder)


# -- the table -------------------------------------------------------------------------------------


def results(folder: Path, file: Path) -> dict[str, Found]:
    """Of each mutant what the folder's runs say, and where it has none what the file says."""
    known = {name: Found(**each) for name, each in json.loads(file.read_text()).items()} if file.exists() else {}
    return known | {name: result for name in TRIALS if (result := found(name, folder)) is not None}


def table(known: Mapping[str, Found]) -> str:
    """Of each mutant what the simulator and real processes came to."""
    simulated = known_cells()
    lines = ["| mutant | simulator | real processes | by |", "| --- | --- | --- | --- |"]
    for name in mutants():
        seeds = "; ".join(f"{part} {cell}" for part, cell in simulated.get(name, {}).items())
        if name in ONLY_SIMULATED:
            real, by = "-", ONLY_SIMULATED[name]
        elif (result := known.get(name)) is None:
            real, by = "", ""
        elif not result.by:
            why = f": {SELDOM[name]}" if name in SELDOM else ""
            real, by = f"> {result.seconds:.0f} s, {result.trial}", f"**not noticed**{why}"
        else:
            real, by = f"{result.seconds:.0f} s, {result.trial}", words_of(result)
        lines.append(f"| {name} | {seeds} | {real} | {by} |")
    both = sum(bool(known[name].by) for name in TRIALS if name in known)
    return f"{len(mutants())} mutants, {both} of them noticed by real processes too:\n\n" + "\n".join(lines) + "\n"


def write(folder: Path, document: Path) -> None:
    """Put what is known into the results and the table of a document, if there is one."""
    if document.exists():
        file = document.with_name(RESULTS)
        known = results(folder, file)
        write_by_mutant(file, {name: result._asdict() for name, result in known.items()})
        write_table(document, table(known), MARKS)


def words_of(result: Found) -> str:
    """By what a mutant was noticed."""
    return f"unknown: {result.example}".replace("|", "/") if result.by == "unknown" else result.by


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every mutant that has a trial was noticed, but for those that seldom are."""
    parser = argparse.ArgumentParser(prog="mutation_report", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the runs")
    parser.add_argument("--mutants", default=",".join(TRIALS), help="with commas")
    parser.add_argument("--at-once", type=int, default=1, help="clusters at a time")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="whose table is written anew")
    options = parser.parse_args(arguments)
    names = options.mutants.split(",")
    options.folder.mkdir(parents=True, exist_ok=True)
    missed = []
    with ThreadPoolExecutor(options.at_once) as pool:
        for name, result in zip(names, pool.map(lambda name: try_mutant(name, options.folder), names), strict=True):
            if result is None or not result.by:
                missed += [] if name in SELDOM else [name]
            else:
                tell(f"{name} after {result.seconds:.0f} s: {words_of(result)}")
            write(options.folder, options.document)
    tell(f"{len(names)} mutants, not noticed: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
