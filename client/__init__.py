"""The client of raftlog and of any Kafka: `Client` for asyncio, `SyncClient` for all else.

Names are imported when they are first used: a program that only wants the errors pays for nothing else.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raftlog.client.admin import Admin
    from raftlog.client.batch import Batch
    from raftlog.client.client import Client
    from raftlog.client.columns.outcome import TableDelivery
    from raftlog.client.consumer import Consumer
    from raftlog.client.core.errors import (
        BadTable,
        BrokerUnreachable,
        BufferFull,
        Closed,
        DamagedRecords,
        KafkaError,
        MissingExtra,
        NoOffset,
        NotKafka,
        ProducerFenced,
        Rejected,
        TimedOut,
        TransactionFailed,
        WrongState,
    )
    from raftlog.client.core.fetched import ConsumerRecord
    from raftlog.client.core.producer_batch import Placed
    from raftlog.client.core.progress import Position
    from raftlog.client.core.reassignment import ImpossiblePlan
    from raftlog.client.core.settings import BadSetting, ConsumerOptions, ProducerOptions
    from raftlog.client.core.transaction import PreparedTransaction
    from raftlog.client.delivery import Delivery
    from raftlog.client.offsets import GroupMember
    from raftlog.client.producer import Outgoing, Producer, TransactionBlock
    from raftlog.client.sync import SyncAdmin, SyncClient, SyncConsumer, SyncProducer, SyncTransaction
    from raftlog.wire.errors import ErrorCode

__all__ = [
    "Admin",
    "BadSetting",
    "BadTable",
    "Batch",
    "BrokerUnreachable",
    "BufferFull",
    "Client",
    "Closed",
    "Consumer",
    "ConsumerOptions",
    "ConsumerRecord",
    "DamagedRecords",
    "Delivery",
    "ErrorCode",
    "GroupMember",
    "ImpossiblePlan",
    "KafkaError",
    "MissingExtra",
    "NoOffset",
    "NotKafka",
    "Outgoing",
    "Placed",
    "Position",
    "PreparedTransaction",
    "Producer",
    "ProducerFenced",
    "ProducerOptions",
    "Rejected",
    "SyncAdmin",
    "SyncClient",
    "SyncConsumer",
    "SyncProducer",
    "SyncTransaction",
    "TableDelivery",
    "TimedOut",
    "TransactionBlock",
    "TransactionFailed",
    "WrongState",
]

_HOMES = {
    "Admin": "client.admin",
    "BadSetting": "client.core.settings",
    "BadTable": "client.core.errors",
    "Batch": "client.batch",
    "BrokerUnreachable": "client.core.errors",
    "BufferFull": "client.core.errors",
    "Client": "client.client",
    "Closed": "client.core.errors",
    "Consumer": "client.consumer",
    "ConsumerOptions": "client.core.settings",
    "ConsumerRecord": "client.core.fetched",
    "DamagedRecords": "client.core.errors",
    "Delivery": "client.delivery",
    "ErrorCode": "wire.errors",
    "GroupMember": "client.offsets",
    "ImpossiblePlan": "client.core.reassignment",
    "KafkaError": "client.core.errors",
    "MissingExtra": "client.core.errors",
    "NoOffset": "client.core.errors",
    "NotKafka": "client.core.errors",
    "Outgoing": "client.producer",
    "Placed": "client.core.producer_batch",
    "Position": "client.core.progress",
    "PreparedTransaction": "client.core.transaction",
    "Producer": "client.producer",
    "ProducerFenced": "client.core.errors",
    "ProducerOptions": "client.core.settings",
    "Rejected": "client.core.errors",
    "SyncAdmin": "client.sync",
    "SyncClient": "client.sync",
    "SyncConsumer": "client.sync",
    "SyncProducer": "client.sync",
    "SyncTransaction": "client.sync",
    "TableDelivery": "client.columns.outcome",
    "TimedOut": "client.core.errors",
    "TransactionBlock": "client.producer",
    "TransactionFailed": "client.core.errors",
    "WrongState": "client.core.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"raftlog.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
