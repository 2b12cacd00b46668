"""The page of metrics: made anew for each scrape, in slices, by Prometheus's client library.

The library is imported in a thread when the first page is asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Final

from raftlog import __version__
from raftlog.broker.metrics.sources import Pauses, Sources

if TYPE_CHECKING:
    from prometheus_client.core import Metric

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"


class MetricsPage:
    """One page is made at a time; who asks meanwhile gets the same."""

    def __init__(self, sources: Sources) -> None:
        self.sources = sources
        self._making: asyncio.Task[bytes] | None = None
        self._wants_modules = True

    async def get(self) -> tuple[str, bytes]:
        """Its type and its text."""
        if self._making is None:
            self._making = asyncio.get_running_loop().create_task(self._make())
            self._making.add_done_callback(self._made)
        return CONTENT_TYPE, await asyncio.shield(self._making)

    def _made(self, _: asyncio.Task[bytes]) -> None:
        self._making = None

    async def _make(self) -> bytes:
        if self._wants_modules:
            await asyncio.get_running_loop().run_in_executor(None, _import_modules)
            self._wants_modules = False
        from raftlog.broker.metrics.families import written

        parts = []
        pauses = Pauses(self.sources.times.now)
        async for family in _families(self.sources, pauses):
            for part in written(family):
                parts.append(part)
                await pauses.pause()
        return b"".join(parts)


def _import_modules() -> None:
    for name in ("clients", "cluster", "groups", "logs"):
        import_module(f"raftlog.broker.metrics.{name}")


async def _families(sources: Sources, pauses: Pauses) -> AsyncIterator[Metric]:
    from raftlog.broker.metrics.cluster import controller_families, quorum_families

    for family in _process_families(sources):
        yield family
    for family in quorum_families(sources):
        yield family
    async for family in controller_families(sources, pauses):
        yield family
    if sources.logs is not None:
        from raftlog.broker.metrics.logs import directory_families, log_families

        for family in directory_families(sources.logs):
            yield family
        async for family in log_families(sources.logs, pauses):
            yield family
    async for family in _served_families(sources, pauses):
        yield family


async def _served_families(sources: Sources, pauses: Pauses) -> AsyncIterator[Metric]:
    from raftlog.broker.metrics.clients import (
        connection_families,
        fetch_families,
        request_families,
        traffic_families,
    )
    from raftlog.broker.metrics.cluster import replica_families, throttle_families
    from raftlog.broker.metrics.groups import group_families
    from raftlog.broker.metrics.logs import cleaner_families

    for family in connection_families(sources):
        yield family
    services = sources.services
    if services is None:
        return
    for part in (
        request_families(sources, services),
        traffic_families(services),
        fetch_families(services),
        replica_families(services),
        throttle_families(services),
    ):
        for family in part:
            yield family
        await pauses.pause()
    if sources.tasks is not None and sources.logs is not None:
        async for family in cleaner_families(sources.logs, sources.tasks, pauses):
            yield family
    async for family in group_families(services, pauses):
        yield family


def _process_families(sources: Sources) -> Iterator[Metric]:
    from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR

    from raftlog.broker.metrics.families import gauge, gauges, histogram

    labels = ["version", "node_id"]
    values = [([__version__, str(sources.node_id)], 1.0)]
    yield gauges("raftlog_build_info", "The version of this broker", labels, values)
    late = "By how much the event loop was late for a look that it takes ten times a second"
    yield histogram("raftlog_event_loop_late_seconds", late, sources.event_loop.late)
    longest = "The latest of them since the page before this one"
    yield gauge("raftlog_event_loop_late_seconds_max", longest, sources.event_loop.take_longest())
    yield from PROCESS_COLLECTOR.collect()
    yield from GC_COLLECTOR.collect()
