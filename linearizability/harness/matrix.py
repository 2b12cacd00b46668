"""The standard matrix: every workload with every fault, and its table in docs/VERIFICATION.md.

`python -m raftlog.linearizability.harness.matrix --minutes 5 --jobs 2`. A cell that has a run as long as that in the
folder is not run again, so it can be stopped and started at any time. Results are kept beside the table.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from raftlog.linearizability.harness import results
from raftlog.linearizability.harness.campaign import run_of, runs_in, tell, verify
from raftlog.linearizability.harness.faults import EVERYTHING, FAULTS, NAMES
from raftlog.linearizability.harness.properties import never_reached
from raftlog.linearizability.harness.systems.kafka import KafkaSystem
from raftlog.linearizability.harness.systems.raftlog import RaftlogSystem
from raftlog.linearizability.harness.systems.system import System
from raftlog.linearizability.harness.workloads.catalogue import WORKLOADS

FOLDER = Path("verify") / "matrix"
DOCUMENT = Path("docs") / "VERIFICATION.md"
RESULTS = "verification-matrix.json"
"""Beside the document."""
BROKERS = (3, 5)
LOSES_RECORDS = "isr-of-one"
CANARY = "aborted-is-read"
CANARY_SECONDS = 20.0
SYSTEMS: dict[str, type[System]] = {"raftlog": RaftlogSystem, "kafka": KafkaSystem}


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the matrix."""

    workload: str
    fault: str
    brokers: int
    system: str = "raftlog"

    def folder(self, matrix: Path) -> Path:
        """Where its run is."""
        words = [self.workload, self.fault, str(self.brokers), *([] if self.system == "raftlog" else [self.system])]
        return matrix / "-".join(words)


def fits(workload: str, fault: str, system: str = "raftlog") -> bool:
    """Whether a fault can happen to a workload in a system."""
    abilities = SYSTEMS[system].abilities
    return fault == EVERYTHING or FAULTS[fault].needs <= abilities | WORKLOADS[workload].abilities


def cells(workloads: list[str], faults: list[str], brokers: list[int], system: str = "raftlog") -> Iterator[Cell]:
    """All of them; faults outermost, so that each workload has been tried early."""
    for count, fault, workload in product(brokers, faults, workloads):
        if fits(workload, fault, system):
            yield Cell(workload, fault, count, system)


class Matrix:
    """Runs cells. `under`: words that each run is started with, such as nice."""

    def __init__(self, folder: Path, document: Path, minutes: float, under: list[str]) -> None:
        self._folder = folder
        self._document = document
        self._seconds = 60 * minutes
        self._under = under
        self._lock = threading.Lock()
        self._without_verdict: list[str] = []

    def do(self, cell: Cell) -> None:
        """Run a cell, unless it has a run that is long enough. One that was cut off begins again."""
        folder = cell.folder(self._folder)
        known = run_of(folder)
        if known is not None and known["seconds"] >= self._seconds:
            return
        words = ["--workload", cell.workload, "--fault", cell.fault, "--brokers", str(cell.brokers)]
        words += ["--time", f"{self._seconds:g}", "--system", cell.system]
        tell(f"{cell.system}, {cell.brokers} brokers: {verify(folder, words, self._under)}")
        if run_of(folder) is None:
            self._without_verdict.append(f"no verdict: {folder.name}")
        self.write()

    def wrong(self) -> list[str]:
        """Runs that have no verdict, and those of this folder in which an error was found that nobody put there."""
        found = [
            f"invalid: {run['workload']} with {run['fault']}, {run['brokers']} brokers"
            for run in runs_in(self._folder)
            if run["verdict"]["status"] == "invalid" and not run.get("mutant") and run["fault"] != LOSES_RECORDS
        ]
        return [*self._without_verdict, *found]

    def missing(self) -> list[str]:
        """What all runs of the folder together leave out: faults that must be noticed, properties that must be reached.

        Silence means something only where the canaries die: a run with a known fault in the code, and one with a fault
        that loses records.
        """
        runs = runs_in(self._folder)
        found = [
            f"a canary lives: {run['workload']} with {run['fault']} {run.get('mutant', '')}".rstrip()
            for run in runs
            if (run.get("mutant") or _must_lose(run)) and run["verdict"]["status"] == "valid"
        ]
        if not any(run.get("mutant") and run["verdict"]["status"] == "invalid" for run in runs):
            found.append("no canary died")
        return found + [f"never: {name}" for name in never_reached(runs)]

    def canary(self) -> None:
        """A run with a known fault in the code, which must be invalid."""
        words = ["--workload", "transactions", "--time", f"{CANARY_SECONDS:g}", "--mutant", CANARY]
        tell(f"the canary, {CANARY}: {verify(self._folder / f'canary-{CANARY}', words, self._under)}")

    def write(self) -> None:
        """Put what the folder's runs have found into the results and the table."""
        if not self._document.exists():
            return
        file = self._document.with_name(RESULTS)
        runs = [results.of_run(each) for each in runs_in(self._folder) if not each.get("mutant")]
        with self._lock:
            known = results.merged(results.read(file), runs)
            results.write(file, known)
            results.write_table(self._document, results.table(known, list(WORKLOADS), list(NAMES), fits))


def _must_lose(run: dict[str, Any]) -> bool:
    """Records that a later one of their key replaces may be lost without a trace."""
    return run["fault"] == LOSES_RECORDS and WORKLOADS[run["workload"]].model == "kafka"


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of each run")
    parser.add_argument("--jobs", type=int, default=1, help="runs beside each other")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the runs")
    parser.add_argument("--system", default="raftlog", choices=SYSTEMS, help="whose brokers")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="with commas")
    parser.add_argument("--faults", default=",".join(NAMES), help="with commas")
    parser.add_argument("--brokers", default=",".join(map(str, BROKERS)), help="numbers, with commas")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="whose table is written anew")
    parser.add_argument("--under", type=shlex.split, default=[], help="a command that starts each run, such as nice")
    options = parser.parse_args()
    workloads, faults = options.workloads.split(","), options.faults.split(",")
    brokers = [int(each) for each in options.brokers.split(",")]
    options.folder.mkdir(parents=True, exist_ok=True)
    matrix = Matrix(options.folder, options.document, options.minutes, options.under)
    matrix.write()
    if options.system == "raftlog":
        matrix.canary()
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            for _ in pool.map(matrix.do, cells(workloads, faults, brokers, options.system)):
                pass
        except KeyboardInterrupt:
            pool.shutdown(cancel_futures=True)
            return 130
    wrong = matrix.wrong() + (matrix.missing() if options.system == "raftlog" else [])
    for text in wrong:
        tell(text)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
