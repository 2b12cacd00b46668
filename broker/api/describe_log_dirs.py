"""DescribeLogDirs (key 35), v1 to v5 (KIP-113; sizes of the volume: KIP-827, v4).

The data directories, and the bytes that each partition takes there: 0 for one that nobody has used yet. What is copied
to another directory is told twice, the copy as a future replica. v5 tells which directories get no more
partitions (KIP-1066).
"""

from __future__ import annotations

from raftlog.broker.api.context import RequestContext, responds_in_turns
from raftlog.broker.api.pace import Pace
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)


@responds_in_turns
async def handle(context: RequestContext, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    """One result for each data directory."""
    wanted = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    results, pace = [], Pace()
    for directory in context.services.logs.describe(context.services.partitions.unwritten()):
        topics: dict[str, list[DescribeLogDirsPartition]] = {}
        for log in directory.partitions:
            await pace.spend(1)
            if wanted is None or (log.topic, log.partition) in wanted:
                topics.setdefault(log.topic, []).append(
                    DescribeLogDirsPartition(
                        partition_index=log.partition,
                        partition_size=log.size,
                        offset_lag=log.offset_lag,
                        is_future_key=log.is_future,
                    )
                )
        results.append(
            DescribeLogDirsResult(
                error_code=ErrorCode.NONE if directory.offline_reason is None else ErrorCode.KAFKA_STORAGE_ERROR,
                log_dir=directory.path,
                topics=[DescribeLogDirsTopic(name=name, partitions=found) for name, found in topics.items()],
                total_bytes=directory.total_bytes,
                usable_bytes=directory.usable_bytes,
                is_cordoned=directory.is_cordoned,
            )
        )
    return DescribeLogDirsResponse(results=results)
