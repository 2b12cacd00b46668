"""What operators ask about groups: ListGroups, DescribeGroups, DeleteGroups (KIP-222, KIP-518, KIP-848, KIP-1043)."""

from __future__ import annotations

from collections.abc import Collection

from raftlog.broker.core.group.effects import Decision
from raftlog.broker.core.group.member import Member
from raftlog.broker.core.group.records import CoordinatorRecord, OffsetRecord
from raftlog.broker.core.group.shard import GroupCoordinatorShard
from raftlog.broker.core.group.state import GroupState
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from raftlog.wire.messages.list_groups import ListedGroup

# From this version on a group that is not there is an error (KIP-1043); before, it is a dead group.
GROUP_NOT_FOUND_FROM = 6


def list_groups(shard: GroupCoordinatorShard, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
    """The groups in one of `states` and of one of `types`; no filter lets all pass. Both ignore case."""
    wanted_states = {name.strip().lower() for name in states}
    wanted_types = {name.strip().lower() for name in types}
    return [
        ListedGroup(
            group_id=group.group_id,
            protocol_type=group.listed_protocol_type,
            group_state=group.state_name,
            group_type=group.group_type,
        )
        for group in shard.groups.values()
        if (not wanted_states or group.state_name.lower() in wanted_states)
        and (not wanted_types or group.group_type in wanted_types)
    ]


def describe_group(shard: GroupCoordinatorShard, group_id: str, api_version: int) -> DescribedGroup:
    """One group with its members. What they subscribe to is told only while it is settled."""
    group = shard.classic(group_id)
    if group is None:
        described = DescribedGroup(group_id=group_id, group_state=GroupState.DEAD.value)
        if api_version >= GROUP_NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = (
                f"Group {group_id} is not a classic group."
                if group_id in shard.groups
                else f"There is no group {group_id!r}."
            )
        return described
    protocol = group.protocol if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[_describe_member(member, protocol) for member in group.members.values()],
    )


def _describe_member(member: Member, protocol: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol is None else member.metadata(protocol),
        member_assignment=member.assignment,
    )


def delete_group(shard: GroupCoordinatorShard, group_id: str) -> Decision[ErrorCode]:
    """Decide the removal of a group with all its offsets, which must have no members."""
    group = shard.groups.get(group_id)
    if group is None:
        return Decision(ErrorCode.GROUP_ID_NOT_FOUND, [])
    if not group.is_empty:
        return Decision(ErrorCode.NON_EMPTY_GROUP, [])
    records: list[CoordinatorRecord] = [
        OffsetRecord(group_id, topic, partition, None) for topic, partition in group.offsets.partitions()
    ]
    return Decision(ErrorCode.NONE, records + group.removals())
