"""Tells the controller in which data directory each replica lies (KIP-858), on brokers that have several.

Knows how to find what the controller does not know yet: by comparing, so that nothing that was created, moved or missed
is forgotten. Refuses to know how it is told. A broker with one directory has nothing to tell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from raftlog.metadata.elections import directory_of

if TYPE_CHECKING:
    from raftlog.broker.runtime.controller import Controller
    from raftlog.broker.store.log_manager import LogManager

LOOK_SECONDS = 0.5
"""Until a replica is told of, the loss of any directory counts as its loss: late is only less exact."""


class DirectoryReports:
    """Looks now and then, and only when logs or metadata have changed."""

    def __init__(
        self, controller: Controller, logs: LogManager, node_id: int, assign: Callable[[bytes, int, bytes], None]
    ) -> None:
        """`assign` is called with (topic id, partition, directory id)."""
        self._controller = controller
        self._logs = logs
        self._node_id = node_id
        self._assign = assign
        self._seen = (-1, -1)
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look from now on."""
        if len(self._logs.directories) > 1:
            self._look()

    def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        now = (self._controller.image.version, len(self._logs))
        if now != self._seen:
            self._seen = now
            self.report()

    def report(self) -> None:
        """Tell what the metadata do not say yet."""
        image = self._controller.image
        for directory in self._logs.directories:
            if directory.offline_reason is not None:
                continue
            for name, index in directory.logs:
                topic = image.topics.get(name)
                if topic is None or not 0 <= index < len(topic.partitions):
                    continue
                state = topic.partitions[index]
                if self._node_id in state.replicas and directory_of(state, self._node_id) != directory.directory_id:
                    self._assign(topic.topic_id, index, directory.directory_id)
