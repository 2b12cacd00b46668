"""Partitions become part of a transaction, and leaders ask whether they are."""

from __future__ import annotations

import pytest

from raftlog.broker.core.transaction.state import TransactionState
from raftlog.wire.errors import ErrorCode
from tests.broker.core.transaction.transaction_world import P0, P1, P2, World, identity, metadata

S, E = TransactionState, ErrorCode
CURRENT = identity(7, 3)

# (when it has the partition already, when it has not)
ADDING = {
    S.EMPTY: E.NONE,
    S.ONGOING: E.NONE,
    S.PREPARE_COMMIT: E.CONCURRENT_TRANSACTIONS,
    S.PREPARE_ABORT: E.CONCURRENT_TRANSACTIONS,
    S.COMPLETE_COMMIT: E.NONE,
    S.COMPLETE_ABORT: E.NONE,
}
VERIFYING = ADDING | {
    S.EMPTY: E.TRANSACTION_ABORTABLE,
    S.COMPLETE_COMMIT: E.TRANSACTION_ABORTABLE,
    S.COMPLETE_ABORT: E.TRANSACTION_ABORTABLE,
}


@pytest.mark.parametrize("state", ADDING)
def test_each_state_takes_in_partitions_or_says_why_not(state: TransactionState) -> None:
    world = World()
    world.set(metadata(state))
    had = world.known.partitions
    assert world.add(CURRENT, P1, P2) is ADDING[state]
    if ADDING[state] is E.NONE:
        assert world.known.state is S.ONGOING and world.known.partitions == had | {P1, P2}
    else:
        assert world.known.state is state and not world.log


@pytest.mark.parametrize("state", VERIFYING)
def test_a_leader_hears_of_each_partition_whether_the_transaction_has_it(state: TransactionState) -> None:
    world = World()
    world.set(metadata(state))
    not_there = E.TRANSACTION_ABORTABLE if state is S.ONGOING else VERIFYING[state]
    assert world.verify(CURRENT, P0, P1) == {P0: VERIFYING[state], P1: not_there}
    assert not world.log


@pytest.mark.parametrize("state", ADDING)
@pytest.mark.parametrize(
    ("producer", "error"),
    [((8, 3), E.INVALID_PRODUCER_ID_MAPPING), ((7, 2), E.PRODUCER_FENCED), ((7, 4), E.PRODUCER_FENCED)],
)
def test_who_does_not_have_the_id_now_is_refused(
    state: TransactionState, producer: tuple[int, int], error: ErrorCode
) -> None:
    world = World()
    world.set(metadata(state))
    assert world.add(identity(*producer), P0) is error
    assert world.verify(identity(*producer), P0, P1) == {P0: error, P1: error}
    assert world.known == metadata(state)
    assert len(world.log) == (0 if producer == (7, 2) else 2), "what could be of a successor is written once more"


def test_an_id_that_nobody_knows_has_no_transaction() -> None:
    world = World()
    assert world.add(CURRENT, P0) is E.INVALID_PRODUCER_ID_MAPPING
    assert world.verify(CURRENT, P0) == {P0: E.INVALID_PRODUCER_ID_MAPPING}


def test_what_is_there_already_writes_nothing() -> None:
    world = World()
    world.set(metadata(S.ONGOING, partitions=frozenset({P0, P1})))
    assert world.add(CURRENT, P1) is E.NONE and world.add(CURRENT, P0, P1) is E.NONE
    assert not world.log


def test_the_time_of_a_transaction_runs_from_its_first_partition() -> None:
    world = World()
    producer = identity(*world.init()[1:])
    world.pass_ms(10)
    world.add(producer, P0)
    began = world.now.wall_ms
    world.pass_ms(10)
    world.add(producer, P1)
    assert (world.known.start_ms, world.known.last_update_ms) == (began, began + 10)
    ended = world.end(producer, True)
    world.complete()
    world.pass_ms(10)
    world.add(identity(*ended[1:]), P0)
    assert world.known.start_ms == world.now.wall_ms
