"""Key-value histories in the form of Porcupine's test data: one EDN map a line, without times.

    {:process 9, :type :invoke, :f :append, :key "0", :value "x 9 0 y"}
"""

from __future__ import annotations

from raftlog.linearizability.checker.formats.jepsen import EventReader, numbered_maps
from raftlog.linearizability.checker.formats.lines import Progress, Source, Weigh, name_of, text_lines
from raftlog.linearizability.checker.history import History


def read_porcupine(
    source: Source, *, name: str | None = None, progress: Progress | None = None, weigh: Weigh | None = None
) -> History:
    """Read a file of maps from a path, an open file or lines: see `read_history`. Raises HistoryError with the line."""
    name = name_of(source, name)
    return EventReader(name).read(numbered_maps(text_lines(source, name, progress, weigh), name))
