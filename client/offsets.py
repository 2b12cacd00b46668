"""Offsets asked of the brokers: the start, the end, by time, and where a group stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raftlog.client.core.errors import check
from raftlog.client.core.fetching import EARLIEST, LATEST
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.progress import Position
from raftlog.client.router import Router
from raftlog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchResponse

__all__ = ["EARLIEST", "LATEST", "by_topic", "commit_offsets", "committed_offsets", "offsets_at", "offsets_found"]

READ_COMMITTED = 1


async def offsets_at(
    router: Router, partitions: Mapping[TopicPartition, int], *, read_committed: bool = True
) -> dict[TopicPartition, int]:
    """The first offset at or after a time (ms since 1970, or LATEST or EARLIEST); the end where there is none."""
    found = await offsets_found(router, partitions, read_committed=read_committed)
    missing = {partition: LATEST for partition, offset in found.items() if offset < 0}
    if missing:
        found |= await offsets_at(router, missing, read_committed=read_committed)
    return found


async def offsets_found(
    router: Router, partitions: Mapping[TopicPartition, int], *, read_committed: bool = True
) -> dict[TopicPartition, int]:
    """As `offsets_at`, and -1 where there is no record as late as that."""
    return await router.retrying(lambda: _list_offsets(router, partitions, read_committed))


async def _list_offsets(
    router: Router, partitions: Mapping[TopicPartition, int], read_committed: bool
) -> dict[TopicPartition, int]:
    leaders: dict[int, list[TopicPartition]] = {}
    for topic, index in partitions:
        leaders.setdefault(await router.leader(topic, index), []).append((topic, index))
    found: dict[TopicPartition, int] = {}
    for node, theirs in leaders.items():
        topics = [
            ListOffsetsTopic(
                name=topic,
                partitions=[
                    ListOffsetsPartition(partition_index=index, timestamp=partitions[topic, index]) for index in indexes
                ],
            )
            for topic, indexes in by_topic(theirs).items()
        ]
        request = ListOffsetsRequest(
            replica_id=-1, isolation_level=READ_COMMITTED if read_committed else 0, topics=topics
        )
        answer = await router.ask(request, ListOffsetsResponse, node=node)
        for answered in answer.topics:
            for each in answered.partitions:
                check(each.error_code, f"{answered.name}[{each.partition_index}]")
                found[answered.name, each.partition_index] = each.offset
    return found


async def committed_offsets(
    router: Router,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, Position]:
    """What the group has committed of these partitions, or of all. `require_stable` waits for open transactions."""
    topics = None
    if partitions is not None:
        topics = [
            OffsetFetchRequestTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(partitions).items()
        ]
    request = OffsetFetchRequest(group_id=group, topics=topics, require_stable=require_stable)

    async def attempt() -> dict[TopicPartition, Position]:
        answer = await router.ask_coordinator(group, request, OffsetFetchResponse)
        check(answer.error_code, f"group {group!r}")
        found: dict[TopicPartition, Position] = {}
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {group!r}, {topic.name}[{each.partition_index}]")
                if each.committed_offset >= 0:
                    where = (topic.name, each.partition_index)
                    found[where] = Position(each.committed_offset, each.committed_leader_epoch, each.metadata or "")
        return found

    return await router.retrying(attempt)


async def commit_offsets(
    router: Router,
    group: str,
    offsets: Mapping[TopicPartition, Position],
    *,
    generation: int = -1,
    member_id: str = "",
    group_instance_id: str | None = None,
) -> None:
    """Commit for a group: as a member, or from outside when the group has none."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), position in offsets.items():
        one = OffsetCommitRequestPartition(
            partition_index=index,
            committed_offset=position.offset,
            committed_leader_epoch=position.leader_epoch,
            committed_metadata=position.metadata,
        )
        topics.setdefault(topic, []).append(one)
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=each) for topic, each in topics.items()],
    )

    async def attempt() -> None:
        answer = await router.ask_coordinator(group, request, OffsetCommitResponse)
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {group!r}, {topic.name}[{each.partition_index}]")

    await router.retrying(attempt)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Indexes by topic, in the order given."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
