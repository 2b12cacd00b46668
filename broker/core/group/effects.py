"""What an event on a group leads to: answers to delayed requests, and records to write first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.group.member import Protocols, Ticket
from raftlog.broker.core.group.records import CoordinatorRecord
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.leave_group import LeaveGroupResponse
from raftlog.wire.schema import Message


class Reply(NamedTuple):
    """The answer to a delayed request."""

    ticket: Ticket
    response: Message


class LateReply(NamedTuple):
    """The answer to a delayed request that thousands of others are answered with: made when it is sent, of what was
    known when it was decided.
    """

    ticket: Ticket
    make: Callable[[], Message]


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


class DeferredResponse(NamedTuple):
    """A request is answered with `response`, or if the write fails, with the refusal for what went wrong."""

    ticket: Ticket
    response: Message
    refusal: Callable[[ErrorCode], Message]


Continuation = GenerationStored | StaticMemberStored | GroupEmptied | MembersLeft | DeferredResponse

Appended = Callable[[ErrorCode, Now], "Effects"]
"""What is done as soon as records are in the log and replayed, or could not be put there."""


class Write(NamedTuple):
    """Records that go into the log together, what follows at once, and what follows when they are committed."""

    records: tuple[CoordinatorRecord, ...]
    then: Continuation | None
    appended: Appended | None = None


class RegexResolution(NamedTuple):
    """Patterns of a consumer group that topics have to be matched with."""

    group_id: str
    regexes: tuple[str, ...]


class Effects:
    """What one event leads to, in order. `late_replies` are the answers of which there is one for each member. `notes`
    are for an operator: (group id, what happened to it). `rebalances` are those that begin once all is written: (group
    id, epoch or generation, why). `rejoins` are the classic groups whose members have to join again, `rejoins_soon`
    those where it is because others left. `resolutions` are begun then, too, and `assignments`, of the groups whose
    target assignment takes too long to be computed at once.
    """

    __slots__ = (
        "assignments",
        "late_replies",
        "notes",
        "rebalances",
        "rejoins",
        "rejoins_soon",
        "replies",
        "resolutions",
        "writes",
    )

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.late_replies: list[LateReply] = []
        self.writes: list[Write] = []
        self.notes: list[tuple[str, str]] = []
        self.rebalances: list[tuple[str, int, str]] = []
        self.rejoins: list[str] = []
        self.rejoins_soon: list[str] = []
        self.resolutions: list[RegexResolution] = []
        self.assignments: list[str] = []

    def reply(self, ticket: Ticket, response: Message) -> None:
        """Answer a delayed request now."""
        self.replies.append(Reply(ticket, response))

    def reply_late(self, ticket: Ticket, make: Callable[[], Message]) -> None:
        """Answer one of many delayed requests."""
        self.late_replies.append(LateReply(ticket, make))

    def write(
        self, records: tuple[CoordinatorRecord, ...], then: Continuation | None, appended: Appended | None = None
    ) -> None:
        """Write records; `appended` and `then` tell how it goes on."""
        self.writes.append(Write(records, then, appended))


R = TypeVar("R", covariant=True)


class Decision(NamedTuple, Generic[R]):
    """The outcome of a request that delays nothing: records to write, if any, and the answer once they are safe."""

    response: R
    records: list[CoordinatorRecord]
