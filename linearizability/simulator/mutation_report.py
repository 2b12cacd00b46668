"""The mutation report: after how many seeds a run notices each mutant.

A row is a mutant, a column a kind of run.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from raftlog.linearizability.simulator.catalogue import PARTS, mutants
from raftlog.linearizability.simulator.swarm import run_seed

SEEDS_MAX: Mapping[str, int] = {"core": 120, "quorum": 100, "cluster": 80}
"""So many seeds, from 0 on, are tried of each kind of run: a mutant that needs more is as good as not noticed."""


CELLS = Path("docs") / "simulator-mutants.json"
"""What was found last, for the table of both kinds of run (docs/VERIFICATION.md). Written only where there are docs."""


class Cell(NamedTuple):
    """What became of one mutant in one kind of run.

    `seeds`: how many were tried; `invariant`: the one that the last of them broke, or "" when none was broken;
    `fails_anyway`: that seed fails without the mutant too, so it says nothing.
    """

    mutant: str
    part: str
    seeds: int
    invariant: str
    fails_anyway: bool = False

    @property
    def noticed(self) -> bool:
        """Whether the mutant was."""
        return bool(self.invariant) and not self.fails_anyway

    def __str__(self) -> str:
        return f"{self.seeds}, {self.invariant}" if self.noticed else f"> {self.seeds}"


def try_cell(mutant: str, part: str, seeds_max: int) -> Cell:
    """Run with a mutant until it is noticed, and that seed once more without it."""
    for seed in range(seeds_max):
        result = run_seed(part, seed, mutant)
        if result.failed:
            anyway = run_seed(part, seed, faults=result.faults).failed
            return Cell(mutant, part, seed + 1, result.invariant, anyway)
    return Cell(mutant, part, seeds_max, "")


def mutation_report(
    parts: Sequence[str], seeds_max: Mapping[str, int], tell: Callable[[str], None], names: Collection[str] = ()
) -> list[str]:
    """Fill the report on all cores and tell it; the names of the mutants that no kind of run noticed. `names`: of the
    mutants that are tried, all if there are none.
    """
    began = time.monotonic()
    chosen = [mutant for mutant in mutants().values() if mutant.name in (names or mutants())]
    wanted = [(mutant.name, part) for mutant in chosen for part in mutant.parts if part in parts]
    # What takes longest goes first, or one core would be left with it in the end.
    wanted.sort(key=lambda cell: -list(PARTS).index(cell[1]))
    cells: dict[tuple[str, str], Cell] = {}
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        given = [(name, part, seeds_max[part]) for name, part in wanted]
        for cell in pool.imap_unordered(_try, given):
            cells[cell.mutant, cell.part] = cell
            found = f"after {cell.seeds} seeds: {cell.invariant}" if cell.invariant else f"NOT after {cell.seeds} seeds"
            anyway = ", AND WITHOUT THE MUTATION" if cell.fails_anyway else ""
            tell(f"{time.monotonic() - began:6.0f} s  {cell.mutant:28} {cell.part:8} {found}{anyway}")
    for line in table(list(cells.values()), parts):
        tell(line)
    _write(list(cells.values()))
    tried = [name for name in mutants() if any(cell.mutant == name for cell in cells.values())]
    missed = [name for name in tried if not any(cell.noticed for cell in cells.values() if cell.mutant == name)]
    tell(f"{len(tried)} mutants, not noticed: {', '.join(missed) or 'none'}; {time.monotonic() - began:.0f} s")
    return missed


def known_cells() -> dict[str, dict[str, str]]:
    """Of each mutant what each kind of run came to last."""
    found: dict[str, dict[str, str]] = json.loads(CELLS.read_text()) if CELLS.exists() else {}
    return found


def write_by_mutant(file: Path, results: Mapping[str, Mapping[str, Any]]) -> None:
    """A line a mutant, so that versions of the file can be compared; nothing where its folder is not."""
    if file.parent.exists():
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(results[name])}" for name in mutants() if name in results)
        temporary = file.with_suffix(".new")
        temporary.write_text(f"{{\n{lines}\n}}\n")
        temporary.replace(file)


def _write(cells: Sequence[Cell]) -> None:
    known = known_cells()
    for cell in cells:
        known.setdefault(cell.mutant, {})[cell.part] = str(cell)
    write_by_mutant(CELLS, known)


def _try(given: tuple[str, str, int]) -> Cell:
    return try_cell(*given)


def table(cells: Sequence[Cell], parts: Sequence[str]) -> list[str]:
    """The report as a table in Markdown: seeds until a mutant was noticed and by what, or "> n" when n did not."""
    found = {(cell.mutant, cell.part): cell for cell in cells}
    lines = [f"| mutant | {' | '.join(parts)} |", f"| --- |{' --- |' * len(parts)}"]
    for name in mutants():
        row = [str(found.get((name, part), "")) for part in parts]
        if any(row):
            lines.append(f"| {name} | {' | '.join(row)} |")
    return lines
