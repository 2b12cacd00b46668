"""What the standard matrix has found: a file that outlives the runs' folders, and the table made of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

BEGIN, END = "<!-- matrix -->\n", "<!-- /matrix -->"


@dataclass(frozen=True, slots=True)
class Result:
    """A cell. `status` to `began` (Unix seconds) are its newest run's; `runs`, `seconds` and `operations` are summed
    over the last runs in a row that ended so.
    """

    system: str
    brokers: int
    fault: str
    workload: str
    status: str
    anomaly: str
    version: str
    seed: int
    began: float
    runs: int
    seconds: float
    operations: int

    @property
    def place(self) -> tuple[str, int, str, str]:
        """Where it stands in the matrix."""
        return self.system, self.brokers, self.fault, self.workload

    @property
    def words(self) -> str:
        """In the table."""
        time = f"{self.seconds / 60:.3g} min"
        return f"**{self.status}**: {self.anomaly}, {time}" if self.anomaly else f"{self.status}, {time}"


def of_run(run: dict[str, Any]) -> Result:
    """What a run.json says whose run is done."""
    verdict = run["verdict"]
    checks = verdict["checks"]
    names = [each["name"] for one in checks for each in one["anomalies"] if each["judgement"] == "error"]
    return Result(
        system=run["system"],
        brokers=run["brokers"],
        fault=run["fault"],
        workload=run["workload"],
        status=verdict["status"],
        anomaly=names[0] if names else "",
        version=run["versions"]["raftlog"],
        seed=run["seed"],
        began=round(run["began"], 3),
        runs=1,
        seconds=run["seconds"],
        operations=sum(each["operation_count"] for each in checks[:1]),
    )


def merged(known: Iterable[Result], runs: Iterable[Result]) -> list[Result]:
    """With runs that are newer than what is known of their cells, in order."""
    results = {each.place: each for each in known}
    for run in sorted(runs, key=lambda each: each.began):
        before = results.get(run.place)
        if before is not None and before.began >= run.began:
            continue
        if before is not None and (before.status, before.anomaly) == (run.status, run.anomaly):
            run = replace(
                run,
                runs=before.runs + run.runs,
                seconds=before.seconds + run.seconds,
                operations=before.operations + run.operations,
            )
        results[run.place] = run
    return [results[place] for place in sorted(results)]


def read(file: Path) -> list[Result]:
    """What is known; nothing where there is no file."""
    return [Result(**each) for each in json.loads(file.read_text())] if file.exists() else []


def write(file: Path, results: Iterable[Result]) -> None:
    """A line a cell, so that versions of the file can be compared."""
    lines = ",\n".join(json.dumps(asdict(each)) for each in results)
    temporary = file.with_suffix(".new")
    temporary.write_text(f"[\n{lines}\n]\n")
    temporary.replace(file)


def table(results: Iterable[Result], workloads: list[str], faults: list[str], fits: Callable[..., bool]) -> str:
    """One for each system and number of brokers that something is known of, raftlog's first."""
    found = {each.place: each for each in results if each.workload in workloads and each.fault in faults}
    parts = []
    for system, count in sorted({place[:2] for place in found}, key=lambda each: (each[0] != "raftlog", each)):
        known = [each for place, each in found.items() if place[:2] == (system, count)]
        minutes = sum(each.seconds for each in known) / 60
        parts.append(
            f"{system}, {count} brokers, {sum(each.runs for each in known)} runs of {minutes:.0f} minutes together, "
            f"{sum(each.operations for each in known):,} operations:\n"
        )
        parts.append("| fault | " + " | ".join(workloads) + " |")
        parts.append("| --- " * (1 + len(workloads)) + "|")
        rows = faults if system == "raftlog" else [each for each in faults if any(each == one.fault for one in known)]
        for fault in rows:
            row = [_words(found.get((system, count, fault, each)), fits(each, fault, system)) for each in workloads]
            parts.append(f"| {fault} | " + " | ".join(row) + " |")
        parts.append("")
    return "\n".join(parts)


def _words(result: Result | None, does_fit: bool) -> str:
    if result is not None:
        return result.words
    return "" if does_fit else "-"


def write_table(document: Path, text: str, marks: tuple[str, str] = (BEGIN, END)) -> None:
    """Put the table between its marks. Raises ValueError where there are none."""
    before, begin, rest = document.read_text().partition(marks[0])
    _, end, after = rest.partition(marks[1])
    if not begin or not end:
        raise ValueError(f"{document} has no {marks[0].strip()} … {marks[1]}")
    document.write_text(before + begin + text + end + after)
