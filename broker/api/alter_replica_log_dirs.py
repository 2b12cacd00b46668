"""AlterReplicaLogDirs (key 34), v1 and v2: move replicas between the data directories of a broker (KIP-113).

A partition that nobody has used yet has its log made in the directory that is asked for. Any other stays where it is:
moving one while it is written to is not built. The answers are Kafka's where there is nothing to move, and
POLICY_VIOLATION where there would be; a replica gets to another directory by reassigning it to another broker and back.
"""

from __future__ import annotations

import os

from raftlog.broker.api.context import RequestContext, responds
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


@responds
def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """One error for each replica."""
    services = context.services
    directories = {os.path.abspath(each.path): each for each in services.logs.describe(services.partitions.unwritten())}
    homes = {(topic, index): path for path, each in directories.items() for topic, index, _size in each.partitions}

    def outcome(path: str, topic: str, index: int) -> ErrorCode:
        if path not in directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directories[path].offline_reason is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if services.controller.image.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        home = homes.get((topic, index))
        if home is None:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        if home != path and services.partitions.is_on_disk(topic, index):
            return ErrorCode.POLICY_VIOLATION
        if home != path:
            services.logs.plan(topic, index, directories[path].path)
        return ErrorCode.NONE

    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for wanted in request.dirs:
        path = os.path.abspath(wanted.path)
        for topic in wanted.topics:
            topics.setdefault(topic.name, []).extend(
                AlterReplicaLogDirPartitionResult(partition_index=index, error_code=outcome(path, topic.name, index))
                for index in topic.partitions
            )
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(topic_name=name, partitions=found) for name, found in topics.items()]
    )
