"""One member of a group."""

from __future__ import annotations

from collections.abc import Callable
from typing import NewType

from raftlog.broker.core.group.timers import Timer, TimerKind

Ticket = NewType("Ticket", int)
"""A delayed request, by the number under which the shell will find it again. Every ticket is answered exactly once."""

Protocols = tuple[tuple[str, bytes], ...]
"""What a member can do: names of assignment protocols, best first, with the member's metadata for each."""

NO_ASSIGNMENT = b""


MEMBER_BYTES, PROTOCOL_BYTES = 1024, 128
"""What a member (or an id given out to one) takes without what its client says, and a protocol without its name and
metadata, about."""


class MemoryBudget:
    """What the members of all groups of a broker take, in bytes, about; and how much it was when that was logged."""

    __slots__ = ("used", "used_when_logged")

    def __init__(self) -> None:
        self.used = 0
        self.used_when_logged = -1

    def has_room(self, more: int, limit: int, note: Callable[[str], None]) -> bool:
        """Whether so many bytes more still fit in; if not, `note` hears so once, and not when a client tries again."""
        if more <= 0 or self.used + more <= limit:
            return True
        if self.used_when_logged != self.used:
            self.used_when_logged = self.used
            note(f"takes no member with {more} bytes more: of {limit} for all groups, {self.used} are in use")
        return False


def size_of(protocols: Protocols, *texts: str | None) -> int:
    """How much a member with these protocols counts, in bytes, of which its client has also said these texts."""
    size = MEMBER_BYTES + sum(len(text) for text in texts if text is not None)
    return size + sum(PROTOCOL_BYTES + len(name) + len(metadata) for name, metadata in protocols)


class Member:
    """A member; `join_ticket` and `sync_ticket` are its delayed requests, at most one of each."""

    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "join_ticket",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session",
        "session_timeout_ms",
        "sync_ticket",
    )

    def __init__(
        self,
        group_id: str,
        member_id: str,
        *,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = NO_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_ticket: Ticket | None = None
        self.sync_ticket: Ticket | None = None
        # Until its first JoinGroup is answered a member has nothing to send heartbeats with.
        self.is_new = False
        self.session = Timer(TimerKind.SESSION, group_id, member_id)

    @property
    def is_static(self) -> bool:
        """Whether it has a group.instance.id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_waiting(self) -> bool:
        """Whether a request of an old member is delayed: it need not send heartbeats meanwhile."""
        return not self.is_new and (self.join_ticket is not None or self.sync_ticket is not None)

    def metadata(self, protocol: str) -> bytes:
        """What the member said for `protocol`. Raises KeyError when it does not support it."""
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise KeyError(protocol)

    def vote(self, candidates: set[str]) -> str:
        """The member's favourite of `candidates`, one of which it supports."""
        return next(name for name, _ in self.protocols if name in candidates)

    @property
    def size(self) -> int:
        """How much it counts in the memory for members, in bytes."""
        return size_of(self.protocols, self.client_id, self.group_instance_id) + len(self.assignment)

    def __repr__(self) -> str:
        return f"<member {self.member_id} instance={self.group_instance_id}>"
