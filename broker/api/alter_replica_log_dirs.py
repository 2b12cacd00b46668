"""AlterReplicaLogDirs (key 34), v1 and v2: move replicas between the data directories of a broker (KIP-113).

A partition that nobody has used yet has its log made in the directory that is asked for. Any other is copied there
while it is used (`store/log_moves.py`); DescribeLogDirs tells how far the copy is. Asking for the directory in which a
replica lies ends its move to another one.
"""

from __future__ import annotations

import errno
import logging
import os

from raftlog.broker.api.context import RequestContext, responds
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

logger = logging.getLogger("raftlog.store")


@responds
def handle(context: RequestContext, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    """One error for each replica."""
    services = context.services
    directories = {os.path.abspath(each.path): each for each in services.logs.describe(services.partitions.unwritten())}
    hosted = {(log.topic, log.partition) for each in directories.values() for log in each.partitions}

    def outcome(path: str, topic: str, index: int) -> ErrorCode:
        if path not in directories:
            return ErrorCode.LOG_DIR_NOT_FOUND
        if directories[path].offline_reason is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if directories[path].is_cordoned:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT
        if services.controller.image.partition(topic, index) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if (topic, index) not in hosted:
            return ErrorCode.REPLICA_NOT_AVAILABLE
        try:
            services.logs.move(topic, index, directories[path].path)
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return ErrorCode.INVALID_TOPIC_EXCEPTION
            logger.error("partition=%s-%d cannot be moved to %s: %s", topic, index, path, error)
            return ErrorCode.KAFKA_STORAGE_ERROR
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
