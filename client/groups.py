"""Consumer groups seen from outside: which there are, who is in them, and where they stand.

Every function raises ClientError; Rejected carries the broker's error code and message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from raftlog.client.router import Client, check
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from raftlog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from raftlog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from raftlog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, Rebalance

GROUP_TOPIC = "__consumer_offsets"
TopicPartition = tuple[str, int]
# A group nobody ever joined or committed for is Dead to older versions, not found to newer ones (KIP-1043).
DEAD = "Dead"


def list_groups(client: Client, states: Sequence[str] = (), *, with_lag: bool = False) -> list[ListedGroup]:
    """All groups of all brokers, by name; `states` keeps only those. `with_lag`: brokers that can also tell how many
    members each has and how far it is behind; others leave that at -1.
    """

    def attempt() -> list[ListedGroup]:
        found: list[ListedGroup] = []
        for broker in client.metadata([]).brokers:
            request = ListGroupsRequest(states_filter=list(states), with_lag=with_lag)
            answer = client.ask(request, ListGroupsResponse, node=broker.node_id)
            check(answer.error_code, f"groups of broker {broker.node_id}")
            found += answer.groups
        return sorted(found, key=lambda group: group.group_id)

    return client.retrying(attempt)


def leaderless_partitions(client: Client) -> list[int]:
    """Partitions of the topic of groups that have no leader: no broker knows which groups are in them."""
    (topic,) = client.metadata([GROUP_TOPIC]).topics
    return [partition.partition_index for partition in topic.partitions if partition.leader_id < 0]


def describe_group(client: Client, name: str) -> DescribedGroup:
    """State and members. Raises Rejected with GROUP_ID_NOT_FOUND when nobody knows the group."""

    def attempt() -> DescribedGroup:
        request = DescribeGroupsRequest(groups=[name])
        (group,) = client.ask_coordinator(name, request, DescribeGroupsResponse).groups
        if group.group_state == DEAD:
            check(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r}", group.error_message)
        check(group.error_code, f"group {name!r}", group.error_message)
        return group

    return client.retrying(attempt)


def delete_group(client: Client, name: str) -> None:
    def attempt() -> None:
        request = DeleteGroupsRequest(groups_names=[name])
        (result,) = client.ask_coordinator(name, request, DeleteGroupsResponse).results
        check(result.error_code, f"group {name!r}")

    client.retrying(attempt)


def committed_offsets(client: Client, name: str) -> dict[TopicPartition, int]:
    """Every offset the group has committed."""

    def attempt() -> dict[TopicPartition, int]:
        request = OffsetFetchRequest(group_id=name, topics=None, require_stable=False)
        answer = client.ask_coordinator(name, request, OffsetFetchResponse)
        check(answer.error_code, f"group {name!r}")
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE and each.committed_offset >= 0
        }

    return client.retrying(attempt)


class Progress(NamedTuple):
    """Where a group stands in one partition. All but `committed` is None when the broker does not tell."""

    committed: int
    end_offset: int | None
    """Where the partition ends for readers (the high watermark)."""
    stable_offset: int | None
    """Where it ends for those who read committed records only."""
    lag_ms: int | None
    """How long the oldest record that is not consumed has waited."""


def group_progress(client: Client, name: str) -> tuple[dict[TopicPartition, Progress], list[Rebalance]]:
    """Every offset the group has committed, how far that is behind, and the group's last rebalances."""

    def attempt() -> tuple[dict[TopicPartition, Progress], list[Rebalance]]:
        request = OffsetFetchRequest(group_id=name, topics=None, require_stable=False, with_lag=True)
        answer = client.ask_coordinator(name, request, OffsetFetchResponse)
        check(answer.error_code, f"group {name!r}")
        found = {
            (topic.name, each.partition_index): Progress(
                each.committed_offset,
                _told(each.high_watermark),
                _told(each.last_stable_offset),
                _told(each.lag_ms),
            )
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE and each.committed_offset >= 0
        }
        return found, answer.rebalances

    return client.retrying(attempt)


def _told(value: int) -> int | None:
    return None if value < 0 else value


def commit_offsets(
    client: Client,
    name: str,
    offsets: Mapping[TopicPartition, int],
    *,
    generation: int = -1,
    member_id: str = "",
) -> None:
    """Commit for a group: as a member, or from outside when the group has none."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, partition), offset in offsets.items():
        one = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
        topics.setdefault(topic, []).append(one)
    request = OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=each) for topic, each in topics.items()],
    )

    def attempt() -> None:
        answer = client.ask_coordinator(name, request, OffsetCommitResponse)
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, f"group {name!r}, {topic.name}[{each.partition_index}]")

    client.retrying(attempt)
