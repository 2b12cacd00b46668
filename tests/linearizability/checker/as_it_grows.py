"""A finished history judged as if it grew: for comparison with the same judged at once."""

from __future__ import annotations

from typing import Any

from raftlog.linearizability.checker.budget import Budget
from raftlog.linearizability.checker.history import History
from raftlog.linearizability.checker.model import Model
from raftlog.linearizability.checker.online import OnlineCheck
from raftlog.linearizability.checker.verdict import Verdict


def check_online(history: History, model: Model[Any], *, budget: Budget | None = None, **options: Any) -> Verdict:
    """Event by event; `options` are those of `OnlineCheck`."""
    online = OnlineCheck(model, budget=budget, time_unit=history.time_unit, **options)
    online.extend(history.events())
    return online.finish()
