"""The Kafka clients that take part, each behind the same few calls (`ports.py`); imported when they are used."""

from __future__ import annotations

from importlib import import_module

from raftlog.linearizability.harness.libraries.ports import Library

MODULES = {"confluent": "confluent", "aiokafka": "aio", "raftlog": "own"}
"""By the names that users give."""


def library(name: str) -> Library:
    """Raises ImportError for one that is not installed."""
    module = import_module(f"{__name__}.{MODULES[name]}")
    found: Library = module.LIBRARY
    return found
