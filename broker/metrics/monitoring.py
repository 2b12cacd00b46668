"""A broker seen from outside: the HTTP ports, and what they tell. Only a broker that has such a port has this."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from raftlog.broker.api.request_metrics import RequestTimes
from raftlog.broker.metrics.event_loop import EventLoopWatch
from raftlog.broker.metrics.page import MetricsPage
from raftlog.broker.metrics.sources import Sources
from raftlog.broker.runtime.readiness import Readiness
from raftlog.broker.server.health import PATHS, HealthServer

if TYPE_CHECKING:
    from raftlog.broker.api.context import Services
    from raftlog.broker.config import BrokerConfig
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.controller import Controller
    from raftlog.broker.runtime.disk_room import DiskRoom
    from raftlog.broker.server.listeners import Listeners
    from raftlog.broker.store.log_manager import LogManager
    from raftlog.broker.store.scheduled_tasks import ScheduledTasks

log = logging.getLogger("raftlog.metrics")

LISTENERS = ("raftlog.health.listener", "raftlog.metrics.listener")


class Monitoring:
    """`open` when the broker begins to start, and tell it of each part that is there."""

    def __init__(self, config: BrokerConfig, controller: Controller, listeners: Listeners, clock: Clock) -> None:
        """Needs a running event loop."""
        loop = asyncio.get_running_loop()
        self._addresses = [config[name] for name in LISTENERS if config[name]]
        self.sources = Sources(
            config.node_id,
            controller,
            listeners.counts,
            clock,
            RequestTimes(time.monotonic, listeners.waited_since, loop.call_soon),
            EventLoopWatch(loop, time.monotonic),
        )
        self.room: DiskRoom | None = None
        readiness = Readiness(config.node_id, lambda: controller.image, controller.log.status, self._full_disks)
        self.server = HealthServer(loop, readiness.reasons, MetricsPage(self.sources).get)

    def _full_disks(self) -> list[str]:
        return self.room.reasons() if self.room is not None else []

    async def open(self) -> None:
        """Listen. Raises OSError with the address in it."""
        for address in dict.fromkeys(self._addresses):
            host, _, port = address.rpartition(":")
            bound = await self.server.listen(host.strip("[]"), int(port))
            log.info("listening for http address=%s:%d paths=%s", *bound, ",".join(PATHS))
        self.sources.event_loop.begin()

    def has_logs(self, logs: LogManager, room: DiskRoom) -> None:
        """The data directories are known."""
        self.sources.logs = logs
        self.room = room
        self.sources.controller.subscribe(self.sources.elections.publish)

    def serves(self, services: Services, tasks: ScheduledTasks) -> None:
        """Clients are served."""
        self.sources.services = services
        self.sources.tasks = tasks
        services.counts.begin_timing(self.sources.times)

    def close(self) -> None:
        """Stop listening."""
        self.sources.event_loop.end()
        self.server.close()
