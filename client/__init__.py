"""The client of raftlog and of any Kafka: `Client` for asyncio, `SyncClient` for all else.

Names are imported when they are first used: a program that only wants the errors pays for nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog.client.batch import Batch
    from raftlog.client.client import Client
    from raftlog.client.consumer import Consumer
    from raftlog.client.core.errors import KafkaError
    from raftlog.client.core.fetched import ConsumerRecord
    from raftlog.client.core.producer_batch import Placed
    from raftlog.client.delivery import Delivery
    from raftlog.client.offsets import GroupMember
    from raftlog.client.producer import Outgoing, Producer
    from raftlog.client.sync import SyncClient

__all__ = [
    "Batch",
    "Client",
    "Consumer",
    "ConsumerRecord",
    "Delivery",
    "GroupMember",
    "KafkaError",
    "Outgoing",
    "Placed",
    "Producer",
    "SyncClient",
]

_HOMES = {
    "Batch": "batch",
    "Client": "client",
    "Consumer": "consumer",
    "ConsumerRecord": "core.fetched",
    "Delivery": "delivery",
    "GroupMember": "offsets",
    "KafkaError": "core.errors",
    "Outgoing": "producer",
    "Placed": "core.producer_batch",
    "Producer": "producer",
    "SyncClient": "sync",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
