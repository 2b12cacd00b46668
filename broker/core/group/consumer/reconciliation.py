"""How a member gets from what it has to what it is to have, one heartbeat after the other (KIP-848).

First it gives up what is not its own any more, and stays in its epoch until it says that it has. Then it goes to the
epoch of the target assignment, and is given what is free. A partition that another member still has, or has not yet
said to have given up, is never given: the member waits for it.

A member that says to have less than it was given need not have given up the rest: it may have been given it a moment
ago, and take it up in the next. Only after it was asked to give up a partition, its word counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from typing import NamedTuple, assert_never

from raftlog.broker.core.group.consumer.member import NOTHING, CurrentAssignment, Owned, Target
from raftlog.broker.core.group.consumer.state import MemberState

ClaimedPartitions = Mapping[bytes, Set[int]]
"""Partitions that a member says it has: topic id -> partitions."""

_NO_PARTITIONS: Mapping[int, int] = {}


class MustRejoin(Exception):
    """The member is in a state that this version does not know: it has to give up everything and join again."""


class Reconciliation(NamedTuple):
    """All that one step depends on.

    `subscribed` are the ids of the topics that the member consumes now; `is_free` tells whether nobody has a partition;
    `claimed` is what the member says to have, None when it says nothing; with `claim_is_certain` it has nothing else,
    nor is it about to take up anything.
    """

    current: CurrentAssignment
    target_epoch: int
    target: Target
    subscription_changed: bool
    subscribed: Set[bytes]
    is_free: Callable[[bytes, int], bool]
    claimed: ClaimedPartitions | None
    claim_is_certain: bool

    def may_use_any(self, owned: Owned) -> bool:
        """Whether the member may have some of these partitions, which it was not asked to give up."""
        return not self.claim_is_certain or _claims_any(self.claimed, owned)


def reconcile(step: Reconciliation) -> CurrentAssignment:
    """What the member has after this heartbeat; the same object when nothing changes. Raises MustRejoin."""
    current = step.current
    match current.state:
        case MemberState.STABLE:
            if current.epoch != step.target_epoch:
                return _next_assignment(step, current.epoch)
            return _without_unsubscribed(step) if step.subscription_changed else current
        case MemberState.UNREVOKED_PARTITIONS:
            if _claims_any(step.claimed, current.revoking):
                return _without_unsubscribed(step) if step.subscription_changed else current
            return _next_assignment(step, current.epoch)
        case MemberState.UNRELEASED_PARTITIONS:
            return _next_assignment(step, current.epoch)
        case MemberState.UNKNOWN:
            if step.claimed is None or step.claimed:
                raise MustRejoin
            return _next_assignment(step._replace(claim_is_certain=True), step.target_epoch)
        case _:
            assert_never(current.state)


def _claims_any(claimed: ClaimedPartitions | None, owned: Owned) -> bool:
    """Whether the member may still have some of these partitions: it says so, or says nothing."""
    if claimed is None:
        return True
    return any(not owned.get(topic_id, _NO_PARTITIONS).keys().isdisjoint(claimed[topic_id]) for topic_id in claimed)


def _without_unsubscribed(step: Reconciliation) -> CurrentAssignment:
    """Take away the partitions of topics that the member does not consume any more, without a new target."""
    current = step.current
    dropped = [topic_id for topic_id in current.assigned if topic_id not in step.subscribed]
    if not dropped:
        return current
    assigned = {topic_id: owned for topic_id, owned in current.assigned.items() if topic_id in step.subscribed}
    revoking = dict(current.revoking)
    for topic_id in dropped:
        revoking[topic_id] = {**revoking.get(topic_id, _NO_PARTITIONS), **current.assigned[topic_id]}
    if step.may_use_any(revoking):
        return CurrentAssignment(current.epoch, current.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    # It has given them up before it was asked.
    return current._replace(previous_epoch=current.epoch, assigned=assigned)


def _next_assignment(step: Reconciliation, epoch: int) -> CurrentAssignment:
    """One step from what the member has towards its target. `epoch` is the one to stay in if it has to revoke first."""
    current = step.current
    assigned: dict[bytes, Mapping[int, int]] = {}
    revoking: dict[bytes, Mapping[int, int]] = {}
    free: dict[bytes, list[int]] = {}
    is_waiting = False
    for topic_id in dict.fromkeys([*step.target, *current.assigned]):
        target: tuple[int, ...] = step.target.get(topic_id, ()) if topic_id in step.subscribed else ()
        wanted = set(target)
        owned = current.assigned.get(topic_id, _NO_PARTITIONS)
        own_revoking = current.revoking.get(topic_id, _NO_PARTITIONS)
        kept = {partition: since for partition, since in owned.items() if partition in wanted}
        if kept:
            assigned[topic_id] = kept
        if len(kept) < len(owned):
            revoking[topic_id] = {partition: since for partition, since in owned.items() if partition not in wanted}
        for partition in target:
            if partition in kept:
                continue
            # What the member itself was asked to give up is as good as free: nobody else can have it.
            if partition in own_revoking or step.is_free(topic_id, partition):
                free.setdefault(topic_id, []).append(partition)
            else:
                is_waiting = True
    if revoking and step.may_use_any(revoking):
        return CurrentAssignment(epoch, current.epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic_id, partitions in free.items():
        given = dict.fromkeys(partitions, step.target_epoch)
        assigned[topic_id] = {**assigned.get(topic_id, _NO_PARTITIONS), **given}
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return CurrentAssignment(step.target_epoch, current.epoch, state, assigned, NOTHING)
