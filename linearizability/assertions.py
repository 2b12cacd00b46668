"""`assert_linearizable`: a test fails with the witness."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raftlog.linearizability.checker.check import check
from raftlog.linearizability.checker.history import History, Operation
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.page import render_text, report_of
from raftlog.linearizability.checker.recorder import Recorder
from raftlog.linearizability.checker.verdict import Valid
from raftlog.linearizability.resources import budget


def assert_linearizable(
    history: History | Recorder | Sequence[Operation],
    model: Model[Any],
    *,
    seconds: float | None = 60.0,
    megabytes: float | None = 500,
) -> None:
    """Raise AssertionError with the witness unless the history is valid; Unknown is a failure too, and says so.

    Operations that a recorder has still open are of unknown outcome. Raises HistoryError for operations that the
    model does not know.
    """
    __tracebackhide__ = True
    if isinstance(history, Recorder):
        history = history.history()
    elif not isinstance(history, History):
        history = History.of(history)
    verdict = check(history, model, budget=budget(seconds, megabytes))
    if not isinstance(verdict, Valid):
        raise AssertionError(f"not linearizable\n{render_text(report_of(verdict, history))}")
