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


class JoinAnswers:
    """What the members of a generation are told of it, as it is now: an answer can be made when the group has gone on.
    The leader gets the members to assign partitions to.
    """

    __slots__ = ("_generation", "_leader", "_members", "_protocol", "_protocol_type")

    def __init__(self, group: ClassicGroup, *, to_leader: bool = True) -> None:
        """`to_leader`: one of the answers may be the leader's."""
        self._generation = group.generation
        self._leader = group.leader
        self._protocol_type = group.protocol_type
        self._protocol = protocol = group.protocol
        self._members: list[tuple[str, str | None, bytes]] = []
        if protocol is not None and to_leader:
            members = group.members.values()
            self._members = [(m.member_id, m.group_instance_id, m.metadata(protocol)) for m in members]

    def answer(self, member_id: str, *, skip_assignment: bool = False) -> JoinGroupResponse:
        """The one for this member."""
        members = []
        if member_id == self._leader:
            members = [
                JoinGroupResponseMember(member_id=other, group_instance_id=instance_id, metadata=metadata)
                for other, instance_id, metadata in self._members
            ]
        return JoinGroupResponse(
            generation_id=self._generation,
            protocol_type=self._protocol_type,
            protocol_name=self._protocol,
            leader=self._leader or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=members,
        )


def join_answer(group: ClassicGroup, member: Member, *, skip_assignment: bool = False) -> JoinGroupResponse:
    """What one member alone is told."""
    answers = JoinAnswers(group, to_leader=member.member_id == group.leader)
    return answers.answer(member.member_id, skip_assignment=skip_assignment)


def leave_error(error: ErrorCode) -> LeaveGroupResponse:
    """A refused LeaveGroup."""
    return LeaveGroupResponse(error_code=error)


def sync_error(error: ErrorCode) -> SyncGroupResponse:
    """A refused SyncGroup."""
    return SyncGroupResponse(error_code=error)


def sync_answer(group: ClassicGroup, member: Member) -> SyncGroupResponse:
    """A member's assignment."""
    return make_sync_answer(group.protocol_type, group.protocol, member.assignment)


def make_sync_answer(protocol_type: str | None, protocol: str | None, assignment: bytes) -> SyncGroupResponse:
    """The same of what is known of the group."""
    return SyncGroupResponse(protocol_type=protocol_type, protocol_name=protocol, assignment=assignment)
