"""Histories in files: which reader is for which format, within a budget."""

from __future__ import annotations

import gc

from raftlog.linearizability.checker.formats.jepsen import read_jepsen
from raftlog.linearizability.checker.formats.jsonl import read_history
from raftlog.linearizability.checker.formats.lines import Progress, Source
from raftlog.linearizability.checker.formats.porcupine import read_porcupine
from raftlog.linearizability.checker.history import History
from raftlog.linearizability.resources import Allowance

READERS = {"jsonl": read_history, "jepsen": read_jepsen, "porcupine": read_porcupine}


def read_file(source: Source, format_name: str, allowance: Allowance, progress: Progress) -> History:
    """The history in a file, or in lines. Raises HistoryError, OSError, and OutOfBudget when that costs too much."""

    def look(line: int) -> None:
        allowance.look()
        progress(line)

    # Nothing that is read is garbage, but the collector would look at all of it again and again.
    gc.disable()
    try:
        return READERS[format_name](source, progress=look, weigh=allowance.expect)
    finally:
        gc.freeze()
        gc.enable()
