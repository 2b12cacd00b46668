"""InitProducerId: who gets which id and epoch, and who is fenced by it."""

from __future__ import annotations

import pytest

from raftlog.broker.core.transaction.initialize import InitProducerId, check_initialize
from raftlog.broker.core.transaction.state import EPOCH_EXHAUSTED, EPOCH_MAX, NO_TIME, TransactionState
from raftlog.wire.errors import ErrorCode
from tests.broker.core.transaction.transaction_world import CONFIG, ID, P0, TIMEOUT_MS, World, identity, metadata

S, E = TransactionState, ErrorCode
ENDED = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)


def test_an_id_that_is_new_gets_a_producer_id_with_epoch_0() -> None:
    world = World()
    assert world.init() == (E.NONE, 101, 0)
    assert world.known.state is S.EMPTY and world.known.timeout_ms == TIMEOUT_MS


def test_a_producer_that_lost_its_id_to_expiry_gets_a_new_one() -> None:
    assert World().init(identity(7, 5)) == (E.NONE, 101, 0)


@pytest.mark.parametrize("state", ENDED)
def test_who_begins_anew_raises_the_epoch_and_fences_who_was_before(state: TransactionState) -> None:
    world = World()
    world.set(metadata(state))
    assert world.init(timeout_ms=5) == (E.NONE, 7, 4)
    assert (world.known.state, world.known.timeout_ms, world.known.start_ms) == (S.EMPTY, 5, NO_TIME)
    assert world.add(identity(7, 3), P0) is E.PRODUCER_FENCED
    # Nobody may go on with the epoch that was taken away.
    assert world.init(identity(7, 3)).error is E.PRODUCER_FENCED


@pytest.mark.parametrize("state", ENDED)
def test_a_producer_that_names_its_epoch_gets_the_next_one_and_may_ask_again(state: TransactionState) -> None:
    world = World()
    world.set(metadata(state))
    assert world.init(identity(7, 3)) == (E.NONE, 7, 4)
    # The answer was lost: it asks for the same thing.
    for _ in range(3):
        assert world.init(identity(7, 3)) == (E.NONE, 7, 4)
    assert world.init(identity(7, 4)) == (E.NONE, 7, 5)
    assert world.init(identity(7, 3)).error is E.PRODUCER_FENCED


@pytest.mark.parametrize("state", ENDED)
@pytest.mark.parametrize("named", [(7, 2), (7, 4), (7, 0), (8, 3), (7, EPOCH_EXHAUSTED)])
def test_a_zombie_is_fenced(state: TransactionState, named: tuple[int, int]) -> None:
    world = World()
    world.set(metadata(state))
    assert world.init(identity(*named)).error is E.PRODUCER_FENCED
    assert world.known == metadata(state)
    assert len(world.log) == (named not in ((7, 2), (7, 0))), "what could be of a successor is written once more"


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("last_epoch", [-1, 2])
@pytest.mark.parametrize("named", [(7, 2), (7, 1), (7, 4), (8, 3), (6, EPOCH_EXHAUSTED)])
def test_a_zombie_does_not_abort_the_transaction_of_who_has_fenced_it(
    version: int, last_epoch: int, named: tuple[int, int]
) -> None:
    world = World(transaction_version=version)
    known = metadata(S.ONGOING, previous_producer_id=6, last_epoch=last_epoch, client_version=version)
    world.set(known)
    assert world.init(identity(*named)).error is E.PRODUCER_FENCED
    assert world.known == known
    assert world.end(identity(7, 3), True, client_version=version).error is E.NONE


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
@pytest.mark.parametrize("named", [None, (7, 3), (7, 2)])
def test_while_a_transaction_ends_everybody_has_to_come_again(
    state: TransactionState, named: tuple[int, int] | None
) -> None:
    world = World()
    world.set(metadata(state))
    assert world.init(None if named is None else identity(*named)).error is E.CONCURRENT_TRANSACTIONS
    assert not world.log


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("named", [None, (7, 3)])
def test_a_transaction_that_is_under_way_is_aborted_before_its_id_is_given_away(
    version: int, named: tuple[int, int] | None
) -> None:
    world = World(transaction_version=version)
    world.set(metadata(S.ONGOING, client_version=version))
    expected = None if named is None else identity(*named)
    assert world.init(expected).error is E.CONCURRENT_TRANSACTIONS
    assert world.known.state is S.PREPARE_ABORT and world.known.producer_epoch == 4
    assert world.init(expected).error is E.CONCURRENT_TRANSACTIONS
    assert world.known.producer_epoch == 4, "once is enough"
    world.complete()
    again = world.init(expected)
    if named is None:
        assert again == (E.NONE, 7, 5)
    elif version == 2:
        # As in Kafka: the producer named the epoch before, which it may.
        assert again == (E.NONE, 7, 4)
    else:
        assert again.error is E.PRODUCER_FENCED


def test_another_id_comes_when_the_epochs_are_used_up_and_the_answer_can_be_repeated() -> None:
    world = World()
    world.set(metadata(S.EMPTY, epoch=EPOCH_EXHAUSTED - 1))
    assert world.init(identity(7, EPOCH_EXHAUSTED - 1)) == (E.NONE, 7, EPOCH_EXHAUSTED)
    last = identity(7, EPOCH_EXHAUSTED)
    rotated = world.init(last)
    assert rotated == (E.NONE, 101, 0)
    for _ in range(3):
        assert world.init(last) == rotated
    assert world.init(identity(101, 0)) == (E.NONE, 101, 1)
    assert world.init(last).error is E.PRODUCER_FENCED


def test_who_begins_anew_with_used_up_epochs_gets_another_id_that_nobody_else_can_claim() -> None:
    world = World()
    world.set(metadata(S.COMPLETE_COMMIT, epoch=EPOCH_EXHAUSTED))
    assert world.init() == (E.NONE, 101, 0)
    assert world.init(identity(7, EPOCH_EXHAUSTED)).error is E.PRODUCER_FENCED


def test_a_repetition_that_comes_when_the_epochs_are_used_up_is_answered() -> None:
    world = World()
    world.set(metadata(S.EMPTY, epoch=EPOCH_EXHAUSTED, last_epoch=EPOCH_EXHAUSTED - 1))
    assert world.init(identity(7, EPOCH_EXHAUSTED - 1)) == (E.NONE, 7, EPOCH_EXHAUSTED)
    assert world.init(identity(7, 5)).error is E.PRODUCER_FENCED


def test_fencing_with_the_last_epoch_never_passes_the_highest_one() -> None:
    for version in (0, 2):
        world = World(transaction_version=version)
        world.set(metadata(S.ONGOING, epoch=EPOCH_EXHAUSTED, client_version=version))
        assert world.init().error is E.CONCURRENT_TRANSACTIONS
        assert world.known.producer_epoch == EPOCH_MAX
        world.complete()
        initialized = world.init()
        assert initialized.error is E.NONE and initialized.producer_id != 7


def test_what_is_wrong_with_the_request_itself_is_said_at_once() -> None:
    def check(transactional_id: str, timeout_ms: int) -> ErrorCode:
        return check_initialize(CONFIG, InitProducerId(transactional_id, timeout_ms, None))

    assert check("", 1) is E.INVALID_REQUEST
    assert check(ID, 0) is check(ID, -1) is check(ID, 900_001) is E.INVALID_TRANSACTION_TIMEOUT
    assert check(ID, 1) is check(ID, 900_000) is E.NONE
