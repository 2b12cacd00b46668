"""The levels of a running broker's loggers, by Kafka's names for levels (KIP-412). They hold until the broker stops."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

ROOT: Final = "root"
"""Kafka's name for the logger from which all have their level that have none of their own."""

_ROOT_LOGGER: Final = "raftlog"
_TRACE: Final = 5

LEVELS: Final = {
    "TRACE": _TRACE,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
}

LOGGERS: Final = tuple(
    f"{_ROOT_LOGGER}.{name}"
    for name in (
        "broker", "changes", "check", "cleaner", "connection", "contact", "controller", "coordinator", "disk",
        "dispatcher", "groups", "lifecycle", "link", "log", "metrics", "partitions", "raft", "recovery",
        "replication", "server", "store", "transactions",
    )
)  # fmt: skip
"""All there are; that of a part that nobody has used yet, too."""


def described() -> Iterator[tuple[str, str]]:
    """Each logger, and the level that counts for it."""
    for name in (ROOT, *LOGGERS):
        number = _logger(name).getEffectiveLevel()
        yield name, next((level for level, lowest in reversed(LEVELS.items()) if number >= lowest), "TRACE")


def problem(name: str, level: str | None) -> str | None:
    """Why a logger cannot have this level, or None; without a level: why it cannot go back to that of the root."""
    if name not in (ROOT, *LOGGERS):
        return f"Logger {name} does not exist! The loggers of raftlog are {ROOT}, {', '.join(LOGGERS)}."
    if level is None and name == ROOT:
        return "Removing the log level of the root logger is not allowed"
    if level is not None and level not in LEVELS:
        return f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels" + (
            f" are {', '.join(LEVELS)}."
        )
    return None


def set_level(name: str, level: str | None) -> None:
    """Give it this level, or without one that of the root; `problem` has found none."""
    _logger(name).setLevel(logging.NOTSET if level is None else LEVELS[level])


def _logger(name: str) -> logging.Logger:
    return logging.getLogger(_ROOT_LOGGER if name == ROOT else name)
