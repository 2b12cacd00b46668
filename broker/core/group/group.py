"""What all groups have in common, whatever their protocol: an id, committed offsets, and who may touch these."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import ClassVar, NamedTuple

from raftlog.broker.core.group.committed_offsets import CommittedOffsets
from raftlog.broker.core.group.records import CommittedOffset, CoordinatorRecord
from raftlog.wire.errors import ErrorCode, InvariantViolation


class Committer(NamedTuple):
    """Who commits offsets, as the request says. `generation` is the member epoch in groups of KIP-848."""

    member_id: str
    group_instance_id: str | None
    generation: int
    api_version: int
    is_transactional: bool = False


PartitionCheck = Callable[[bytes, int], ErrorCode]
"""Whether an offset of this partition may be committed, by topic id and index."""


class Rebalanced(NamedTuple):
    """A rebalance: when it began (ms since 1970), the generation or epoch that it leads to, and why."""

    timestamp_ms: int
    generation: int
    reason: str


REBALANCES_KEPT = 10
"""How many of its last rebalances a group remembers; they are forgotten when another broker leads it."""

REASON_LENGTH_MAX = 512
"""Of why one began: a member that leaves says why, in as many bytes as a string may have."""


class Group(ABC):
    """A group. What its members do is in the subclasses; `GroupCoordinatorShard.replay` changes what is durable."""

    __slots__ = ("group_id", "offsets", "rebalances")

    group_type: ClassVar[str]
    """As ListGroups says it (KIP-848)."""

    def __init__(self, group_id: str, offsets: CommittedOffsets | None = None) -> None:
        """`offsets` are those of the group that this one takes the place of."""
        self.group_id = group_id
        self.offsets = CommittedOffsets() if offsets is None else offsets
        # The last ones, the oldest first.
        self.rebalances: tuple[Rebalanced, ...] = ()

    def remember_rebalance(self, timestamp_ms: int, generation: int, reason: str) -> None:
        """A rebalance begins."""
        begun = Rebalanced(timestamp_ms, generation, reason[:REASON_LENGTH_MAX])
        self.rebalances = (*self.rebalances, begun)[-REBALANCES_KEPT:]

    # --- what is asked of every group

    @property
    @abstractmethod
    def state_name(self) -> str:
        """The state that clients are told."""

    @property
    @abstractmethod
    def listed_protocol_type(self) -> str:
        """The protocol type that clients are told; empty when the group has none."""

    @property
    @abstractmethod
    def members_count(self) -> int:
        """How many members there are."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """Whether the group has no members, so that it may be deleted."""

    @property
    @abstractmethod
    def is_awaited(self) -> bool:
        """Whether somebody is about to join, so that it does not expire."""

    @property
    @abstractmethod
    def is_unused(self) -> bool:
        """Whether nothing would be lost if the group were forgotten."""

    @abstractmethod
    def check_commit(self, committer: Committer) -> ErrorCode:
        """Whether this one may commit offsets now."""

    def partition_check(self, committer: Committer) -> PartitionCheck | None:
        """By what else each partition of a commit is checked that `check_commit` lets pass; None: by nothing."""
        return None

    def check_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Whether this one may fetch offsets (KIP-848); in a classic group everybody may."""
        return ErrorCode.NONE

    @abstractmethod
    def check_delete_offsets(self) -> ErrorCode:
        """Whether offsets of topics that nobody in the group consumes may be deleted now (KIP-496)."""

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether members may be consuming `topic`."""

    @abstractmethod
    def unused_since_ms(self, topic: str, known: CommittedOffset) -> int | None:
        """Since when the offset is not in use, ms since 1970; None while it is, or while that cannot be known."""

    @abstractmethod
    def removals(self) -> list[CoordinatorRecord]:
        """The records that remove the group, without those for its offsets."""

    def check_invariants(self) -> None:
        """Raises InvariantViolation if the group contradicts itself."""
        for what, holds in self.promises():
            if not holds:
                raise InvariantViolation(f"group {self.group_id} in {self.state_name}: {what}")

    @abstractmethod
    def promises(self) -> Iterator[tuple[str, bool]]:
        """What holds of the parts of the group at any time, and whether it does."""
