"""Which broker is asked, told by replies that only a test gives."""

from __future__ import annotations

from raftlog.client.core.addresses import Address
from raftlog.client.core.metadata import Node
from tests.client.answers import Answers


async def test_a_coordinator_is_asked_where_it_is_said_to_be_now() -> None:
    """It has another address since it was restarted; nobody may ask for metadata for long, or ever again."""
    router = Answers()
    router.coordinator_at = Address("here", 2)
    router.known.nodes[1] = Node(1, Address("there", 1), "rack")
    assert await router.coordinator("group") == 1
    assert router.known.nodes[1] == Node(1, Address("here", 2), "rack")
