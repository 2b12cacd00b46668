"""Histories of concurrent operations, and whether the service that answered them kept its promise.

    from raftlog.linearizability import Recorder, assert_linearizable, check
    from raftlog.linearizability.checker.models.register import Register

In a test, with the pytest fixture `kafka_history` (docs/TESTING.md):

    def test_the_register_is_linearizable(kafka_history):
        operation = kafka_history.invoke("client 1", "write", 3)
        kafka_history.ok(operation)
        assert_linearizable(kafka_history, Register())

Names are loaded when they are first used: pytest imports this package in everybody's test runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog.linearizability.assertions import assert_linearizable
    from raftlog.linearizability.checker.budget import Budget
    from raftlog.linearizability.checker.check import check
    from raftlog.linearizability.checker.exact.columns import (
        ColumnViolation,
        LogColumns,
        RegisterColumns,
        check_columns,
    )
    from raftlog.linearizability.checker.history import History, Operation
    from raftlog.linearizability.checker.model import Model
    from raftlog.linearizability.checker.online import OnlineCheck
    from raftlog.linearizability.checker.recorder import Recorder
    from raftlog.linearizability.checker.verdict import Invalid, Unknown, Valid, Verdict

__all__ = [
    "Budget",
    "ColumnViolation",
    "History",
    "Invalid",
    "LogColumns",
    "Model",
    "OnlineCheck",
    "Operation",
    "Recorder",
    "RegisterColumns",
    "Unknown",
    "Valid",
    "Verdict",
    "assert_linearizable",
    "check",
    "check_columns",
]

_HOMES = {
    "Budget": "checker.budget",
    "ColumnViolation": "checker.exact.columns",
    "History": "checker.history",
    "Invalid": "checker.verdict",
    "LogColumns": "checker.exact.columns",
    "Model": "checker.model",
    "OnlineCheck": "checker.online",
    "Operation": "checker.history",
    "Recorder": "checker.recorder",
    "RegisterColumns": "checker.exact.columns",
    "Unknown": "checker.verdict",
    "Valid": "checker.verdict",
    "Verdict": "checker.verdict",
    "assert_linearizable": "assertions",
    "check": "checker.check",
    "check_columns": "checker.exact.columns",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{home}"), name)
