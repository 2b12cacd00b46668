"""For people: a verdict, or the findings of another analysis, as one self-contained HTML page and as plain text.

    page = render_html(verdict, history)             # the page as one text
    write_html(stream, verdict, history)             # the same, written piece by piece
    text = render_text(report_of(verdict, history))  # for a terminal

An analysis without a `Verdict` fills a `Report` and calls `render_report` or `write_report`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO

from raftlog.linearizability.checker.history import History
from raftlog.linearizability.checker.page.html import render_report, write_report
from raftlog.linearizability.checker.page.report import Finding, Report, Severity, report_of
from raftlog.linearizability.checker.page.text import render_text
from raftlog.linearizability.checker.page.timeline import timeline
from raftlog.linearizability.checker.verdict import Verdict

__all__ = [
    "Finding",
    "Report",
    "Severity",
    "render_html",
    "render_report",
    "render_text",
    "report_of",
    "timeline",
    "write_html",
    "write_report",
]


def render_html(
    verdict: Verdict,
    history: History | None = None,
    *,
    title: str | None = None,
    findings: Sequence[Finding] = (),
) -> str:
    """The page of a verdict: ASCII, about 45 bytes an operation and each distinct text once.

    Without a history it shows the operations of the verdict's parts; `title` is the history's source otherwise.
    Raises ValueError when verdict or findings speak of an operation that the history lacks.
    """
    return render_report(report_of(verdict, history, title=title, findings=findings))


def write_html(
    stream: IO[str],
    verdict: Verdict,
    history: History | None = None,
    *,
    title: str | None = None,
    findings: Sequence[Finding] = (),
) -> None:
    """Write the page of a verdict to a text stream. Raises what `render_html` raises, and what the stream does."""
    write_report(report_of(verdict, history, title=title, findings=findings), stream)
