"""The connections of one Python process of Spark, kept from task to task: its workers serve many."""

from __future__ import annotations

import os
from collections.abc import Coroutine
from typing import Any, TypeVar

from raftlog.client.client import Client
from raftlog.client.loop_thread import LoopThread
from raftlog.client.router import Router
from raftlog.pipeline.given import Connection

T = TypeVar("T")


class Session:
    """An event loop in a thread, and a client of one cluster in it."""

    def __init__(self, connection: Connection) -> None:
        self._thread = LoopThread()
        self.client = Client(connection.bootstrap, client_id=connection.client_id, timeout=connection.timeout)

    @property
    def router(self) -> Router:
        return self.client.router

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)


_sessions: dict[tuple[int, Connection], Session] = {}


def session(connection: Connection) -> Session:
    """The one of this process; a fork has none of its parent's, whose threads it has not."""
    key = (os.getpid(), connection)
    if key not in _sessions:
        _sessions[key] = Session(connection)
    return _sessions[key]
