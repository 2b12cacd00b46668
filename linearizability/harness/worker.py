"""A client process: `python -m raftlog.linearizability.harness.worker`, started by the runner.

The first line of standard input says what to do (`Assignment`), later ones in which phase the run is: `final` (read all
back, with what must be found) and `stop`. What it does goes to standard output (`journal.py`).
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from typing import Any

from raftlog.linearizability.harness.journal import Journal
from raftlog.linearizability.harness.libraries import library
from raftlog.linearizability.harness.outcomes import CallFailed
from raftlog.linearizability.harness.session import Assignment, Connections, Session
from raftlog.linearizability.harness.workloads.catalogue import WORKLOADS

PAUSE_AFTER_FAILURE_SECONDS = 0.2


class Orders:
    """What the runner says, read in a thread of its own."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.work = Assignment(**json.loads(sys.stdin.readline()))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._queue.put(json.loads(line))
        # The runner is gone: nobody wants to know any more.
        os._exit(1)

    def next(self, seconds: float) -> dict[str, Any] | None:
        """An order that comes within so many seconds."""
        try:
            return self._queue.get(timeout=max(0.0, seconds)) if seconds > 0 else self._queue.get_nowait()
        except queue.Empty:
            return None


def load(session: Session, orders: Orders) -> dict[str, Any]:
    """Do operations at about the rate that was asked for, until there is an order."""
    pause = 1.0 / session.work.rate
    due = time.monotonic() + session.random.random() * pause
    while (order := orders.next(due - time.monotonic())) is None:
        due = max(due + session.random.expovariate(1.0 / pause), time.monotonic())
        try:
            session.step()
        except CallFailed as failed:
            if failed.is_fatal:
                session.connections.drop()
            due = max(due, time.monotonic() + PAUSE_AFTER_FAILURE_SECONDS)
    return order


def main() -> None:
    """See the module."""
    orders = Orders()
    work = orders.work
    journal = Journal(sys.stdout, work.number)
    found = library(work.library)
    journal.note("version", {work.library: found.version})
    session = WORKLOADS[work.workload].session(work, journal, Connections(work, found))
    order = load(session, orders)
    if order["do"] == "final":
        session.connections.drop()
        journal.retire()
        try:
            session.final(order["goals"])
        except CallFailed as failed:
            journal.note("final-failed", str(failed))
        journal.note("final-done")
    sys.stdout.flush()
    os._exit(0)  # closing clients costs seconds, and tells nothing more


if __name__ == "__main__":
    main()
