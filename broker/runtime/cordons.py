"""Tells the controller of a broker alone which of its data directories are cordoned (KIP-1066).

Among others each heartbeat says so.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raftlog.broker.runtime.controller import Controller
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId

RETRY_SECONDS = 5.0
"""After an answer that was an error: the disk has no room for metadata."""


class Cordons:
    """`cordoned` gives the ids of the directories that are."""

    def __init__(self, controller: Controller, node_id: BrokerId, cordoned: Callable[[], tuple[bytes, ...]]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._cordoned = cordoned
        self._telling: asyncio.Task[None] | None = None

    def changed(self) -> None:
        """Tell, unless the controller knows."""
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._tell())

    async def _tell(self) -> None:
        # Imported here: a broker alone starts sooner without the commands of clusters, and rarely has to tell.
        from raftlog.metadata.cluster_commands import BrokerHeartbeat

        while (own := self._controller.image.brokers.get(self._node_id)) is not None:
            cordoned = tuple(each for each in own.directories if each in self._cordoned())
            if cordoned == own.cordoned_directories:
                return
            version, epoch = self._controller.image.version, self._controller.broker_epoch
            command = BrokerHeartbeat(self._node_id, epoch, version, cordoned_directories=cordoned)
            if (await self._controller.execute(command)).error is not ErrorCode.NONE:
                await asyncio.sleep(RETRY_SECONDS)

    async def close(self) -> None:
        """Tell no more."""
        if self._telling is not None:
            self._telling.cancel()
            await asyncio.gather(self._telling, return_exceptions=True)
