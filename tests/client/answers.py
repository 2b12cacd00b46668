"""A cluster of one broker that is nothing but the answers that a test gives."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any

from raftlog.client.connection import Connection
from raftlog.client.core.addresses import Address
from raftlog.client.core.metadata import Node, Partition, Topic
from raftlog.client.router import Router
from raftlog.wire.apis import APIS
from raftlog.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from raftlog.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from raftlog.wire.schema import ZERO_UUID, Message

NOWHERE = Address("nowhere", 1)


class Answers(Router):
    """Broker 1 leads what topic t has, and coordinates. `asked` is what it was asked, but for who coordinates.

    It gives the `replies` one after the other, then those of `answer`; with neither, requests wait.
    """

    def __init__(self, *replies: Message, topic_id: bytes = ZERO_UUID, partitions: int = 1) -> None:
        super().__init__([NOWHERE])
        self.asked: list[Any] = []
        self.all_asked = asyncio.Event()
        """Set by a request that waits, and by one for metadata."""
        self.answer: Callable[[Any], Message] | None = None
        self.told = MetadataResponseTopic(name="t", topic_id=topic_id)
        """What metadata says of the topic."""
        self.coordinator_at = NOWHERE
        self._replies = deque(replies)
        self.known.nodes = {1: Node(1, NOWHERE)}
        self.known.topics["t"] = Topic(topic_id, {index: Partition(1, 0) for index in range(partitions)})

    async def connection(self, node: int = -1, *, lane: str = "") -> Connection:
        """Made to nobody; it serves the newest versions."""
        made = Connection(NOWHERE, "test")
        made._versions = {key: (api.min_version, api.max_version) for key, api in APIS.items()}
        return made

    async def ask(self, request: Any, reply: Any, **options: Any) -> Any:
        if isinstance(request, FindCoordinatorRequest):
            return FindCoordinatorResponse(node_id=1, host=self.coordinator_at.host, port=self.coordinator_at.port)
        self.asked.append(request)
        if isinstance(request, MetadataRequest):
            self.all_asked.set()
            broker = MetadataResponseBroker(node_id=1, host=NOWHERE.host, port=NOWHERE.port)
            return MetadataResponse(brokers=[broker], topics=[self.told])
        if self._replies:
            return self._replies.popleft()
        if self.answer is not None:
            return self.answer(request)
        self.all_asked.set()
        return await asyncio.Future()
