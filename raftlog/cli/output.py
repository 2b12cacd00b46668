"""What commands print: one line of JSON for programs, tables for people."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import IO

from raftlog.cli.failure import CommandFailed

Cell = str | int | float | None


def print_json(value: object) -> None:
    """One document on one line of standard output, in ASCII where its texts cannot be encoded as they are."""
    import json

    line = json.dumps(value, ensure_ascii=False, separators=(", ", ": ")) + "\n"
    try:
        line.encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        line = json.dumps(value, separators=(", ", ": ")) + "\n"
    sys.stdout.write(line)


def table(columns: Sequence[str], rows: Sequence[Sequence[Cell]], *, indent: str = "") -> str:
    """Rows under headings, numbers to the right; a column that is empty in every row is left out."""
    texts = [["-" if cell is None else str(cell) for cell in row] for row in rows]
    shown = [at for at in range(len(columns)) if not rows or any(row[at] not in (None, "") for row in rows)]
    lines_of_cells = [list(columns), *texts]
    widths = [max(len(line[at]) for line in lines_of_cells) for at in range(len(columns))]
    numeric = [
        bool(rows) and all(isinstance(row[at], (int, float, type(None))) for row in rows) for at in range(len(columns))
    ]
    printed = []
    for line in lines_of_cells:
        cells = [line[at].rjust(widths[at]) if numeric[at] else line[at].ljust(widths[at]) for at in shown]
        printed.append(indent + "  ".join(cells).rstrip())
    return "\n".join(printed)


def utc(timestamp_ms: int) -> str:
    """`2026-01-31T12:00:00.000Z`"""
    moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


NO_PAGE = "PAGE"
"""The code of a failure to write a page."""


def write_page(path: str, write: Callable[[IO[str]], None]) -> None:
    """Write a page (ASCII) to a file, and say where it is. Raises CommandFailed when it cannot be written."""
    try:
        with open(path, "w", encoding="ascii") as stream:
            write(stream)
    except OSError as error:
        raise CommandFailed(f"the page {path}: {error.strerror}", code=NO_PAGE) from None
    notice(f"the page is in {path}")


def notice(message: str) -> None:
    """Something a person should know that is not the result: on standard error, so pipes stay clean."""
    print(message, file=sys.stderr, flush=True)


def plural(count: int, noun: str) -> str:
    """`1 record`, `1,234 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
