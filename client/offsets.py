"""Offsets asked of the brokers: the start, the end, by time, and where a group stands."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, TypeVar

from raftlog.client.core.errors import KafkaError, Rejected, check
from raftlog.client.core.fetching import EARLIEST, LATEST
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.progress import Position
from raftlog.client.router import Router
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
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
from raftlog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
)
from raftlog.wire.schema import ZERO_UUID

__all__ = [
    "EARLIEST",
    "LATEST",
    "GroupMember",
    "by_topic",
    "commit_offsets",
    "committed_offsets",
    "offsets_at",
    "offsets_found",
    "positions_by_topic",
]

_Partition = TypeVar("_Partition")

READ_COMMITTED = 1
SEVERAL_GROUPS = 8
"""From this version on, OffsetFetch asks for several groups."""
OFFSET_COMMIT_BY_NAME, OFFSET_FETCH_BY_NAME = 9, 9
"""The last versions in which topics have their names, not their ids."""


class GroupMember(NamedTuple):
    """Who commits offsets: the coordinator refuses a member that was replaced. Without a generation: from outside."""

    group: str
    generation: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


async def offsets_at(
    router: Router,
    partitions: Mapping[TopicPartition, int],
    *,
    read_committed: bool = True,
    refused: dict[TopicPartition, Rejected] | None = None,
) -> dict[TopicPartition, int]:
    """The first offset at or after a time (ms since 1970, or LATEST or EARLIEST); the end where there is none."""
    found = await offsets_found(router, partitions, read_committed=read_committed, refused=refused)
    missing = {partition: LATEST for partition, offset in found.items() if offset < 0}
    if missing:
        found |= await offsets_at(router, missing, read_committed=read_committed, refused=refused)
    return {partition: offset for partition, offset in found.items() if offset >= 0}


async def offsets_found(
    router: Router,
    partitions: Mapping[TopicPartition, int],
    *,
    read_committed: bool = True,
    refused: dict[TopicPartition, Rejected] | None = None,
) -> dict[TopicPartition, int]:
    """As `offsets_at`, and -1 where there is no record as late as that.

    Tried again until all are found; with `refused` only once, and what leaders refuse of some is put there.
    """
    if refused is not None:
        return await _list_offsets(router, partitions, read_committed, refused)

    async def attempt() -> dict[TopicPartition, int]:
        errors: dict[TopicPartition, Rejected] = {}
        found = await _list_offsets(router, partitions, read_committed, errors)
        for error in errors.values():
            raise error
        return found

    return await router.retrying(attempt)


async def _list_offsets(
    router: Router,
    partitions: Mapping[TopicPartition, int],
    read_committed: bool,
    refused: dict[TopicPartition, Rejected],
) -> dict[TopicPartition, int]:
    leaders: dict[int, list[TopicPartition]] = {}
    for topic, index in partitions:
        leaders.setdefault(await router.leader(topic, index), []).append((topic, index))
    found: dict[TopicPartition, int] = {}
    for node, theirs in leaders.items():
        answer = await router.ask(_offsets_request(theirs, partitions, read_committed), ListOffsetsResponse, node=node)
        parts = {(topic.name, each.partition_index): each for topic in answer.topics for each in topic.partitions}
        for where, each in parts.items():
            if each.error_code == ErrorCode.NONE:
                found[where] = each.offset
            else:
                refused[where] = Rejected(ErrorCode.of(each.error_code), f"{where[0]}[{where[1]}]")
    return found


def _offsets_request(
    asked: Sequence[TopicPartition], timestamps: Mapping[TopicPartition, int], read_committed: bool
) -> ListOffsetsRequest:
    topics = [
        ListOffsetsTopic(
            name=topic,
            partitions=[
                ListOffsetsPartition(partition_index=index, timestamp=timestamps[topic, index]) for index in indexes
            ],
        )
        for topic, indexes in by_topic(asked).items()
    ]
    return ListOffsetsRequest(replica_id=-1, isolation_level=READ_COMMITTED if read_committed else 0, topics=topics)


async def offline_logs(router: Router, led: Mapping[int, Sequence[TopicPartition]]) -> frozenset[TopicPartition]:
    """Of partitions by their leader those whose log is offline. Leaders that do not answer are passed over."""
    found: set[TopicPartition] = set()
    for node, theirs in led.items():
        request = _offsets_request(theirs, dict.fromkeys(theirs, EARLIEST), read_committed=False)
        with suppress(KafkaError):
            answer = await router.ask(request, ListOffsetsResponse, node=node)
            found.update(
                (answered.name, each.partition_index)
                for answered in answer.topics
                for each in answered.partitions
                if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            )
    return frozenset(found)


async def committed_offsets(
    router: Router,
    group: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
) -> dict[TopicPartition, Position]:
    """What the group has committed of these partitions, or of all. `require_stable` waits for open transactions."""
    wanted = None if partitions is None else by_topic(partitions)

    async def attempt() -> dict[TopicPartition, Position]:
        node = await router.coordinator(group)
        known = router.known.topic_id
        has_ids = wanted is not None and all(known(topic) != ZERO_UUID for topic in wanted)
        highest = None if has_ids else OFFSET_FETCH_BY_NAME
        version = (await router.connection(node)).version_of(ApiKey.OFFSET_FETCH, highest)
        names = {known(topic): topic for topic in wanted or ()}  # as they are asked for: others may be known after
        request = _offset_fetch(router, group, wanted, version)
        request.require_stable = require_stable
        answer = await router.ask(request, OffsetFetchResponse, node=node, highest=version)
        code = answer.error_code
        topics: list[tuple[str, bytes, Sequence[OffsetFetchResponsePartition | OffsetFetchResponsePartitions]]]
        topics = [(each.name, ZERO_UUID, each.partitions) for each in answer.topics]
        for one in answer.groups:
            code = one.error_code
            topics += [(each.name, each.topic_id, each.partitions) for each in one.topics]
        check(code, f"group {group!r}")
        found: dict[TopicPartition, Position] = {}
        for name, topic_id, answered in topics:
            topic = name or names.get(bytes(topic_id), "")
            for each in answered:
                if each.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                    await router.metadata([topic])
                check(each.error_code, f"group {group!r}, {topic}[{each.partition_index}]")
                if each.committed_offset >= 0:
                    where = (topic, each.partition_index)
                    found[where] = Position(each.committed_offset, each.committed_leader_epoch, each.metadata or "")
        return found

    return await router.retrying(attempt)


def _offset_fetch(
    router: Router, group: str, wanted: Mapping[str, list[int]] | None, version: int
) -> OffsetFetchRequest:
    if version < SEVERAL_GROUPS:
        topics = None
        if wanted is not None:
            topics = [OffsetFetchRequestTopic(name=name, partition_indexes=each) for name, each in wanted.items()]
        return OffsetFetchRequest(group_id=group, topics=topics)
    several = None
    if wanted is not None:
        several = [
            OffsetFetchRequestTopics(name=name, topic_id=router.known.topic_id(name), partition_indexes=each)
            for name, each in wanted.items()
        ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=several)])


async def commit_offsets(
    router: Router,
    member: GroupMember,
    offsets: Mapping[TopicPartition, Position],
    *,
    topic_ids: Mapping[str, bytes] | None = None,
) -> None:
    """Commit for a group: as its member, or from outside when the group has none.

    `topic_ids`: of the topics that were read. Raises Rejected with UNKNOWN_TOPIC_ID when one was deleted since, also if
    another has its name; the others' offsets are committed. A topic that is there is committed for again.
    """
    ids = {topic: (topic_ids or {}).get(topic) or router.known.topic_id(topic) for topic, _ in offsets}
    names = {topic_id: topic for topic, topic_id in ids.items()}
    highest = OFFSET_COMMIT_BY_NAME if ZERO_UUID in names else None
    request = OffsetCommitRequest(
        group_id=member.group,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        topics=[
            OffsetCommitRequestTopic(name=topic, topic_id=ids[topic], partitions=each)
            for topic, each in positions_by_topic(offsets, OffsetCommitRequestPartition).items()
        ],
    )

    async def attempt() -> list[str]:
        answer = await router.ask_coordinator(member.group, request, OffsetCommitResponse, highest=highest)
        unknown = set()
        for answered in answer.topics:
            topic = answered.name or names.get(bytes(answered.topic_id), "")
            for each in answered.partitions:
                if each.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                    unknown.add(topic)
                else:
                    check(each.error_code, f"group {member.group!r}, {topic}[{each.partition_index}]")
        return await gone_of(unknown)

    async def gone_of(unknown: set[str]) -> list[str]:
        """Raises Rejected, retriable, for topics that are there: the coordinator has not heard of them yet."""
        if unknown:
            await router.metadata(sorted(unknown))
        gone = sorted(topic for topic in unknown if router.known.topic_id(topic) != ids[topic])
        for topic in unknown.difference(gone):
            raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {topic!r}")
        return gone

    for topic in await router.changing(attempt):
        raise Rejected(ErrorCode.UNKNOWN_TOPIC_ID, f"topic {topic!r}", "it was deleted after it was read")


def positions_by_topic(
    positions: Mapping[TopicPartition, Position], make: Callable[..., _Partition]
) -> dict[str, list[_Partition]]:
    """What to commit, by topic, as a request has it; `make` is the request's struct of one partition."""
    topics: dict[str, list[_Partition]] = {}
    for (topic, index), position in positions.items():
        one = make(
            partition_index=index,
            committed_offset=position.offset,
            committed_leader_epoch=position.leader_epoch,
            committed_metadata=position.metadata,
        )
        topics.setdefault(topic, []).append(one)
    return topics


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Indexes by topic, in the order given."""
    found: dict[str, list[int]] = {}
    for topic, index in partitions:
        found.setdefault(topic, []).append(index)
    return found
