"""Asks transaction coordinators whether partitions belong to a transaction, or has them added to it (KIP-890).

Up to REQUESTS_MAX requests are under way to each coordinator; what comes meanwhile goes out together in the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from raftlog.broker.core.coordinator.shared import TRANSACTION_TOPIC, coordinator_partition
from raftlog.broker.runtime.broker_requests import BrokerRequests, RequestFailure, RequestSender
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import BrokerId, ProducerEpoch, ProducerId
from raftlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

if TYPE_CHECKING:
    from raftlog.broker.core.log.verification import VerificationGuard
    from raftlog.metadata.image import MetadataImage

log = logging.getLogger("raftlog.transactions")

VERSION: Final = 5
"""Of AddPartitionsToTxn, between brokers."""

REQUESTS_MAX: Final = 4
"""Requests under way to one coordinator: the first answers of a busy one must not hold up all others."""

WAITING_MAX: Final = 10_000
"""Transactions that wait for their turn at one coordinator."""

ANSWER_SECONDS_MAX: Final = 30.0
"""Kafka's request.timeout.ms: after that time the producer's request fails, and the producer tries again."""

RETRY_SECONDS_MIN: Final = 0.001
"""How soon a partition is asked for again whose transaction before has not ended yet. Later tries wait longer."""


class ClientAbility(Enum):
    """What a client can make of verification, by the version of its request."""

    OLD = 0
    """Knows neither what follows."""
    KNOWS_ABORTABLE = 1
    """Knows TRANSACTION_ABORTABLE."""
    ADDS_PARTITIONS = 2
    """Leaves it to the broker to add partitions to the transaction, and has another epoch in each."""


class Transaction(NamedTuple):
    """Whose transaction it is."""

    transactional_id: str
    producer_id: ProducerId
    producer_epoch: ProducerEpoch


TopicPartition: TypeAlias = tuple[str, int]
PartitionErrors: TypeAlias = "Mapping[TopicPartition, ErrorCode]"
Guards: TypeAlias = "dict[TopicPartition, VerificationGuard | ErrorCode]"
"""For each partition what a batch is to be appended with, or why it is refused."""
OnVerified: TypeAlias = "Callable[[PartitionErrors], None]"
"""Gets an error for each partition, NONE where it belongs to the transaction."""


class TransactionVerifier:
    """All that this broker asks transaction coordinators, itself perhaps among them."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, requests: BrokerRequests, image: Callable[[], MetadataImage]
    ) -> None:
        self._loop = loop
        self._image = image
        self._sender = requests.sender("raftlog-transaction-verifier", ANSWER_SECONDS_MAX)
        self._coordinators: dict[BrokerId, _Coordinator] = {}
        self.is_enabled = True
        self._retry_seconds_max = 0.02
        self._retrying_seconds_max = 0.1

    def reconfigure(self, values: Mapping[str, Any]) -> None:
        """Take the broker's settings, by Kafka's names."""
        self.is_enabled = values["transaction.partition.verification.enable"]
        self._retry_seconds_max = values["add.partitions.to.txn.retry.backoff.ms"] / 1000
        self._retrying_seconds_max = values["add.partitions.to.txn.retry.backoff.max.ms"] / 1000

    def is_needed(self, ability: ClientAbility) -> bool:
        """Whether the coordinator is asked at all (transaction.partition.verification.enable)."""
        return self.is_enabled or ability is ClientAbility.ADDS_PARTITIONS

    def verify(
        self,
        transaction: Transaction,
        partitions: Iterable[TopicPartition],
        ability: ClientAbility,
        answered: OnVerified,
    ) -> None:
        """Ask for partitions of one transaction. The errors are the coordinator's, in words that a client of this
        ability knows. `answered` is called once, perhaps at once.
        """
        wanted = dict.fromkeys(partitions)
        leader = self._coordinator_of(transaction.transactional_id)
        if leader is None:
            answered(dict.fromkeys(wanted, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        coordinator = self._coordinators.get(leader)
        if coordinator is None:
            coordinator = self._coordinators[leader] = _Coordinator(leader, self._sender)
        adds = ability is ClientAbility.ADDS_PARTITIONS
        coordinator.ask(transaction, wanted, adds=adds, answered=partial(_told, ability, answered))

    def verify_patiently(
        self,
        transaction: Transaction,
        begin: Callable[[], Guards],
        ability: ClientAbility,
        verified: Callable[[Guards], None],
    ) -> None:
        """Ask with guards, which `begin` makes for each partition, or says why not. `verified` gets those with which
        the batches may be appended, or why not, once, perhaps at once.

        While the transaction before is still being ended, it asks again for a tenth of a second. The guards are then
        new ones: the marker of the transaction before has taken the old ones with it.
        """
        end = self._loop.time() + self._retrying_seconds_max
        wait = RETRY_SECONDS_MIN
        guards: Guards = {}

        def on_answer(answer: PartitionErrors) -> None:
            nonlocal wait
            errors = {partition: error for partition, error in answer.items() if error is not ErrorCode.NONE}
            if not errors and begin() != guards:
                # The marker came after the guards were made: the word is about this transaction, but they are gone.
                errors = dict.fromkeys(answer, ErrorCode.CONCURRENT_TRANSACTIONS)
            if ErrorCode.CONCURRENT_TRANSACTIONS in errors.values() and self._loop.time() + wait <= end:
                self._loop.call_later(wait, ask)
                wait = min(2 * wait, self._retry_seconds_max)
            else:
                verified({**guards, **errors})

        def ask() -> None:
            nonlocal guards
            guards = begin()
            asked = [partition for partition, guard in guards.items() if not isinstance(guard, ErrorCode)]
            if asked:
                self.verify(transaction, asked, ability, on_answer)
            else:
                verified(guards)

        ask()

    def _coordinator_of(self, transactional_id: str) -> BrokerId | None:
        """The broker that leads the transaction's partition of `__transaction_state`, if one does."""
        image = self._image()
        topic = image.topics.get(TRANSACTION_TOPIC)
        if topic is None:
            return None
        leader = topic.partitions[coordinator_partition(transactional_id, len(topic.partitions))].leader
        broker = image.brokers.get(leader)
        return None if broker is None or broker.fenced else leader


def _told(ability: ClientAbility, answered: OnVerified, answer: PartitionErrors) -> None:
    if any(answer.values()):
        answer = {partition: _error_for(ability, error) for partition, error in answer.items()}
    answered(answer)


def _error_for(ability: ClientAbility, error: ErrorCode) -> ErrorCode:
    if error is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    if error is ErrorCode.TRANSACTION_ABORTABLE and ability is ClientAbility.OLD:
        return ErrorCode.INVALID_TXN_STATE
    return error


class _Asked:
    """One transaction that is asked for, by one or several requests of its producer."""

    __slots__ = ("adds", "transaction", "waiting", "wanted")

    def __init__(self, transaction: Transaction, *, adds: bool) -> None:
        self.transaction = transaction
        self.adds = adds
        self.wanted: dict[TopicPartition, None] = {}
        self.waiting: list[tuple[dict[TopicPartition, None], OnVerified]] = []

    def add(self, wanted: dict[TopicPartition, None], answered: OnVerified) -> None:
        self.wanted.update(wanted)
        self.waiting.append((wanted, answered))

    def done(self, errors: PartitionErrors, missing: ErrorCode) -> None:
        """Tell everybody about its partitions."""
        for wanted, answered in self.waiting:
            answered({partition: errors.get(partition, missing) for partition in wanted})

    def fail(self, error: ErrorCode) -> None:
        self.done({}, error)

    def encoded(self) -> AddPartitionsToTxnTransaction:
        topics: dict[str, list[int]] = {}
        for topic, index in self.wanted:
            topics.setdefault(topic, []).append(index)
        return AddPartitionsToTxnTransaction(
            transactional_id=self.transaction.transactional_id,
            producer_id=self.transaction.producer_id,
            producer_epoch=self.transaction.producer_epoch,
            verify_only=not self.adds,
            topics=[AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in topics.items()],
        )


class _Coordinator:
    """One broker that is asked. Invariant: of a transactional id there is at most one in `_waiting`."""

    def __init__(self, broker_id: BrokerId, sender: RequestSender) -> None:
        self._broker_id = broker_id
        self._sender = sender
        self._under_way = 0
        self._waiting: dict[str, _Asked] = {}

    def ask(
        self, transaction: Transaction, wanted: dict[TopicPartition, None], *, adds: bool, answered: OnVerified
    ) -> None:
        """Have it asked for with the next request."""
        replaced, asked = None, self._waiting.get(transaction.transactional_id)
        if asked is not None and (asked.transaction, asked.adds) != (transaction, adds):
            before = asked.transaction
            # Epochs of two producer ids say nothing: who of them is fenced, only the coordinator knows.
            is_same = before.producer_id == transaction.producer_id
            if is_same and before.producer_epoch > transaction.producer_epoch:
                answered(dict.fromkeys(wanted, ErrorCode.INVALID_PRODUCER_EPOCH))
                return
            # A new instance of the producer has taken over; or it asks in another way, and asks again for these.
            is_fenced = is_same and before.producer_epoch < transaction.producer_epoch
            error = ErrorCode.INVALID_PRODUCER_EPOCH if is_fenced else ErrorCode.NETWORK_EXCEPTION
            replaced, asked = asked, None
        if asked is None:
            if len(self._waiting) >= WAITING_MAX and replaced is None:
                answered(dict.fromkeys(wanted, ErrorCode.NETWORK_EXCEPTION))
                return
            asked = self._waiting[transaction.transactional_id] = _Asked(transaction, adds=adds)
        asked.add(wanted, answered)
        if replaced is not None:
            replaced.fail(error)
        self._send()

    def _send(self) -> None:
        if self._under_way >= REQUESTS_MAX or not self._waiting:
            return
        asked, self._waiting = self._waiting, {}
        self._under_way += 1
        request = AddPartitionsToTxnRequest(transactions=[each.encoded() for each in asked.values()])
        self._sender.send(self._broker_id, request, VERSION, partial(self._answered, asked))

    def _answered(self, asked: dict[str, _Asked], response: AddPartitionsToTxnResponse | RequestFailure) -> None:
        self._under_way -= 1
        self._send()
        if isinstance(response, RequestFailure):
            log.warning("broker=%d did not answer as transaction coordinator: %s", self._broker_id, response.value)
            self._fail(asked, ErrorCode.NETWORK_EXCEPTION)
        elif response.error_code:
            error = ErrorCode.of(response.error_code)
            log.error("broker=%d refuses to say what is part of a transaction: %s", self._broker_id, error.name)
            # What brokers may do is not the client's business.
            is_theirs = error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            self._fail(asked, ErrorCode.INVALID_TXN_STATE if is_theirs else error)
        else:
            for result in response.results_by_transaction:
                each = asked.pop(result.transactional_id, None)
                if each is not None:
                    errors = {
                        (topic.name, partition.partition_index): ErrorCode.of(partition.partition_error_code)
                        for topic in result.topic_results
                        for partition in topic.results_by_partition
                    }
                    each.done(errors, ErrorCode.INVALID_TXN_STATE)
            self._fail(asked, ErrorCode.INVALID_TXN_STATE)

    @staticmethod
    def _fail(asked: dict[str, _Asked], error: ErrorCode) -> None:
        for each in asked.values():
            each.fail(error)
