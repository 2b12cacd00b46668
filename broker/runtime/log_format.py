"""How the broker's log lines look: one line an event, `key=value` facts first, times in UTC; or one JSON object a line.

2026-01-31T12:00:00.123Z INFO  server    node=1 listening address=127.0.0.1:9092
{"time": "2026-01-31T12:00:00.123Z", "level": "INFO", "logger": "server", "node": 1, "message": "listening …"}
"""

from __future__ import annotations

import json
import logging
import time
from typing import Final

_ESCAPED: Final = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))} | {
    ord("\n"): "\\n",
    0x2028: "\\u2028",
    0x2029: "\\u2029",
}
"""What would end a line, or have a terminal do something: names that clients choose come into lines as they are."""


class LineFormatter(logging.Formatter):
    """Formats one event as one line; a trace follows indented."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node = node_id

    def format(self, record: logging.LogRecord) -> str:
        name = record.name.removeprefix("raftlog.")
        text = record.getMessage().translate(_ESCAPED)
        line = f"{_moment(record)} {record.levelname:<8} {name:<10} node={self._node} {text}"
        if record.exc_info:
            line += "\n    " + self.formatException(record.exc_info).replace("\n", "\n    ")
        return line


class JsonFormatter(logging.Formatter):
    """Formats one event as one JSON object; a trace is its `exception`."""

    def __init__(self, node_id: int) -> None:
        super().__init__()
        self._node = node_id

    def format(self, record: logging.LogRecord) -> str:
        event: dict[str, object] = {
            "time": _moment(record),
            "level": record.levelname,
            "logger": record.name.removeprefix("raftlog."),
            "node": self._node,
            "message": record.getMessage(),
        }
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


def _moment(record: logging.LogRecord) -> str:
    seconds = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{seconds}.{int(record.msecs):03d}Z"


def configure_logging(node_id: int, level: str, form: str = "text") -> None:
    """Send the broker's log lines to standard error; `form`: text or json."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter(node_id) if form == "json" else LineFormatter(node_id))
    root = logging.getLogger("raftlog")
    root.handlers[:] = [handler]
    root.setLevel(level)
    root.propagate = False
    others = logging.getLogger()
    others.handlers[:] = [handler]
    others.setLevel(logging.WARNING)
