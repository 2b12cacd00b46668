"""What both group protocols have in common: the next thing to do, as a value, and what became of it.

A member is asked `next(now)` what is to be done, and told how it went. It never waits: it says until when to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol, TypeAlias

from raftlog.client.core.errors import KafkaError
from raftlog.client.core.metadata import TopicPartition
from raftlog.wire.schema import Message

Partitions: TypeAlias = frozenset[TopicPartition]


class Send(NamedTuple):
    """Ask the coordinator; then `answered` or `unanswered`. `wait`: seconds it may take on purpose.

    Nothing waits for one that `is_beside` the others: ask `next` again meanwhile, and forget it when that is a Send.
    """

    request: Message
    reply: type[Message]
    wait: float = 0.0
    is_beside: bool = False


class Wait(NamedTuple):
    """Nothing to do before `until`, unless something happens."""

    until: float


class Learn(NamedTuple):
    """The group's leader has to know how many partitions these topics have; then `learned`."""

    topics: tuple[str, ...]


class Revoke(NamedTuple):
    """Finish and commit what was read of these, then `revoked`. Heartbeats go on meanwhile: ask `next` again."""

    partitions: Partitions


class Assign(NamedTuple):
    """These are new: read on where the group stands. `partitions` may be empty (a rebalance that changed nothing)."""

    partitions: Partitions


class Lose(NamedTuple):
    """These belong to somebody else already; nothing can be committed for them."""

    partitions: Partitions


class Fail(NamedTuple):
    """The member is out for good."""

    error: KafkaError


Action: TypeAlias = Send | Wait | Learn | Revoke | Assign | Lose | Fail


class Member(Protocol):
    """A member of a group, of either protocol. Times are seconds of any one clock."""

    @property
    def owned(self) -> Partitions: ...

    @property
    def member_id(self) -> str: ...

    @property
    def generation(self) -> int:
        """Or member epoch; -1 for not being one."""

    @property
    def assigned_generation(self) -> int:
        """The same once the coordinator has told what is owned in it, else -1: until then a generation of the classic
        protocol is stored nowhere, and a coordinator's failover gives its number once more."""

    def next(self, now: float) -> Action: ...

    def answered(self, answer: Message, now: float) -> None: ...

    def unanswered(self, error: KafkaError, now: float) -> None: ...

    def learned(self, partitions: Mapping[str, int]) -> None: ...

    def revoked(self) -> None: ...

    def subscribe(self, topics: frozenset[str]) -> None:
        """Other topics from now on."""

    def changed(self, reason: str) -> None:
        """What an assignment rests on is another by now: also what one that is under way rests on."""

    def rejoin(self, reason: str) -> None:
        """A rebalance is under way, as a commit was told."""

    def fenced(self, *, keeps_name: bool = False) -> None:
        """The group went on without this member (a commit said so). `keeps_name`: its id is still known."""

    def leave(self) -> Send | None:
        """How to leave; the last thing that is asked."""
