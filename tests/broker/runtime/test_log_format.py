"""Lines of the broker's log, where clients have a say in what is in them."""

from __future__ import annotations

import logging

from raftlog.broker.runtime.log_format import LineFormatter


def test_no_name_that_a_client_chose_ends_a_line_or_moves_the_cursor_of_a_terminal() -> None:
    for code in (*range(32), *range(127, 160), 0x2028, 0x2029):
        record = logging.LogRecord("raftlog.groups", logging.INFO, "", 0, "group=%s", (f"a{chr(code)}b",), None)
        line = LineFormatter(1).format(record)
        assert line.isprintable() and line.endswith("b")
    record = logging.LogRecord("raftlog.groups", logging.INFO, "", 0, "group=%s", ("a\n\x1b[2Kß",), None)
    assert LineFormatter(1).format(record).endswith(r"group=a\n\x1b[2Kß")
