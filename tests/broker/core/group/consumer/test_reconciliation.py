"""Every step of reconciliation, over all small cases."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from raftlog.broker.core.group.consumer.member import CurrentAssignment
from raftlog.broker.core.group.consumer.reconciliation import MustRejoin, Reconciliation, reconcile
from raftlog.broker.core.group.consumer.state import MEMBER_TRANSITIONS, MemberState
from tests.broker.core.group.consumer.consumer_world import Consumer, ConsumerWorld, settle

T = b"topic..........."
SUBSETS = [frozenset(), frozenset({0}), frozenset({1}), frozenset({0, 1})]
EPOCH, GIVEN_IN = 5, 3


def owned(partitions: frozenset[int]) -> dict[bytes, dict[int, int]]:
    return {T: dict.fromkeys(sorted(partitions), GIVEN_IN)} if partitions else {}


def cases() -> Iterator[Reconciliation]:
    """What a member of partitions 0 and 1 can have, be meant to have, and say to have, with 1 or both taken."""
    states = [MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS]
    for state, assigned, revoking, target in product(states, SUBSETS, SUBSETS, SUBSETS):
        if assigned & revoking or bool(revoking) != (state is MemberState.UNREVOKED_PARTITIONS):
            continue
        for taken, claimed, target_epoch in product(SUBSETS, [None, *SUBSETS], (EPOCH, EPOCH + 2)):
            if taken & (assigned | revoking):
                continue
            subscriptions = ((False, True), (True, True), (True, False))
            for (changed, subscribed), is_certain in product(subscriptions, (True, False)):
                yield Reconciliation(
                    CurrentAssignment(EPOCH, EPOCH - 1, state, owned(assigned), owned(revoking)),
                    target_epoch,
                    {T: tuple(sorted(target))} if target else {},
                    subscription_changed=changed,
                    subscribed={T} if subscribed else set(),
                    is_free=lambda _, partition, held=taken | assigned | revoking: partition not in held,
                    claimed=None if claimed is None else {T: set(claimed)} if claimed else {},
                    claim_is_certain=is_certain,
                )


CASES = list(cases())


def of(partitions: object) -> set[int]:
    assert isinstance(partitions, dict | type(CurrentAssignment().assigned))
    return set(partitions.get(T, ()))


def test_there_are_cases_of_every_kind() -> None:
    assert len(CASES) >= 3_000
    assert {case.current.state for case in CASES} == set(MemberState) - {MemberState.UNKNOWN}


def test_a_partition_is_given_only_if_it_is_free_or_the_members_own() -> None:
    for case in CASES:
        before, after = case.current, reconcile(case)
        for partition in of(after.assigned) | of(after.revoking):
            own = of(before.assigned) | of(before.revoking)
            assert partition in own or case.is_free(T, partition), case


def test_what_the_member_may_still_use_stays_its_own() -> None:
    for case in CASES:
        before, after = case.current, reconcile(case)
        own = of(before.assigned) | of(before.revoking)
        may_use = own if case.claimed is None else own & case.claimed.get(T, set())
        if not case.claim_is_certain:
            may_use |= of(before.assigned)
        assert may_use <= of(after.assigned) | of(after.revoking), case


def test_a_member_moves_on_to_the_epoch_of_the_target_when_it_has_nothing_to_give_up() -> None:
    for case in CASES:
        after = reconcile(case)
        if after is case.current:
            continue
        if after.state is MemberState.UNREVOKED_PARTITIONS:
            assert after.epoch == case.current.epoch and of(after.revoking), case
        elif after.epoch != EPOCH:
            assert after.epoch == case.target_epoch and not after.revoking, case
            assert after.previous_epoch == EPOCH


def test_a_stable_member_of_the_targets_epoch_has_its_target_and_others_wait_for_what_is_taken() -> None:
    for case in CASES:
        after = reconcile(case)
        if after is case.current or after.epoch != case.target_epoch or case.target_epoch == EPOCH:
            continue
        wanted = set(case.target.get(T, ())) if case.subscribed else set()
        if after.state is MemberState.STABLE:
            assert of(after.assigned) == wanted, case
        elif after.state is MemberState.UNRELEASED_PARTITIONS:
            missing = wanted - of(after.assigned)
            assert missing and not any(case.is_free(T, partition) for partition in missing), case


def test_partitions_keep_the_epoch_in_which_they_were_given() -> None:
    for case in CASES:
        before, after = case.current, reconcile(case)
        for partition, epoch in {**after.assigned.get(T, {}), **after.revoking.get(T, {})}.items():
            if partition in of(before.assigned):
                assert epoch == GIVEN_IN, case
            elif partition not in of(before.revoking):
                assert epoch == case.target_epoch, case


def test_a_member_goes_only_where_the_table_has_an_arrow() -> None:
    seen = set()
    for case in CASES:
        before, after = case.current.state, reconcile(case).state
        if before is not after:
            assert after in MEMBER_TRANSITIONS[before], case
            seen.add((before, after))
    expected = {(a, b) for a, after in MEMBER_TRANSITIONS.items() for b in after if a is not MemberState.UNKNOWN}
    assert seen == expected


@pytest.mark.parametrize("claimed", [None, {T: {0}}])
def test_a_member_in_a_state_that_is_not_known_has_to_give_up_everything(claimed: dict[bytes, set[int]] | None) -> None:
    step = CASES[0]._replace(current=CurrentAssignment(EPOCH, EPOCH, MemberState.UNKNOWN), claimed=claimed)
    with pytest.raises(MustRejoin):
        reconcile(step)
    begun_anew = reconcile(step._replace(claimed={}, target_epoch=9, target={}))
    assert begun_anew.epoch == 9 and begun_anew.state is MemberState.STABLE


def test_who_says_to_have_nothing_is_asked_before_another_gets_what_it_was_given() -> None:
    """librdkafka repeats what it said when it joined, until it takes up the partitions that it was given meanwhile."""
    world = ConsumerWorld()
    world.set_topics(t=4)
    first, second = Consumer(world, "a", ["t"]), Consumer(world, "b", ["t"])
    first.beat()
    given, first.owned = first.owned, {}
    world.advance(2_000)
    second.beat()
    first.beat()
    target, first.owned = first.owned, given
    second.beat()
    assert not second.owned, "it has been told of them, as its epoch says"
    first.beat()
    first.owned = target
    settle(world, first, second)
    assert [len(each) for client in (first, second) for each in client.owned.values()] == [2, 2]
