"""The state machine of a producer's transactions: what each failure leads to, and that no state is a dead end."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raftlog.client.core.errors import KafkaError, ProducerFenced, Rejected, TransactionFailed, WrongState
from raftlog.client.core.producer_batch import ProducerIdentity
from raftlog.client.core.transaction import State, Step, Transaction
from raftlog.wire.errors import ErrorCode
from tests.effort import examples

PARTITION = ("orders", 0)


def ready(version: int = 2) -> Transaction:
    transaction = Transaction("billing")
    transaction.initialized(ProducerIdentity(7, 0), version)
    return transaction


def test_version_1_adds_partitions_first_and_version_2_does_not() -> None:
    for version in (1, 2):
        transaction = ready(version)
        transaction.begin()
        transaction.touch(PARTITION)
        assert bool(transaction.to_add) == (version == 1)
        transaction.added({PARTITION})
        assert transaction.end(committed=True)
        assert not transaction.ended(ProducerIdentity(7, 1) if version == 2 else None)
        assert transaction.identity == ProducerIdentity(7, 1 if version == 2 else 0)


def test_an_empty_transaction_is_not_told_to_the_coordinator() -> None:
    transaction = ready()
    transaction.begin()
    assert not transaction.end(committed=True) and not transaction.ended(None)
    assert transaction.state is State.READY


@pytest.mark.parametrize(
    ("code", "step", "state"),
    [
        (ErrorCode.INVALID_PRODUCER_EPOCH, Step.COORDINATE, State.FATAL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, Step.PRODUCE, State.BROKEN),
        (ErrorCode.PRODUCER_FENCED, Step.COORDINATE, State.FATAL),
        (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Step.PRODUCE, State.FATAL),
        (ErrorCode.TRANSACTION_ABORTABLE, Step.PRODUCE, State.BROKEN),
        (ErrorCode.MESSAGE_TOO_LARGE, Step.PRODUCE, State.BROKEN),
        (ErrorCode.INVALID_TXN_STATE, Step.PRODUCE, State.BROKEN),
        (ErrorCode.INVALID_TXN_STATE, Step.COORDINATE, State.FATAL),
        (ErrorCode.ILLEGAL_GENERATION, Step.COORDINATE, State.BROKEN),
    ],
)
def test_failures_are_told_apart(code: ErrorCode, step: Step, state: State) -> None:
    transaction = ready()
    transaction.begin()
    raised = transaction.failed(Rejected(code, "something"), step)
    assert transaction.state is state
    assert raised.fatal == (state is State.FATAL) and raised.abortable == (state is State.BROKEN)
    with pytest.raises(ProducerFenced if "EPOCH" in code.name and raised.fatal else KafkaError):
        transaction.check_can_send()


def test_a_commit_that_was_not_answered_stays_in_doubt_until_the_next_transaction() -> None:
    transaction = ready()
    transaction.begin()
    transaction.touch(PARTITION)
    transaction.end(committed=True)
    transaction.end_unanswered()
    broken = transaction.failed(Rejected(ErrorCode.TRANSACTION_ABORTABLE, "it"), Step.COORDINATE)
    assert broken.in_doubt and broken.abortable
    transaction.end(committed=False)
    transaction.end_unanswered()
    assert transaction.failed(Rejected(ErrorCode.PRODUCER_FENCED, "it"), Step.COORDINATE).in_doubt
    again = ready()
    again.begin()
    assert not again.failed(Rejected(ErrorCode.PRODUCER_FENCED, "it"), Step.COORDINATE).in_doubt


def test_after_a_gap_version_1_asks_for_another_epoch_and_version_2_was_given_one() -> None:
    for version in (1, 2):
        transaction = ready(version)
        transaction.begin()
        transaction.touch(PARTITION)
        transaction.failed(KafkaError("too late"), Step.PRODUCE, gap=True)
        transaction.end(committed=False)
        needs = transaction.ended(ProducerIdentity(7, 1) if version == 2 else None)
        assert needs == (version == 1) and transaction.state is (State.NEW if needs else State.READY)


@settings(max_examples=examples(150))
@given(
    st.sampled_from([1, 2]),
    st.lists(st.sampled_from(["begin", "touch", "add", "gap", "abortable", "commit", "abort", "initialize"])),
)
def test_whatever_is_called_it_can_go_on(version: int, calls: list[str]) -> None:
    transaction = ready(version)
    epoch = 0
    for call in calls:
        try:
            match call:
                case "begin":
                    transaction.begin()
                case "touch":
                    transaction.check_can_send()
                    transaction.touch(PARTITION)
                case "add":
                    transaction.added(set(transaction.to_add))
                case "gap" | "abortable":
                    transaction.failed(KafkaError("lost"), Step.PRODUCE, gap=call == "gap")
                case "commit" | "abort":
                    transaction.added(set(transaction.to_add))
                    told = transaction.end(committed=call == "commit")
                    epoch += 1
                    transaction.ended(ProducerIdentity(7, epoch) if told and version == 2 else None)
                case _:
                    if transaction.state is State.NEW:
                        epoch += 1
                        transaction.initialized(ProducerIdentity(7, epoch), version)
        except (WrongState, TransactionFailed):
            continue
        transaction.check_invariants()
    if transaction.is_open:
        transaction.end(committed=False)
        transaction.ended(ProducerIdentity(7, epoch + 1))
    if transaction.state is State.NEW:
        transaction.initialized(ProducerIdentity(7, epoch + 2), version)
    transaction.begin()
    assert transaction.state is State.OPEN


def test_a_prepared_transaction_takes_nothing_more_and_is_not_ended_by_its_producer() -> None:
    transaction = ready()
    with pytest.raises(WrongState):
        transaction.prepare()
    transaction.begin()
    transaction.touch(PARTITION)
    assert transaction.prepare() == ("billing", 7, 0, 2)
    assert not transaction.is_open
    for refused in (transaction.check_can_send, transaction.prepare, lambda: transaction.end(committed=False)):
        with pytest.raises(WrongState):
            refused()
