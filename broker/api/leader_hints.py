"""Who leads instead: what Produce v10 and Fetch v16 tell a client that asked the wrong broker (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from raftlog.wire.ids import BrokerId, LeaderEpoch

if TYPE_CHECKING:
    from raftlog.broker.core.connection.connection import Connection
    from raftlog.metadata.image import MetadataImage


class NodeAddress(NamedTuple):
    """A broker as a client reaches it."""

    node_id: int
    host: str
    port: int
    rack: str | None


def leader_of(image: MetadataImage, name: str, topic_id: bytes | None, index: int) -> tuple[BrokerId, LeaderEpoch]:
    """(leader, leader epoch) as the metadata have them, -1 where there is none."""
    by_name = name or topic_id is None
    topic = image.topics.get(name) if by_name else image.topics_by_id.get(topic_id or b"")
    if topic is None or not 0 <= index < len(topic.partitions):
        return BrokerId(-1), LeaderEpoch(-1)
    state = topic.partitions[index]
    return state.leader, state.leader_epoch


def addresses_of(image: MetadataImage, connection: Connection, node_ids: Iterable[BrokerId]) -> list[NodeAddress]:
    """The addresses of brokers on the listener that the client came through; those without one are left out."""
    found = []
    for node_id in dict.fromkeys(node_ids):
        broker = image.brokers.get(node_id)
        endpoint = broker.endpoint(connection.listener_name) if broker is not None else None
        if broker is not None and endpoint is not None:
            host = endpoint.host or connection.local_address[0]
            found.append(NodeAddress(node_id, host, endpoint.port, broker.rack))
    return found
