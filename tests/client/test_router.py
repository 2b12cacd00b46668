"""Which broker is asked, told by replies that only a test gives."""

from __future__ import annotations

from typing import Any

from raftlog.client.core.addresses import Address
from raftlog.client.core.metadata import Node
from raftlog.client.router import Router
from raftlog.wire.messages.find_coordinator import FindCoordinatorResponse


class OneCoordinator(Router):
    """Who is asked says that broker 1 coordinates, and where it is now."""

    async def ask(self, request: Any, reply: Any, **options: Any) -> Any:
        return FindCoordinatorResponse(node_id=1, host="here", port=2)


async def test_a_coordinator_is_asked_where_it_is_said_to_be_now() -> None:
    """It has another address since it was restarted; nobody may ask for metadata for long, or ever again."""
    router = OneCoordinator([Address("nowhere", 1)])
    router.known.nodes[1] = Node(1, Address("there", 1), "rack")
    assert await router.coordinator("group") == 1
    assert router.known.nodes[1] == Node(1, Address("here", 2), "rack")
