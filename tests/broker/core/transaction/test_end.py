"""EndTxn in every state, from every sender; and what becomes of a transaction that its producer does not end."""

from __future__ import annotations

import pytest

from raftlog.broker.core.transaction.end import complete
from raftlog.broker.core.transaction.state import (
    EPOCH_EXHAUSTED,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TransactionState,
)
from raftlog.wire.errors import ErrorCode, InvariantViolation
from tests.broker.core.transaction.transaction_world import ID, P0, P1, TIMEOUT_MS, World, identity, metadata

S, E = TransactionState, ErrorCode
COMMIT, ABORT = True, False
STORED = (S.EMPTY, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)

# What Kafka 4.3's coordinator answers; `end` means that the transaction ends so, `again` that it has.
VERSION_2 = """
state            current commit   current abort   repeated commit  repeated abort
EMPTY            INVALID          end             FENCED           FENCED
ONGOING          end              end             FENCED           FENCED
PREPARE_COMMIT   CONCURRENT       CONCURRENT      CONCURRENT       INVALID
PREPARE_ABORT    CONCURRENT       CONCURRENT      INVALID          CONCURRENT
COMPLETE_COMMIT  INVALID          end             again            INVALID
COMPLETE_ABORT   INVALID          end             INVALID          again
"""
VERSION_0 = """
state            current commit   current abort   repeated commit  repeated abort
EMPTY            INVALID          INVALID         FENCED           FENCED
ONGOING          end              end             FENCED           FENCED
PREPARE_COMMIT   CONCURRENT       INVALID         FENCED           FENCED
PREPARE_ABORT    INVALID          CONCURRENT      FENCED           FENCED
COMPLETE_COMMIT  again            INVALID         FENCED           FENCED
COMPLETE_ABORT   INVALID          again           FENCED           FENCED
"""
ERRORS = {
    "end": E.NONE,
    "again": E.NONE,
    "FENCED": E.PRODUCER_FENCED,
    "CONCURRENT": E.CONCURRENT_TRANSACTIONS,
    "INVALID": E.INVALID_TXN_STATE,
}


def table(text: str) -> list[tuple[TransactionState, bool, bool, str]]:
    """(state, whether it is repeated, whether it commits, outcome)"""
    _, *lines = text.strip().splitlines()
    columns = [(False, COMMIT), (False, ABORT), (True, COMMIT), (True, ABORT)]
    return [
        (S[state], repeated, committed, outcome)
        for state, *outcomes in (line.split() for line in lines)
        for (repeated, committed), outcome in zip(columns, outcomes, strict=True)
    ]


@pytest.mark.parametrize(("version", "text"), [(2, VERSION_2), (0, VERSION_0)])
def test_every_state_answers_every_end_as_kafka_does(version: int, text: str) -> None:
    rows = table(text)
    assert {row[0] for row in rows} == set(STORED)
    for state, is_repeated, committed, outcome in rows:
        world = World()
        world.set(metadata(state))
        before = world.known
        ended = world.end(identity(7, 2 if is_repeated else 3), committed, version)
        assert ended.error is ERRORS[outcome], (state, is_repeated, committed)
        if outcome == "end":
            assert world.known.state is (S.PREPARE_COMMIT if committed else S.PREPARE_ABORT)
            assert world.known.producer_epoch == (4 if version == 2 else 3)
            assert world.known.client_version == version
        else:
            assert world.known == before and len(world.log) == (outcome == "INVALID")
        if version == 0 or ended.error is not E.NONE:
            assert (ended.producer_id, ended.epoch) == (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        else:
            assert (ended.producer_id, ended.epoch) == (7, world.known.producer_epoch)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_another_epoch_is_fenced_and_another_id_is_unknown(
    version: int, state: TransactionState, committed: bool
) -> None:
    world = World()
    world.set(metadata(state))
    before = world.known
    for epoch in (0, 1, 4, EPOCH_EXHAUSTED, EPOCH_MAX):
        assert world.end(identity(7, epoch), committed, version).error is E.PRODUCER_FENCED
    assert world.end(identity(8, 3), committed, version).error is E.INVALID_PRODUCER_ID_MAPPING
    assert world.known == before and len(world.log) == 4, "what could be of a successor is written once more"


def test_an_id_that_nobody_knows_cannot_end_anything() -> None:
    world = World()
    assert world.end(identity(7, 0), COMMIT).error is E.INVALID_PRODUCER_ID_MAPPING
    assert world.end(identity(7, 0), ABORT, 0).error is E.INVALID_PRODUCER_ID_MAPPING


def test_kafka_17754_a_delayed_end_of_an_earlier_transaction_cannot_end_a_later_one() -> None:
    world = World()
    first = identity(*world.init()[1:])
    world.add(first, P0)
    second = identity(*world.end(first, COMMIT)[1:])
    world.complete()
    assert world.add(second, P1) is E.NONE
    for committed in (COMMIT, ABORT):
        assert world.end(first, committed).error is E.PRODUCER_FENCED
    assert world.known.state is S.ONGOING and world.known.partitions == {P1}


def test_a_delayed_end_is_recognized_while_and_after_the_transaction_ends() -> None:
    world = World()
    producer = identity(*world.init()[1:])
    world.add(producer, P0)
    ended = world.end(producer, COMMIT)
    assert ended == (E.NONE, producer.producer_id, producer.epoch + 1)
    assert world.end(producer, COMMIT).error is E.CONCURRENT_TRANSACTIONS
    world.complete()
    assert world.end(producer, COMMIT) == ended
    assert world.end(producer, ABORT).error is E.INVALID_TXN_STATE


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
@pytest.mark.parametrize("is_complete", [False, True])
def test_a_zombie_is_not_told_of_the_end_that_an_older_client_has_made_with_the_next_epoch(
    committed: bool, is_complete: bool
) -> None:
    """It repeats nothing: its epoch was not raised by an end, but by the producer that fenced it."""
    world = World()
    zombie = identity(*world.init()[1:])
    older = identity(*world.init()[1:])
    assert (older.epoch, zombie.epoch) == (1, 0)
    assert world.add(older, P0, client_version=0) is E.NONE
    assert world.end(older, committed, client_version=0).error is E.NONE
    if is_complete:
        world.complete()
    assert world.end(zombie, committed) == (E.PRODUCER_FENCED, NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


@pytest.mark.parametrize("version", [0, 2])
@pytest.mark.parametrize("state", STORED)
@pytest.mark.parametrize("is_repeated", [False, True])
def test_redpanda_21_a_commit_that_is_refused_as_invalid_is_never_seen(
    version: int, state: TransactionState, is_repeated: bool
) -> None:
    """There a commit was answered with INVALID_TXN_STATE, and the transaction became visible later."""
    world = World()
    world.set(metadata(state))
    sender, before = identity(7, 2 if is_repeated else 3), world.known
    if world.end(sender, COMMIT, version).error is E.INVALID_TXN_STATE:
        # What this sender wrote is not in a transaction that commits, nor can it be any more.
        assert not (state is S.PREPARE_COMMIT or state is S.ONGOING)
        assert state is not S.COMPLETE_COMMIT or version == 2, "it has committed, and is told so"
        assert world.known == before


def test_an_abort_never_becomes_a_commit_and_a_commit_never_an_abort() -> None:
    for committed in (COMMIT, ABORT):
        world = World()
        producer = identity(*world.init()[1:])
        world.add(producer, P0)
        world.end(producer, committed)
        for _ in range(2):
            assert world.end(producer, not committed).error is E.INVALID_TXN_STATE
            assert world.known.state in (
                (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
                if committed
                else (
                    S.PREPARE_ABORT,
                    S.COMPLETE_ABORT,
                )
            )
            if world.known.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
                world.complete()


def test_an_empty_transaction_of_version_2_is_aborted_and_takes_an_epoch() -> None:
    world = World()
    producer = identity(*world.init()[1:])
    ended = world.end(producer, ABORT)
    assert ended == (E.NONE, producer.producer_id, 1)
    assert world.known.start_ms == world.now.wall_ms and not world.known.partitions
    world.complete()
    again = world.end(identity(*ended[1:]), ABORT)
    assert again == (E.NONE, producer.producer_id, 2)
    assert world.known.state is S.PREPARE_ABORT


def test_the_last_epoch_of_an_id_ends_its_transaction_and_another_id_follows() -> None:
    world = World()
    world.set(metadata(S.ONGOING, epoch=EPOCH_EXHAUSTED))
    last = identity(7, EPOCH_EXHAUSTED)
    ended = world.end(last, COMMIT)
    assert ended.error is E.NONE and ended.producer_id not in (7, NO_PRODUCER_ID) and ended.epoch == 0
    # The markers carry the highest epoch, which no producer ever has.
    assert (world.known.producer_id, world.known.producer_epoch) == (7, EPOCH_MAX)
    assert world.end(last, COMMIT).error is E.CONCURRENT_TRANSACTIONS
    world.complete()
    assert (world.known.producer_id, world.known.producer_epoch) == (ended.producer_id, 0)
    assert world.end(last, COMMIT) == ended
    assert world.end(last, ABORT).error is E.INVALID_TXN_STATE
    assert world.add(identity(*ended[1:]), P0) is E.NONE
    assert world.end(last, COMMIT).error is E.INVALID_PRODUCER_ID_MAPPING


@pytest.mark.parametrize("committed", [COMMIT, ABORT])
def test_who_has_the_id_that_follows_comes_again_until_the_last_transaction_of_the_old_one_has_ended(
    committed: bool,
) -> None:
    world = World()
    world.set(metadata(S.ONGOING, epoch=EPOCH_EXHAUSTED))
    ended = world.end(identity(7, EPOCH_EXHAUSTED), committed)
    follows = identity(ended.producer_id, ended.epoch)
    for later in (identity(follows.producer_id, 1), identity(follows.producer_id + 1, 0)):
        assert world.add(later, P1) is E.INVALID_PRODUCER_ID_MAPPING
    writes = len(world.log)
    assert world.add(follows, P1) is E.CONCURRENT_TRANSACTIONS
    assert world.verify(follows, P1) == {P1: E.CONCURRENT_TRANSACTIONS}
    assert world.end(follows, COMMIT).error is world.end(follows, ABORT).error is E.CONCURRENT_TRANSACTIONS
    assert world.init(follows).error is E.CONCURRENT_TRANSACTIONS
    assert len(world.log) == writes
    world.complete()
    assert world.add(follows, P1) is E.NONE


def test_an_older_client_ends_with_the_epoch_that_it_has() -> None:
    world = World(transaction_version=0)
    producer = identity(*world.init()[1:])
    for _ in range(2):
        assert world.add(producer, P0, client_version=0) is E.NONE
        assert world.end(producer, COMMIT, 0).error is E.NONE
        world.complete()
        assert world.end(producer, COMMIT, 0).error is E.NONE
    assert (world.known.producer_epoch, world.known.client_version) == (0, 0)


@pytest.mark.parametrize(("version", "epoch", "last_epoch"), [(0, 4, -1), (1, 4, -1), (2, 4, 3)])
def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(
    version: int, epoch: int, last_epoch: int
) -> None:
    world = World(transaction_version=version)
    world.set(metadata(S.ONGOING, start_ms=world.now.wall_ms, client_version=version))
    world.pass_ms(TIMEOUT_MS)
    assert not world.time_out()
    world.pass_ms(1)
    assert world.time_out() and world.known.state is S.PREPARE_ABORT
    assert (world.known.producer_epoch, world.known.last_producer_epoch) == (epoch, last_epoch)
    assert world.known.client_version == (2 if version == 2 else 0)
    assert world.add(identity(7, 3), P1) is E.PRODUCER_FENCED
    assert not world.time_out(), "it is ending"
    world.complete()
    # With version 2 the producer cannot tell it from its own commit that was answered otherwise.
    expected = E.INVALID_TXN_STATE if version == 2 else E.PRODUCER_FENCED
    assert world.end(identity(7, 3), COMMIT, version).error is expected
    assert world.add(identity(7, 3), P1) is E.PRODUCER_FENCED


def test_a_time_out_with_the_last_epoch_leads_to_another_id() -> None:
    world = World()
    world.set(metadata(S.ONGOING, epoch=EPOCH_EXHAUSTED, start_ms=0))
    assert world.time_out()
    assert world.known.producer_epoch == EPOCH_MAX and world.known.next_producer_id != NO_PRODUCER_ID
    world.complete()
    assert world.known.producer_id != 7 and world.known.producer_epoch == 0


def test_only_an_ongoing_transaction_takes_too_long_and_only_an_ending_one_is_completed() -> None:
    for state in STORED:
        world = World()
        world.set(metadata(state, start_ms=0))
        assert world.time_out() is (state is S.ONGOING)
        world.set(metadata(state))
        if state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
            world.complete()
            assert not world.known.partitions
        else:
            with pytest.raises(InvariantViolation):
                complete(ID, world.known, world.now)
