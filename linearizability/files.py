"""Histories in files: which reader is for which format, within a budget.

Knows: formats by name, and that reading costs time and memory too. Refuses to know: what is in the files.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from raftlog.linearizability.checker.formats.jepsen import read_jepsen
from raftlog.linearizability.checker.formats.porcupine import read_porcupine
from raftlog.linearizability.checker.history import History, HistoryError
from raftlog.linearizability.checker.jsonl import read_history
from raftlog.linearizability.checker.lines import MAX_LINE_BYTES, LineError, decoded
from raftlog.linearizability.resources import Allowance

FORMATS = ("jsonl", "jepsen", "porcupine")
_LOOK_EVERY = 5_000  # lines
_LONG_LINE = 1 << 16  # bytes, after which it is worth a look of its own

Progress = Callable[[int], None]  # lines read


def read_file(path: str, format_name: str, allowance: Allowance, progress: Progress) -> History:
    """The history in a file of that format. Raises HistoryError, OSError, and OutOfBudget when that costs too much."""

    def look(line: int) -> None:
        allowance.look()
        progress(line)

    # Nothing that is read is garbage, but the collector would look at all of it again and again.
    gc.disable()
    try:
        if format_name == "jsonl":
            with Path(path).open("rb") as stream:
                return read_history(stream, name=path, progress=look)
        reader = read_jepsen if format_name == "jepsen" else read_porcupine
        with Path(path).open("rb") as stream:
            return reader(_lines(stream, path, look), name=path)
    finally:
        gc.freeze()
        gc.enable()


def _lines(stream: IO[bytes], name: str, look: Progress) -> Iterator[str]:
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if len(line) > MAX_LINE_BYTES:
            raise HistoryError(f"longer than {MAX_LINE_BYTES} bytes", number, name)
        if number % _LOOK_EVERY == 0 or len(line) > _LONG_LINE:
            look(number)
        try:
            yield decoded(line)
        except LineError as error:
            raise HistoryError(str(error), number, name) from None
