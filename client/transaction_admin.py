"""Transactions seen from outside: which there are, how far they are, which ones nobody will end, and how to end them.

Every call raises KafkaError; Rejected carries the broker's error code and message.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from raftlog.client.core.errors import ProducerFenced, Rejected, check
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.transaction import FENCED, PreparedTransaction
from raftlog.client.router import TRANSACTION, Router
from raftlog.client.transactions import END_TXN_V1
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    ProducerState,
    TopicRequest,
)
from raftlog.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from raftlog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raftlog.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from raftlog.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

ONGOING = "Ongoing"
STATES = "Empty, Ongoing, PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort"
DECIDED = {"PrepareCommit": True, "CompleteCommit": True, "PrepareAbort": False, "CompleteAbort": False}
"""Whether it is committed."""
NO_TIME = -1


class ListedTransaction(NamedTuple):
    """A transactional id, and the broker that coordinates it."""

    transactional_id: str
    state: str
    producer_id: int
    coordinator: int


class OpenTransaction(NamedTuple):
    """A transaction as a partition sees it: it has written from `start_offset` on, and no marker has come."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int
    last_timestamp_ms: int


def _opened(topic: str, partition: int, producer: ProducerState) -> OpenTransaction:
    return OpenTransaction(
        topic,
        partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.current_txn_start_offset,
        producer.last_timestamp,
    )


class TransactionAdmin:
    """Transactions from outside."""

    def __init__(self, router: Router) -> None:
        self._router = router

    async def list_transactions(
        self,
        *,
        states: Sequence[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Transactional ids of all brokers that pass all filters. Raises Rejected for a state that there is not."""
        request = ListTransactionsRequest(
            state_filters=list(states),
            producer_id_filters=list(producer_ids),
            duration_filter=longer_than_ms,
            transactional_id_pattern=pattern,
        )

        async def attempt() -> list[ListedTransaction]:
            found = []
            for broker in (await self._router.metadata([])).brokers:
                answer = await self._router.ask(request, ListTransactionsResponse, node=broker.node_id)
                check(answer.error_code, f"transactions of broker {broker.node_id}")
                if answer.unknown_state_filters:
                    unknown = ", ".join(answer.unknown_state_filters)
                    reason = f"there is no such state: there are {STATES}"
                    raise Rejected(ErrorCode.INVALID_REQUEST, f"state {unknown}", reason)
                found += [
                    ListedTransaction(each.transactional_id, each.transaction_state, each.producer_id, broker.node_id)
                    for each in answer.transaction_states
                ]
            return sorted(found)

        return await self._router.retrying(attempt)

    async def describe_transaction(self, transactional_id: str) -> tuple[TransactionState, int]:
        """The state of an id and its coordinator. Raises Rejected with TRANSACTIONAL_ID_NOT_FOUND."""

        async def attempt() -> tuple[TransactionState, int]:
            coordinator = await self._router.coordinator(transactional_id, TRANSACTION)
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (found,) = (
                await self._router.ask(request, DescribeTransactionsResponse, node=coordinator)
            ).transaction_states
            check(found.error_code, f"transactional id {transactional_id!r}")
            return found, coordinator

        return await self._router.retrying(attempt)

    async def open_transactions(self, topics: Sequence[str] | None = None) -> list[OpenTransaction]:
        """The transactions that have written to partitions of these topics (None: of all) and have not ended there."""

        async def attempt() -> list[OpenTransaction]:
            led: dict[int, dict[str, list[int]]] = {}
            for topic in (await self._router.metadata(topics)).topics:
                check(topic.error_code, f"topic {topic.name!r}")
                for partition in topic.partitions:
                    by_topic = led.setdefault(partition.leader_id, {})
                    by_topic.setdefault(topic.name or "", []).append(partition.partition_index)
            led.pop(-1, None)
            found = []
            for leader, asked in sorted(led.items()):
                found += await self._open_at(leader, asked)
            return sorted(found)

        return await self._router.retrying(attempt)

    async def _open_at(self, leader: int, partitions: dict[str, list[int]]) -> list[OpenTransaction]:
        request = DescribeProducersRequest(
            topics=[TopicRequest(name=name, partition_indexes=indexes) for name, indexes in partitions.items()]
        )
        found = []
        for topic in (await self._router.ask(request, DescribeProducersResponse, node=leader)).topics:
            for partition in topic.partitions:
                check(partition.error_code, f"{topic.name}[{partition.partition_index}]", partition.error_message)
                found += [
                    _opened(topic.name, partition.partition_index, producer)
                    for producer in partition.active_producers
                    if producer.current_txn_start_offset >= 0
                ]
        return found

    async def hanging_transactions(
        self, topics: Sequence[str] | None, *, now_ms: int, longer_than_ms: int
    ) -> list[OpenTransaction]:
        """Open transactions that nobody will end: no coordinator has them among the partitions of a transaction of that
        producer. `longer_than_ms` is the longest that a transaction may take: younger ones may not be known yet.
        """
        old = [
            each for each in await self.open_transactions(topics) if now_ms - each.last_timestamp_ms > longer_than_ms
        ]
        if not old:
            return []
        producer_ids = sorted({each.producer_id for each in old})
        known: set[tuple[int, TopicPartition]] = set()
        for each in await self._of_producers(producer_ids):
            known |= {(each.producer_id, (topic.topic, p)) for topic in each.topics for p in topic.partitions}
        return [each for each in old if (each.producer_id, (each.topic, each.partition)) not in known]

    async def decision(self, transaction: OpenTransaction) -> bool | None:
        """What the coordinator has decided of a transaction that is open in a partition: whether it is committed.

        None: nothing, or it does not know it any more.
        """
        # From version 2 of transactions on the epoch is raised when one ends.
        epochs = transaction.producer_epoch, transaction.producer_epoch + 1
        for each in await self._of_producers([transaction.producer_id]):
            if each.producer_id == transaction.producer_id and each.producer_epoch in epochs:
                return DECIDED.get(each.transaction_state)
        return None

    async def _of_producers(self, producer_ids: Sequence[int]) -> list[TransactionState]:
        """What the coordinators say of the transactional ids that have these producer ids."""
        listed = await self.list_transactions(producer_ids=producer_ids)
        return [(await self.describe_transaction(each.transactional_id))[0] for each in listed]

    async def abort_transaction(self, transactional_id: str) -> bool:
        """Abort an id's transaction, and fence its producer; False if there is none. As Kafka's fenceProducers does it.

        Raises Rejected with TRANSACTIONAL_ID_NOT_FOUND.
        """
        described, _ = await self.describe_transaction(transactional_id)
        if described.transaction_state != ONGOING:
            return False
        request = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=described.transaction_timeout_ms
        )

        async def attempt() -> None:
            coordinator = await self._router.coordinator(transactional_id, TRANSACTION)
            answer = await self._router.ask(request, InitProducerIdResponse, node=coordinator)
            check(answer.error_code, f"transactional id {transactional_id!r}")

        # It is being aborted until this id can be given to somebody else.
        await self._router.retrying(attempt, also=[ErrorCode.CONCURRENT_TRANSACTIONS])
        return True

    async def complete_transaction(self, prepared: PreparedTransaction, *, committed: bool = True) -> None:
        """End what `Producer.prepare` has prepared. Once more does no harm.

        Raises Rejected with INVALID_TXN_STATE when it was ended the other way, as by its time-out, and ProducerFenced
        when its transactional id has another producer.
        """
        request = EndTxnRequest(
            transactional_id=prepared.transactional_id,
            producer_id=prepared.producer_id,
            producer_epoch=prepared.producer_epoch,
            committed=committed,
        )
        subject = f"transactional id {prepared.transactional_id!r}"
        highest = END_TXN_V1 if prepared.version < 2 else None

        async def attempt() -> None:
            coordinator = await self._router.coordinator(prepared.transactional_id, TRANSACTION)
            answer = await self._router.ask(request, EndTxnResponse, node=coordinator, highest=highest)
            check(answer.error_code, subject)

        try:
            await self._router.retrying(attempt, also=[ErrorCode.CONCURRENT_TRANSACTIONS])
        except Rejected as error:
            if error.code not in FENCED:
                raise
            raise ProducerFenced(error.code, subject) from error

    async def end_in_partition(self, transaction: OpenTransaction, *, committed: bool) -> None:
        """Write the marker of a commit or an abort into one partition, whatever a coordinator thinks of it."""
        subject = f"{transaction.topic}[{transaction.partition}]"
        request = WriteTxnMarkersRequest(
            markers=[
                WritableTxnMarker(
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                    transaction_result=committed,
                    topics=[WritableTxnMarkerTopic(name=transaction.topic, partition_indexes=[transaction.partition])],
                    coordinator_epoch=max(transaction.coordinator_epoch, 0),
                )
            ]
        )

        async def attempt() -> None:
            leader = await self._router.leader(transaction.topic, transaction.partition)
            (marker,) = (await self._router.ask(request, WriteTxnMarkersResponse, node=leader)).markers
            for topic in marker.topics:
                for partition in topic.partitions:
                    check(partition.error_code, subject)

        await self._router.retrying(attempt)
