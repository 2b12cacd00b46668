"""One member of a consumer group (KIP-848), as two values: what it says of itself, and what it has."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from raftlog.broker.core.group.consumer.state import MemberState
from raftlog.broker.core.group.member import Protocols
from raftlog.metadata.group_configs import ConsumerGroupSettings

JOIN_EPOCH = 0
"""The epoch of a heartbeat that joins, and of a member that has not been given any yet."""
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""The epoch of a heartbeat of a static member that will come back, and of the member while it is away."""

Owned = Mapping[bytes, Mapping[int, int]]
"""Partitions that a member has: topic id -> partition -> the member epoch in which it was given (KIP-1251)."""

NOTHING: Owned = MappingProxyType({})

Target = Mapping[bytes, tuple[int, ...]]
"""Partitions that a member is to have: topic id -> partitions in ascending order."""

NO_TARGET: Target = MappingProxyType({})


class ClassicMetadata(NamedTuple):
    """What a member that uses the classic protocol in this group has said in its JoinGroup."""

    session_timeout_ms: int
    protocols: Protocols


class Subscription(NamedTuple):
    """What a member says of itself. `regex` matches names of topics (RE2); "" or None: there is none."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    regex: str | None = ""
    rebalance_timeout_ms: int = -1
    assignor: str | None = None
    classic: ClassicMetadata | None = None


class CurrentAssignment(NamedTuple):
    """What a member has. It may use `assigned`; it is being asked to give up `revoking`, and may still use it.

    `previous_epoch` is the one that the member may still be in if it has missed an answer.
    """

    epoch: int = JOIN_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Owned = NOTHING
    revoking: Owned = NOTHING

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """Whether it has all that the target assignment of this epoch gives it."""
        return self.state is MemberState.STABLE and self.epoch == assignment_epoch

    def given_anew(self) -> CurrentAssignment:
        """The same partitions, given in the epoch that it is in: who joins has given up what it had."""
        assigned = {topic_id: dict.fromkeys(partitions, self.epoch) for topic_id, partitions in self.assigned.items()}
        return self._replace(assigned=assigned)

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the partition was given to the member; None when it has not got it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.revoking.get(topic_id, {}).get(partition) if epoch is None else epoch


NEW_MEMBER = CurrentAssignment()
NO_SUBSCRIPTION = Subscription()
GONE = CurrentAssignment(LEAVE_EPOCH, LEAVE_EPOCH)
"""What is left of a member between the records that remove it."""


class ConsumerMember(NamedTuple):
    """A member. Each of its two values has a record of its own in the log."""

    member_id: str
    subscription: Subscription = NO_SUBSCRIPTION
    current: CurrentAssignment = NEW_MEMBER

    @property
    def epoch(self) -> int:
        return self.current.epoch

    @property
    def instance_id(self) -> str | None:
        return self.subscription.instance_id

    @property
    def uses_classic_protocol(self) -> bool:
        return self.subscription.classic is not None

    def session_timeout_ms(self, settings: ConsumerGroupSettings) -> int:
        """How long it may be silent: who uses the classic protocol has said so itself."""
        classic = self.subscription.classic
        return settings.session_timeout_ms if classic is None else classic.session_timeout_ms


def with_epoch(target: Target, epoch: int) -> Owned:
    """All these partitions, given in `epoch`."""
    return {topic_id: dict.fromkeys(partitions, epoch) for topic_id, partitions in target.items()}
