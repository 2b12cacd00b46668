"""Consumer groups seen from outside: which there are, who is in them, and where they stand.

Every function raises KafkaError; Rejected carries the broker's error code and message.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from raftlog.client.core.assignment import Assignment, read_assignment
from raftlog.client.core.errors import NotKafka, check
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.progress import Position
from raftlog.client.offsets import LATEST, GroupMember, commit_offsets, committed_offsets, offsets_at
from raftlog.client.router import Router
from raftlog.wire.errors import ErrorCode, RemoteProtocolError
from raftlog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from raftlog.wire.messages.consumer_group_describe import DescribedGroup as ConsumerGroupDescribed
from raftlog.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from raftlog.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from raftlog.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from raftlog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse, Rebalance
from raftlog.wire.schema import Bytes

GROUP_TOPIC = "__consumer_offsets"
# A group nobody ever joined or committed for is Dead to older versions, not found to newer ones (KIP-1043).
DEAD = "Dead"
WITH_LAG = 7
"""The last version of OffsetFetch that tells lag, if the broker is raftlog."""


class Progress(NamedTuple):
    """Where a group stands in one partition. All but `committed` is None when the broker does not tell."""

    committed: int
    end_offset: int | None
    """Where the partition ends for readers (the high watermark)."""
    stable_offset: int | None
    """Where it ends for those who read committed records only."""
    lag_ms: int | None
    """How long the oldest record that is not consumed has waited."""


class MemberDescription(NamedTuple):
    """A member, and what it may read; nothing in groups whose members speak something of their own (Kafka Connect)."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    assignment: Assignment


class GroupDescription(NamedTuple):
    """A group of either protocol; `group_type` is "classic" or "consumer" (KIP-848)."""

    state: str
    group_type: str
    protocol_type: str
    assignor: str
    members: list[MemberDescription]


def _classic(group: DescribedGroup) -> GroupDescription:
    members = [
        MemberDescription(
            member.member_id,
            member.group_instance_id,
            member.client_id,
            member.client_host,
            _assignment(group.protocol_type, member.member_assignment),
        )
        for member in group.members
    ]
    return GroupDescription(group.group_state, "classic", group.protocol_type, group.protocol_data, members)


def _assignment(protocol_type: str, encoded: Bytes) -> Assignment:
    if protocol_type != "consumer":
        return {}
    try:
        return read_assignment(encoded)
    except RemoteProtocolError:
        return {}


def _of_consumers(group: ConsumerGroupDescribed) -> GroupDescription:
    members = [
        MemberDescription(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.client_host,
            {each.topic_name: list(each.partitions) for each in member.assignment.topic_partitions},
        )
        for member in group.members
    ]
    return GroupDescription(group.group_state, "consumer", "consumer", group.assignor_name, members)


def _told(value: int) -> int | None:
    return None if value < 0 else value


class GroupAdmin:
    """Consumer groups from outside."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_groups(self, states: Sequence[str] = (), *, with_lag: bool = False) -> list[ListedGroup]:
        """All groups of all brokers, by name; `states` keeps only those.

        `with_lag`: brokers that can also tell how many members each has and how far it is behind; others leave that
        at -1.
        """

        async def attempt() -> list[ListedGroup]:
            found: list[ListedGroup] = []
            for broker in (await self._router.metadata([])).brokers:
                request = ListGroupsRequest(states_filter=list(states), with_lag=with_lag)
                answer = await self._router.ask(request, ListGroupsResponse, node=broker.node_id)
                check(answer.error_code, f"groups of broker {broker.node_id}")
                found += answer.groups
            return sorted(found, key=lambda group: group.group_id)

        return await self._router.retrying(attempt)

    async def leaderless_partitions(self) -> list[int]:
        """Partitions of the topic of groups that have no leader: no broker knows which groups are in them."""
        (topic,) = (await self._router.metadata([GROUP_TOPIC])).topics
        return [partition.partition_index for partition in topic.partitions if partition.leader_id < 0]

    async def describe_group(self, name: str) -> GroupDescription:
        """State and members, whatever protocol the group has. Raises Rejected with GROUP_ID_NOT_FOUND when nobody
        knows the group.
        """

        async def attempt() -> GroupDescription:
            request = DescribeGroupsRequest(groups=[name])
            (group,) = (await self._router.ask_coordinator(name, request, DescribeGroupsResponse)).groups
            if group.group_state != DEAD and group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
                check(group.error_code, f"group {name!r}", group.error_message)
                return _classic(group)
            with suppress(NotKafka):  # a broker from before KIP-848 has no other groups
                asked = ConsumerGroupDescribeRequest(group_ids=[name])
                (found,) = (await self._router.ask_coordinator(name, asked, ConsumerGroupDescribeResponse)).groups
                check(found.error_code, f"group {name!r}", found.error_message)
                return _of_consumers(found)
            check(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r}", group.error_message)
            raise AssertionError

        return await self._router.retrying(attempt)

    async def delete_group(self, name: str) -> None:
        async def attempt() -> None:
            request = DeleteGroupsRequest(groups_names=[name])
            (result,) = (await self._router.ask_coordinator(name, request, DeleteGroupsResponse)).results
            check(result.error_code, f"group {name!r}")

        await self._router.changing(attempt)

    async def committed_offsets(self, name: str) -> dict[TopicPartition, int]:
        """Every offset the group has committed: the next to read of each partition."""
        found = await committed_offsets(self._router, name)
        return {partition: position.offset for partition, position in found.items()}

    async def group_progress(self, name: str) -> tuple[dict[TopicPartition, Progress], list[Rebalance]]:
        """Every offset the group has committed, how far that is behind, and the group's last rebalances."""

        async def attempt() -> tuple[dict[TopicPartition, Progress], list[Rebalance]]:
            request = OffsetFetchRequest(group_id=name, topics=None, require_stable=False, with_lag=True)
            answer = await self._router.ask_coordinator(name, request, OffsetFetchResponse, highest=WITH_LAG)
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

        return await self._router.retrying(attempt)

    async def commit_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set where a group stands. Only for a group without members; they are refused with UNKNOWN_MEMBER_ID."""
        positions = {each: Position(offset) for each, offset in offsets.items()}
        await commit_offsets(self._router, GroupMember(name), positions)

    async def lag(self, name: str) -> dict[TopicPartition, int]:
        """How many offsets the group is behind the end that it may read, in each partition that it committed."""
        committed = await self.committed_offsets(name)
        ends = await offsets_at(self._router, dict.fromkeys(committed, LATEST)) if committed else {}
        return {partition: max(0, ends[partition] - offset) for partition, offset in committed.items()}
