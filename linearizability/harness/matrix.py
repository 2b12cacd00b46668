"""The standard matrix: every workload with every fault, and its table in docs/VERIFICATION.md.

`python -m raftlog.linearizability.harness.matrix --minutes 5`. A cell whose run is done is not run again, so it can be
stopped and started at any time.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from raftlog.linearizability.harness.faults import EVERYTHING, FAULTS, NAMES
from raftlog.linearizability.harness.folder import RUN
from raftlog.linearizability.harness.systems.raftlog import RaftlogSystem
from raftlog.linearizability.harness.workloads.catalogue import WORKLOADS
from raftlog.testing.process import safe_path

FOLDER = Path("verify") / "matrix"
DOCUMENT = Path("docs") / "VERIFICATION.md"
BEGIN, END = "<!-- matrix -->\n", "<!-- /matrix -->"
BROKERS = (3, 5)


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of the matrix."""

    workload: str
    fault: str
    brokers: int

    def folder(self, matrix: Path) -> Path:
        """Where its run is."""
        return matrix / f"{self.workload}-{self.fault}-{self.brokers}"


def fits(workload: str, fault: str) -> bool:
    """Whether a fault can happen to a workload."""
    return fault == EVERYTHING or FAULTS[fault].needs <= RaftlogSystem.abilities | WORKLOADS[workload].abilities


def cells(workloads: list[str], faults: list[str], brokers: list[int]) -> Iterator[Cell]:
    """All of them; faults outermost, so that each workload has been tried early."""
    for count in brokers:
        for fault in faults:
            yield from (Cell(workload, fault, count) for workload in workloads if fits(workload, fault))


def result(cell: Cell, matrix: Path) -> dict[str, Any] | None:
    """What run.json says of a run that is done."""
    file = cell.folder(matrix) / RUN
    if not file.exists():
        return None
    run: dict[str, Any] = json.loads(file.read_text())
    return run if run["status"] == "done" else None


def do(cell: Cell, matrix: Path, minutes: float) -> None:
    """Run a cell, unless it is done. One that was cut off begins again."""
    if result(cell, matrix) is not None:
        return
    folder = cell.folder(matrix)
    for number in range(1, 100):
        if not (folder / RUN).exists():
            break
        folder.rename(matrix / f"{folder.name}.cut-off-{number}")
    command = [sys.executable, *safe_path(), "-m", "raftlog", "verify", "--workload", cell.workload]
    command += ["--fault", cell.fault, "--brokers", str(cell.brokers), "--time", f"{60 * minutes:g}"]
    done = subprocess.run([*command, "--output", str(folder)], stdout=subprocess.PIPE, text=True, check=False)
    sys.stdout.write(f"{cell.brokers} brokers: {last_line(done.stdout)}\n")
    sys.stdout.flush()


def last_line(text: str) -> str:
    """The verdict is the last line."""
    lines = text.splitlines()
    return lines[-1] if lines else "no verdict"


# -- the table -------------------------------------------------------------------------------------


def word(run: dict[str, Any] | None) -> str:
    """A cell of the table."""
    if run is None:
        return ""
    verdict = run["verdict"]
    status = str(verdict["status"])
    names = [
        each["name"] for one in verdict["checks"] for each in one["anomalies"] if each["judgement"] == "error"
    ]
    return f"**invalid**: {names[0]}" if status == "invalid" and names else status


def table(matrix: Path, workloads: list[str], faults: list[str], brokers: list[int]) -> str:
    """The matrix as tables, one for each number of brokers, of the runs that there are."""
    parts = []
    for count in brokers:
        runs = {
            (fault, workload): result(Cell(workload, fault, count), matrix)
            for fault in faults
            for workload in workloads
        }
        known = [run for run in runs.values() if run is not None]
        if not known:
            continue
        operations = sum(one["operation_count"] for run in known for one in run["verdict"]["checks"][:1])
        seconds = sum(run["seconds"] for run in known)
        parts.append(
            f"{count} brokers, {len(known)} runs of {seconds / 60:.0f} minutes together, {operations:,} operations:\n"
        )
        parts.append("| fault | " + " | ".join(workloads) + " |")
        parts.append("| --- " * (1 + len(workloads)) + "|")
        for fault in faults:
            row = [
                word(runs[fault, workload]) if fits(workload, fault) else "-" for workload in workloads
            ]
            parts.append(f"| {fault} | " + " | ".join(row) + " |")
        parts.append("")
    return "\n".join(parts)


def write_table(document: Path, text: str) -> None:
    """Put the table between its marks. Raises ValueError where there are none."""
    before, begin, rest = document.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"{document} has no {BEGIN.strip()} … {END}")
    document.write_text(before + BEGIN + text + END + after)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="of each run")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="of the runs")
    parser.add_argument("--workloads", default=",".join(WORKLOADS), help="with commas")
    parser.add_argument("--faults", default=",".join(NAMES), help="with commas")
    parser.add_argument("--brokers", default=",".join(map(str, BROKERS)), help="numbers, with commas")
    parser.add_argument("--document", type=Path, default=DOCUMENT, help="whose table is written anew")
    options = parser.parse_args()
    workloads, faults = options.workloads.split(","), options.faults.split(",")
    brokers = [int(each) for each in options.brokers.split(",")]
    options.folder.mkdir(parents=True, exist_ok=True)
    for cell in cells(workloads, faults, brokers):
        do(cell, options.folder, options.minutes)
        if options.document.exists():
            write_table(options.document, table(options.folder, list(WORKLOADS), list(NAMES), list(BROKERS)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
