"""Histories in files: which reader is for which format, within a budget."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from raftlog.linearizability.checker.formats.jepsen import read_jepsen
from raftlog.linearizability.checker.formats.porcupine import read_porcupine
from raftlog.linearizability.checker.history import History, HistoryError
from raftlog.linearizability.checker.jsonl import read_history
from raftlog.linearizability.checker.lines import LONG, LineError, decoded, weight
from raftlog.linearizability.resources import Allowance

FORMATS = ("jsonl", "jepsen", "porcupine")
_LOOK_EVERY = 5_000  # lines
_LONG_LINE = 1 << 16  # bytes, after which it is worth a look of its own
_LONGEST_LINE = 4 << 20  # bytes of one that is parsed here, in a second or two and not by C

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
                return read_history(stream, name=path, progress=look, weigh=allowance.expect)
        reader = read_jepsen if format_name == "jepsen" else read_porcupine
        with Path(path).open("rb") as stream:
            return reader(_lines(stream, path, look, allowance.expect), name=path)
    finally:
        gc.freeze()
        gc.enable()


def _lines(stream: IO[bytes], name: str, look: Progress, weigh: Callable[[int], None]) -> Iterator[str]:
    number = 0
    while line := stream.readline(_LONGEST_LINE + 1):
        number += 1
        if len(line) > _LONGEST_LINE:
            raise HistoryError(f"longer than {_LONGEST_LINE} bytes", number, name)
        if len(line) > LONG:
            weigh(weight(line))
        if number % _LOOK_EVERY == 0 or len(line) > _LONG_LINE:
            look(number)
        try:
            yield decoded(line)
        except LineError as error:
            raise HistoryError(str(error), number, name) from None
