"""Answers of the group APIs that more than one event gives."""

from __future__ import annotations

from raftlog.broker.core.group.classic_group import ClassicGroup
from raftlog.broker.core.group.member import Member
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from raftlog.wire.messages.leave_group import LeaveGroupResponse
from raftlog.wire.messages.sync_group import SyncGroupResponse


def join_error(error: ErrorCode, member_id: str = "") -> JoinGroupResponse:
    """A refused JoinGroup."""
    return JoinGroupResponse(error_code=error, member_id=member_id, protocol_name=None)


def join_answer(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """What a member is told of the generation it is in; the leader gets the members to assign partitions to."""
    protocol = group.protocol
    members = []
    if member.member_id == group.leader and protocol is not None:
        members = [
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.group_instance_id,
                metadata=other.metadata(protocol),
            )
            for other in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=protocol,
        leader=group.leader or "",
        skip_assignment=skip_assignment,
        member_id=member.member_id,
        members=members,
    )


def leave_error(error: ErrorCode) -> LeaveGroupResponse:
    """A refused LeaveGroup."""
    return LeaveGroupResponse(error_code=error)


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A refused SyncGroup."""
    return SyncGroupResponse(error_code=error)


def sync_answer(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """A member's assignment."""
    return SyncGroupResponse(
        protocol_type=group.protocol_type, protocol_name=group.protocol, assignment=member.assignment
    )
