"""The states of a consumer group and of its members (KIP-848), and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, IntEnum
from types import MappingProxyType


class ConsumerGroupState(Enum):
    """A group's state, which follows from its epochs and its members; the value is the name that clients are told."""

    EMPTY = "Empty"
    """No members. The group lives on for its committed offsets."""
    ASSIGNING = "Assigning"
    """The group epoch is ahead: the next heartbeat computes a target assignment."""
    RECONCILING = "Reconciling"
    """Members are on their way to the target assignment."""
    STABLE = "Stable"
    """All members have what the target assignment gives them."""
    DEAD = "Dead"
    """Not here: deleted, never known, or led by another broker from now on."""


GROUP_TRANSITIONS: Mapping[ConsumerGroupState, frozenset[ConsumerGroupState]] = MappingProxyType(
    {
        # a first member joins, and in the same write gets its assignment, or does not
        ConsumerGroupState.EMPTY: frozenset(
            {ConsumerGroupState.ASSIGNING, ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE}
        ),
        # a target assignment is there  |  nobody is left
        ConsumerGroupState.ASSIGNING: frozenset(
            {ConsumerGroupState.RECONCILING, ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY}
        ),
        # the last member got there  |  somebody joins, leaves or fails, a topic changes
        ConsumerGroupState.RECONCILING: frozenset(
            {ConsumerGroupState.STABLE, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY}
        ),
        # a new target assignment in one write with its cause  |  a cause without one  |  a static member is away
        ConsumerGroupState.STABLE: frozenset(
            {ConsumerGroupState.RECONCILING, ConsumerGroupState.ASSIGNING, ConsumerGroupState.EMPTY}
        ),
        ConsumerGroupState.DEAD: frozenset(),
    }
)
"""What one write does, if it changes the state; it may also delete a group, or change it to the classic protocol."""


class MemberState(IntEnum):
    """How far a member is on its way to its target assignment; the number is the one in the log."""

    STABLE = 0
    """It has all of its target assignment of its epoch."""
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions, and stays in its epoch until it says that it has."""
    UNRELEASED_PARTITIONS = 2
    """It is in the epoch of the target assignment and waits for partitions that others still have."""
    UNKNOWN = 127
    """Written by a version that knows more states."""


MEMBER_TRANSITIONS: Mapping[MemberState, frozenset[MemberState]] = MappingProxyType(
    {
        # a newer target takes something away  |  gives what is not free yet
        MemberState.STABLE: frozenset({MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}),
        # all is given up, and the rest is free  |  or is not
        MemberState.UNREVOKED_PARTITIONS: frozenset({MemberState.STABLE, MemberState.UNRELEASED_PARTITIONS}),
        # what was missing is free  |  a newer target takes something away
        MemberState.UNRELEASED_PARTITIONS: frozenset({MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS}),
        # it has come back with nothing, and begins anew
        MemberState.UNKNOWN: frozenset(
            {MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}
        ),
    }
)
"""What reconciliation does; a member may stay in a state through many epochs."""
