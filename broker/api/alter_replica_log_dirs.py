"""AlterReplicaLogDirs (key 34), v1 and v2: move replicas between the data directories of a broker (KIP-113).

A replica stays where it is: moving one while it is written to is not built. The answers are Kafka's where there is
nothing to move, and POLICY_VIOLATION where there would be; a replica gets to another directory by reassigning it to
another broker and back.
"""

from __future__ import annotations

import os

from raftlog.broker.api.context import RequestContext
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """One error for each replica."""
    directories = {os.path.abspath(each.path): each for each in context.services.logs.describe()}
    home = {
        (topic, index): path for path, each in directories.items() for topic, index, _size in each.partitions
    }
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        path = os.path.abspath(wanted.path)
        for topic in wanted.topics:
            for index in topic.partitions:
                if path not in directories:
                    error = ErrorCode.LOG_DIR_NOT_FOUND
                elif directories[path].offline_reason is not None:
                    error = ErrorCode.KAFKA_STORAGE_ERROR
                else:
                    error = _outcome(home.get((topic.name, index)), path)
                result = AlterReplicaLogDirPartitionResult(partition_index=index, error_code=error)
                topics.setdefault(topic.name, []).append(result)
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=found) for name, found in topics.items()]
    )


def _outcome(home: str | None, path: str) -> ErrorCode:
    if home is None:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    return ErrorCode.NONE if home == path else ErrorCode.POLICY_VIOLATION
