"""What the metrics are read from: the parts of a broker, as far as it has started."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from raftlog.broker.api.request_metrics import RequestTimes
from raftlog.broker.metrics.elections import Elections
from raftlog.broker.metrics.event_loop import EventLoopWatch

if TYPE_CHECKING:
    from raftlog.broker.api.context import Services
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.controller import Controller
    from raftlog.broker.server.listeners import ConnectionCounts
    from raftlog.broker.store.log_manager import LogManager
    from raftlog.broker.store.scheduled_tasks import ScheduledTasks

SLICE_SECONDS = 0.005
"""How long a page in the making may hold the event loop at a time."""


@dataclass(slots=True)
class Sources:
    """`logs` are there once the data directories are read, `services` and `tasks` once clients are served."""

    node_id: int
    controller: Controller
    connections: Callable[[], ConnectionCounts]
    clock: Clock
    times: RequestTimes
    event_loop: EventLoopWatch
    elections: Elections = field(default_factory=Elections)
    logs: LogManager | None = None
    services: Services | None = None
    tasks: ScheduledTasks | None = None


class Pauses:
    """Gives the event loop back now and then."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._began = monotonic()

    async def pause(self) -> None:
        """Let others have their turn, if it is time for that."""
        if self._monotonic() - self._began > SLICE_SECONDS:
            await asyncio.sleep(0)
            self._began = self._monotonic()
