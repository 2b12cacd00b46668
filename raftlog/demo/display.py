"""Progress of a job: bars on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

PLAIN_SECONDS = 1.0


class Display:
    """Named counters out of `total`, shown while the block lasts."""

    def __init__(self, names: list[str], total: int) -> None:
        self._names = names
        self._total = total
        self._counts = dict.fromkeys(names, 0)
        self._last_plain = 0.0
        self._progress = make_bars() if sys.stdout.isatty() else None
        self._tasks = {}
        if self._progress is not None:
            self._tasks = {name: self._progress.add_task(name, total=total) for name in names}

    def __enter__(self) -> Display:
        if self._progress is not None:
            self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._progress is not None:
            self._progress.stop()

    def say(self, text: str) -> None:
        """One line of its own, above the bars."""
        if self._progress is not None:
            self._progress.console.print(text, highlight=False)
        else:
            print(text, flush=True)

    def update(self, **counts: int) -> None:
        self._counts |= counts
        if self._progress is not None:
            for name, count in counts.items():
                self._progress.update(self._tasks[name], completed=min(count, self._total))
            return
        now = time.monotonic()
        if now - self._last_plain >= PLAIN_SECONDS:
            self._last_plain = now
            self.say("  ".join(f"{name} {100 * count // self._total:3d} %" for name, count in self._counts.items()))


def make_bars() -> Any:  # rich is an extra: importing this module must not need it
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = [BarColumn(), TaskProgressColumn(), MofNCompleteColumn(), TimeElapsedColumn()]
    return Progress(TextColumn("{task.description:>9}"), *columns)
