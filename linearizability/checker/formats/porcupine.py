"""Key-value histories in the form of Porcupine's test data: one EDN map a line, without times.

    {:process 9, :type :invoke, :f :append, :key "0", :value "x 9 0 y"}
"""

from __future__ import annotations

from collections.abc import Iterable

from raftlog.linearizability.checker.formats.jepsen import EventReader, numbered_maps
from raftlog.linearizability.checker.history import History


def read_porcupine(lines: Iterable[str], *, name: str | None = None) -> History:
    """Read a file of maps. Raises HistoryError with the line."""
    return EventReader(name).read(numbered_maps(lines, name))
