"""What members of a classic group of consumers tell each other: subscriptions and assignments.

The broker passes both on without looking, but for the topics of a subscription (OffsetDelete needs them).

1: partitions owned, for cooperative rebalancing (KIP-429).
2: generation of the owned partitions (KIP-792).
3: rack of the consumer (KIP-881).
"""

from __future__ import annotations

from typing import Final, TypeVar

from raftlog.wire.codec import Buffer, decode
from raftlog.wire.errors import RemoteProtocolError
from raftlog.wire.internal import internal_version
from raftlog.wire.schema import Bytes, Message, Struct, array, binary, int32, string

M = TypeVar("M", bound=Message)
_VERSION_SIZE = 2
_ELEMENTS_MAX: Final = 100_000
"""Topics and partitions together: a member of a group may be anybody, and each takes time."""


class SubscriptionTopicPartition(Struct):
    topic: str = string("1+")
    partitions: list[int] = array(int32, "1+")


class ConsumerProtocolSubscription(Message, versions=(0, 3), open_ended=True):
    topics: list[str] = array(string)
    user_data: Bytes | None = binary(nullable="0+", default=None)
    owned_partitions: list[SubscriptionTopicPartition] = array(SubscriptionTopicPartition, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class AssignmentTopicPartition(Struct):
    topic: str = string()
    partitions: list[int] = array(int32)


class ConsumerProtocolAssignment(Message, versions=(0, 3), open_ended=True):
    assigned_partitions: list[AssignmentTopicPartition] = array(AssignmentTopicPartition)
    user_data: Bytes | None = binary(nullable="0+", default=None)


def decode_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    """A member's subscription. A newer version is read as the newest one known, as every client does."""
    return _decode_any_version(ConsumerProtocolSubscription, data)


def decode_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    """A member's assignment. A newer version is read as the newest one known, as every client does."""
    return _decode_any_version(ConsumerProtocolAssignment, data)


def _decode_any_version(cls: type[M], data: Buffer) -> M:
    version = internal_version(data)
    if version < 0:
        raise RemoteProtocolError(f"{cls.__name__} of version {version}")
    return decode(cls, min(version, cls.versions.last), data, _VERSION_SIZE, elements_max=_ELEMENTS_MAX)
