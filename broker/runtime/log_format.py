"""How the broker's log lines look: one line an event, `key=value` facts first, times in UTC.

2026-01-31T12:00:00.123Z INFO  server    node=1 listening address=127.0.0.1:9092
"""

from __future__ import annotations

import logging
import time


class LineFormatter(logging.Formatter):
    """Formats one event as one line; a trace follows indented."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node = node_id

    def format(self, record: logging.LogRecord) -> str:
        seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        name = record.name.removeprefix("raftlog.")
        text = record.getMessage().replace("\n", "\\n")
        line = f"{seconds}.{int(record.msecs):03d}Z {record.levelname:<8} {name:<10} node={self._node} {text}"
        if record.exc_info:
            line += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return line


def configure_logging(node_id: int, level: str) -> None:
    """Send the broker's log lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(node_id))
    root = logging.getLogger("raftlog")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
    others = logging.getLogger()
    others.handlers[:] = [handler]
    others.setLevel(logging.WARNING)
