"""Runs of `raftlog verify` one after the other, each in a folder of its own, which is there when they are looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from raftlog.linearizability.harness.folder import RUN
from raftlog.testing.process import safe_path

EARLIER = ".earlier-"
"""Runs that another one in their folder came after."""


def run_of(folder: Path) -> dict[str, Any] | None:
    """The run.json of a folder, if it has one whose run is done."""
    file = folder / RUN
    run: dict[str, Any] | None = json.loads(file.read_text()) if file.exists() else None
    return run if run is not None and run["status"] == "done" else None


def runs_in(folder: Path) -> list[dict[str, Any]]:
    """All runs in the folders of this one that are done, without those that another one came after."""
    newest = [file.parent for file in folder.glob(f"*/{RUN}") if EARLIER not in file.parent.name]
    return [run for each in newest if (run := run_of(each)) is not None]


def verify(folder: Path, arguments: Sequence[str], under: Sequence[str] = ()) -> str:
    """Run `raftlog verify` with these arguments; the last line that it prints is the verdict.

    A run that is in the folder already is put aside. `under`: words that it is started with, such as nice.
    """
    if folder.exists():
        taken = len(list(folder.parent.glob(f"{folder.name}{EARLIER}*")))
        folder.rename(folder.with_name(f"{folder.name}{EARLIER}{taken + 1}"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    command = [*under, sys.executable, *safe_path(), "-m", "raftlog", "verify", *arguments, "--output", str(folder)]
    lines = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False).stdout.splitlines()
    return lines[-1] if lines else "no verdict"


def tell(line: str) -> None:
    """A line of progress."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
