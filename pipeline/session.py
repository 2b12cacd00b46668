"""The connections of one Python process of Spark, kept from task to task: its workers serve many."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

from raftlog.client.client import Client
from raftlog.client.core.addresses import parse_addresses
from raftlog.client.loop_thread import LoopThread
from raftlog.client.router import Router
from raftlog.pipeline.given import Connection

if TYPE_CHECKING:
    from raftlog.client.core.settings import ProducerOptions
    from raftlog.client.producer import Producer

T = TypeVar("T")


class Session:
    """An event loop in a thread, and a client of one cluster in it."""

    def __init__(self, connection: Connection) -> None:
        self._thread = LoopThread()
        self._connection = connection
        self._left: ProducerRouter | None = None
        """By the last producer that was closed."""
        self.client = Client(connection.bootstrap, client_id=connection.client_id, timeout=connection.timeout)

    @property
    def router(self) -> Router:
        return self.client.router

    async def producer(self, options: ProducerOptions, transactional_id: str | None = None) -> Producer:
        """One that goes on with the connections of the last one that was closed, and with what was learned about the
        cluster through them, unless that is older than `metadata_max_age`. Raises BadSetting.
        """
        from raftlog.client.core.settings import ProducerSettings, make_settings
        from raftlog.client.producer import Producer

        settings = make_settings(ProducerSettings, {**options, "transactional_id": transactional_id})
        router, self._left = self._left, None
        if router is not None and time.monotonic() - router.since >= settings.metadata_max_age:
            await router.end()
            router = None
        return Producer(router or ProducerRouter(self._connection, self._leave), settings)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.run(work)

    def _leave(self, router: ProducerRouter) -> bool:
        """Keep it for the next producer."""
        is_first = self._left is None
        if is_first:
            self._left = router
        return is_first


class ProducerRouter(Router):
    """Its connections stay when its producer is closed, unless something is under way: who comes next would wait
    behind that.
    """

    def __init__(self, connection: Connection, leave: Callable[[ProducerRouter], bool]) -> None:
        """`leave` says whether the next producer will have it."""
        addresses = parse_addresses(connection.bootstrap)
        super().__init__(addresses, client_id=connection.client_id, timeout=connection.timeout)
        self.since = time.monotonic()
        self._leave = leave

    async def close(self) -> None:
        if not (self.is_idle and self._leave(self)):
            await self.end()

    async def end(self) -> None:
        """Close the connections."""
        await super().close()


_sessions: dict[tuple[int, Connection], Session] = {}


def session(connection: Connection) -> Session:
    """The one of this process; a fork has none of its parent's, whose threads it has not."""
    key = (os.getpid(), connection)
    if key not in _sessions:
        _sessions[key] = Session(connection)
    return _sessions[key]
