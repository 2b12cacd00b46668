"""Tells the controller in which data directory each replica lies (KIP-858), on brokers that have several.

What the controller does not know yet is found by comparing, so that nothing that was created, moved or missed is
forgotten. A broker with one directory has nothing to tell, unless it had more before.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING

from raftlog.metadata.cluster_commands import AssignDirectories, DirectoryAssignment
from raftlog.metadata.elections import NO_DIRECTORY, directory_of
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId
from raftlog.wire.uuids import uuid_to_text

if TYPE_CHECKING:
    from raftlog.broker.runtime.controller import Controller
    from raftlog.broker.store.log_manager import LogManager

log = logging.getLogger("raftlog.store")

LOOK_SECONDS = 0.5
"""Until a replica is told of, the loss of any directory counts as its loss: late is only less exact."""
RETRY_SECONDS = 5.0
"""After an answer that was an error: a disk without room for metadata is told of each time."""
FINISH_SECONDS_MAX = 1.0
"""For the last of them when a broker alone stops, whose disk may stand still."""


class Assignments:
    """Sends what the controller is to be told until it has taken it, all that comes in one turn of the loop at once."""

    def __init__(self, controller: Controller, node_id: BrokerId) -> None:
        self._controller = controller
        self._node_id = node_id
        self._waiting: dict[tuple[bytes, int], bytes] = {}
        self._sending: asyncio.Task[None] | None = None

    def assign(self, topic_id: bytes, index: int, directory_id: bytes) -> None:
        """A replica lies in this directory."""
        self._waiting[topic_id, index] = directory_id
        if self._sending is None or self._sending.done():
            self._sending = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        await asyncio.sleep(0)
        while self._waiting:
            sent = dict(self._waiting)
            assignments = tuple(DirectoryAssignment(*key, directory) for key, directory in sent.items())
            command = AssignDirectories(self._node_id, self._controller.broker_epoch, assignments)
            answer = await self._controller.execute(command)
            if answer.error is not ErrorCode.NONE:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for key, directory in sent.items():
                if self._waiting.get(key) == directory:
                    del self._waiting[key]

    async def sent(self, seconds_max: float) -> None:
        """Wait until the controller has taken all, or can not in time."""
        if self._sending is not None:
            await asyncio.wait([self._sending], timeout=seconds_max)

    async def close(self) -> None:
        """Send no more."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)


class DirectoryReports:
    """Looks now and then, and only when logs or metadata have changed."""

    def __init__(self, controller: Controller, logs: LogManager, node_id: BrokerId) -> None:
        self._controller = controller
        self._logs = logs
        self._node_id = node_id
        self._assignments = Assignments(controller, node_id)
        self._seen = (-1, -1, -1)
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """Look from now on."""
        missing = self._missing()
        for directory_id, replicas in missing.items():
            log.error(
                "the data directory with directory.id=%s is missing: what lies in it (replicas=%d) is copied again from"
                " other brokers; what they do not have has no leader until the directory is back",
                uuid_to_text(directory_id),
                replicas,
            )
        if len(self._logs.directories) > 1 or missing:
            self._look()

    def _missing(self) -> Counter[bytes]:
        """How many replicas of this broker the metadata have in each directory that it does not have."""
        known = {NO_DIRECTORY, *(directory.directory_id for directory in self._logs.directories)}
        topics = self._controller.image.topics.values()
        found = Counter(directory_of(state, self._node_id) for topic in topics for state in topic.partitions)
        return Counter({each: count for each, count in found.items() if each not in known})

    async def finish(self) -> None:
        """Look once more, and have the controller know before the broker stops."""
        self.report()
        await self._assignments.sent(FINISH_SECONDS_MAX)
        await self.end()

    async def end(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
        await self._assignments.close()

    def _look(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(LOOK_SECONDS, self._look)
        now = (self._controller.image.version, len(self._logs), self._logs.futures.done)
        if now != self._seen:
            self._seen = now
            self.report()

    def report(self) -> None:
        """Tell what the metadata do not say yet."""
        image = self._controller.image
        own = image.brokers.get(self._node_id)
        # One that failed while the broker runs is told of too: else its newest replicas would lead for ever.
        registered = own.directories if own is not None else ()
        for directory in self._logs.directories:
            if directory.directory_id not in registered:
                continue
            for name, index in directory.logs:
                topic = image.topics.get(name)
                if topic is None or not 0 <= index < len(topic.partitions):
                    continue
                state = topic.partitions[index]
                if self._node_id in state.replicas and directory_of(state, self._node_id) != directory.directory_id:
                    self._assignments.assign(topic.topic_id, index, directory.directory_id)
