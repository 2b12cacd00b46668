"""What an event on a group leads to: answers to parked requests, and records to write first."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from raftlog.broker.core.group.member import Protocols, Ticket
from raftlog.broker.core.group.records import CoordinatorRecord
from raftlog.wire.messages.leave_group import LeaveGroupResponse
from raftlog.wire.schema import Message


class Reply(NamedTuple):
    """The answer to a parked request."""

    ticket: Ticket
    response: Message


class GenerationStored(NamedTuple):
    """The leader's assignment was being stored; now the members can have it."""

    group_id: str
    generation: int


class StaticMemberStored(NamedTuple):
    """A static member came back under a new id without a rebalance; if that cannot be stored, all is as before."""

    group_id: str
    group_instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader: str
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int
    api_version: int


class GroupEmptied(NamedTuple):
    """Nobody is left. Should this not be stored, the old members return after a restart and time out again."""

    group_id: str


class MembersLeft(NamedTuple):
    """A LeaveGroup emptied the group."""

    ticket: Ticket
    response: LeaveGroupResponse


Continuation = GenerationStored | StaticMemberStored | GroupEmptied | MembersLeft


class Write(NamedTuple):
    """Records that go into the log together, and what follows."""

    records: tuple[CoordinatorRecord, ...]
    then: Continuation


class Effects:
    """What one event leads to, in order. `notes` are for an operator: (group id, what happened to it)."""

    __slots__ = ("notes", "replies", "writes")

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.writes: list[Write] = []
        self.notes: list[tuple[str, str]] = []

    def reply(self, ticket: Ticket, response: Message) -> None:
        """Answer a parked request now."""
        self.replies.append(Reply(ticket, response))

    def write(self, records: tuple[CoordinatorRecord, ...], then: Continuation) -> None:
        """Write records; `then` tells how it goes on."""
        self.writes.append(Write(records, then))


R = TypeVar("R", covariant=True)


class Decision(NamedTuple, Generic[R]):
    """The outcome of a request that parks nothing: records to write, if any, and the answer once they are safe."""

    response: R
    records: list[CoordinatorRecord]
