"""The asyncio client: where producers, consumers and administration are made.

Each of these is imported when the first one is made: a program pays for what it uses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Unpack
from weakref import WeakSet

from raftlog.client.core.addresses import Address, parse_addresses
from raftlog.client.router import Router

if TYPE_CHECKING:
    import ssl
    from types import TracebackType

    from raftlog.client.admin import Admin
    from raftlog.client.consumer import Consumer
    from raftlog.client.core.settings import ConsumerOptions, ProducerOptions
    from raftlog.client.producer import Producer


class Client:
    """Of one cluster. `timeout` (seconds) bounds each call, with all its retries, that has none of its own.

        async with Client("host:9092") as client, client.producer() as producer:
            await producer.send("orders", b"value", key=b"key")

    Nothing is connected before it is needed. Producers and consumers have connections of their own, and live no longer
    than their own blocks, or than the client.
    """

    def __init__(
        self,
        bootstrap: str | Sequence[Address | str],
        *,
        client_id: str = "raftlog",
        timeout: float = 15.0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._bootstrap = parse_addresses(bootstrap)
        self._client_id = client_id
        self._tls = tls
        self.timeout = timeout
        self.router = self._new_router()
        self._made: WeakSet[Producer | Consumer] = WeakSet()

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close what was made here, too, where nobody has."""
        await asyncio.gather(*(each.close() for each in [*self._made]), return_exceptions=True)
        await self.router.close()

    @cached_property
    def admin(self) -> Admin:
        from raftlog.client.admin import Admin

        return Admin(self.router)

    def producer(self, **options: Unpack[ProducerOptions]) -> Producer:
        """To be used as `async with`. Raises BadSetting."""
        from raftlog.client.core.settings import ProducerSettings, make_settings
        from raftlog.client.producer import Producer

        made = Producer(self._new_router(), make_settings(ProducerSettings, options))
        self._made.add(made)
        return made

    def consumer(self, *topics: str, pattern: str | None = None, **options: Unpack[ConsumerOptions]) -> Consumer:
        """To be used as `async with`. Reads `topics`, and those whose whole names match `pattern`; raises BadSetting.

        With `group` the partitions are divided among the group's members, otherwise all are read.
        """
        from raftlog.client.consumer import Consumer
        from raftlog.client.core.settings import ConsumerSettings, check_topics, make_settings

        settings = make_settings(ConsumerSettings, options)
        check_topics(settings, topics, pattern)
        made = Consumer(self._new_router(), settings, topics, pattern=pattern)
        self._made.add(made)
        return made

    def _new_router(self) -> Router:
        return Router(self._bootstrap, client_id=self._client_id, timeout=self.timeout, tls=self._tls)
