"""The states of a group of the classic rebalance protocol, and which may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class GroupState(Enum):
    """A group's state; the value is the name that clients are told."""

    EMPTY = "Empty"
    """No members. The group lives on for its committed offsets."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are (re)joining; their JoinGroup requests are delayed."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """A generation has begun; members wait for the leader's assignment, their SyncGroup requests delayed."""
    STABLE = "Stable"
    """Every member can have its assignment."""
    DEAD = "Dead"
    """Not here: deleted, never known, or led by another broker from now on."""


TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = MappingProxyType(
    {
        # a first member joins
        GroupState.EMPTY: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
        # all joined, or time was up  |  nobody is left
        GroupState.PREPARING_REBALANCE: frozenset({GroupState.COMPLETING_REBALANCE, GroupState.EMPTY, GroupState.DEAD}),
        # the assignment is stored  |  a member joins, leaves or fails
        GroupState.COMPLETING_REBALANCE: frozenset(
            {GroupState.STABLE, GroupState.PREPARING_REBALANCE, GroupState.DEAD}
        ),
        # a member joins with something new, leaves or fails
        GroupState.STABLE: frozenset({GroupState.PREPARING_REBALANCE, GroupState.DEAD}),
        GroupState.DEAD: frozenset(),
    }
)
