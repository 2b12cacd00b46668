"""The same for programs on asyncio: `async with AsyncKafka() as kafka: await kafka.seed("orders", [b"one"])`."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from raftlog.testing.faults.faults import Faults
from raftlog.testing.kafka import Kafka
from raftlog.testing.process import START_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from raftlog.client import Client
    from raftlog.client.admin import Admin

T = TypeVar("T")
P = ParamSpec("P")


def _awaited(method: Callable[Concatenate[Kafka, P], T]) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    """The same method, with the same parameters, that leaves the event loop free while it works."""

    @functools.wraps(method)
    async def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await asyncio.to_thread(method, self.kafka, *args, **kwargs)

    return call


class AsyncKafka:
    """See `Kafka`, which is its `kafka`: what does not wait (`bootstrap_servers`, `faults`) is asked of that."""

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        directory: Path | str | None = None,
        links: bool | None = None,
        faults: bool = True,
        bootstrap_servers: str | None = None,
    ) -> None:
        self._client: Client | None = None
        self.kafka = Kafka(
            brokers,
            settings=settings,
            directory=directory,
            links=links,
            faults=faults,
            bootstrap_servers=bootstrap_servers,
        )

    async def __aenter__(self) -> Self:
        over = threading.Event()

        def start() -> None:
            try:
                self.kafka.start()
            finally:
                over.set()

        def stop() -> None:
            over.wait(START_TIMEOUT_SECONDS)
            self.kafka.stop()

        try:
            await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(start)))
        except asyncio.CancelledError:
            # The thread goes on, and nobody else would stop what it starts; also when we are cancelled once more.
            await asyncio.to_thread(stop)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        client, self._client = self._client, None
        try:
            if client is not None:
                await client.close()
        finally:
            await asyncio.to_thread(self.kafka.__exit__, kind, error, at)

    @property
    def bootstrap_servers(self) -> str:
        """See Kafka."""
        return self.kafka.bootstrap_servers

    @property
    def faults(self) -> Faults:
        """See Kafka. To ask for a fault takes a few milliseconds; what waits for brokers belongs in a thread."""
        return self.kafka.faults

    @property
    def client(self) -> Client:
        """raftlog's own client for asyncio, connected when it is first used: its methods are awaited."""
        from raftlog.client import Client

        if self._client is None:
            self._client = Client(self.bootstrap_servers, client_id="raftlog-testing")
        return self._client

    @property
    def admin(self) -> Admin:
        """Topics, settings, groups, transactions, awaited: see docs/CLIENT.md."""
        return self.client.admin

    topic = _awaited(Kafka.topic)
    seed = _awaited(Kafka.seed)
    records = _awaited(Kafka.records)
    lag = _awaited(Kafka.lag)
    committed = _awaited(Kafka.committed)
    wait_group = _awaited(Kafka.wait_group)
