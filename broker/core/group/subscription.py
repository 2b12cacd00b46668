"""Which topics the members of a group say they consume."""

from __future__ import annotations

from struct import Struct
from struct import error as StructError

CONSUMER_PROTOCOL_TYPE = "consumer"

_HEAD = Struct(">hi")
_LENGTH = Struct(">h")


class UnreadableSubscription(ValueError):
    """The metadata is not a consumer's subscription. Kafka takes it all the same: it is the members' own business."""


def subscribed_topics(metadata: bytes) -> list[str]:
    """The topics that one member subscribes to. Raises UnreadableSubscription."""
    try:
        version, count = _HEAD.unpack_from(metadata)
        if version < 0 or count < 0:
            raise UnreadableSubscription(f"version {version}, {count} topics")
        position = _HEAD.size
        topics = []
        for _ in range(count):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            if length < 0 or position + length > len(metadata):
                raise UnreadableSubscription(f"a topic of {length} bytes")
            topics.append(metadata[position : position + length].decode())
            position += length
    except (StructError, UnicodeDecodeError) as error:
        raise UnreadableSubscription(str(error)) from error
    return topics
