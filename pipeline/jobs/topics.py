"""Topics that jobs write to: made when they are not there."""

from __future__ import annotations

from collections.abc import Mapping

from raftlog.client.core.errors import Rejected
from raftlog.client.sync import SyncClient
from raftlog.client.topics import BROKER_DEFAULT
from raftlog.wire.errors import ErrorCode

KEPT: Mapping[str, str] = {"retention.ms": "-1"}
"""For records that are stamped with a time of long ago, which retention would take at once."""
COMPACTED: Mapping[str, str] = {"cleanup.policy": "compact"}


def ensure(
    client: SyncClient, topic: str, *, partitions: int = BROKER_DEFAULT, configs: Mapping[str, str] | None = None
) -> bool:
    """Whether it was made now. Raises KafkaError."""
    try:
        client.admin.create_topic(topic, partitions=partitions, configs=configs)
    except Rejected as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True
