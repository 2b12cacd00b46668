"""Transactions on the wire: asks the coordinator what the transaction's state machine wants to know from it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from typing import Any, TypeVar

from raftlog.client.core.accumulator import Accumulator
from raftlog.client.core.errors import KafkaError, Rejected, TimedOut, WrongState, check
from raftlog.client.core.metadata import TopicPartition
from raftlog.client.core.producer_batch import ProducerIdentity
from raftlog.client.core.progress import Position
from raftlog.client.core.settings import ProducerSettings
from raftlog.client.core.transaction import PreparedTransaction, State, Step, Transaction
from raftlog.client.offsets import GroupMember, by_topic, positions_by_topic
from raftlog.client.router import GROUP, TRANSACTION, Router
from raftlog.client.sender import Sender
from raftlog.wire.apis import ApiKey
from raftlog.wire.errors import ErrorCode
from raftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from raftlog.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from raftlog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from raftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from raftlog.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

T = TypeVar("T")
LANE = "transaction"
FEATURE = "transaction.version"
# The newest versions of each API with which a client does not say that it speaks transactions version 2.
PRODUCE_V1, END_TXN_V1, OFFSET_COMMIT_V1 = 11, 4, 4
AGAIN = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION})
NOTHING_DONE = frozenset({ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
"""A coordinator that answers so has neither ended the transaction nor will."""


class TransactionNumbering:
    """The producer's side of its transactions, and `Sender`'s Numbering."""

    def __init__(self, router: Router, accumulator: Accumulator, sender: Sender, settings: ProducerSettings) -> None:
        assert settings.transactional_id is not None
        self.transactional_id: str | None = settings.transactional_id
        self.core = Transaction(settings.transactional_id)
        self._id = settings.transactional_id
        self._router = router
        self._accumulator = accumulator
        self._sender = sender
        self._settings = settings
        self._began = 0.0
        self._is_ending = False
        """Whether what was sent is waited for, to end the transaction then."""
        self._is_abandoned = False
        """Whether it was to be aborted, and nobody knows yet that it is."""
        accumulator.transactional = True

    # What the sender asks.

    @property
    def identity(self) -> ProducerIdentity | None:
        return self.core.identity

    @property
    def held(self) -> Collection[TopicPartition]:
        return self.core.to_add

    @property
    def produce_version_max(self) -> int | None:
        return PRODUCE_V1 if self.core.version < 2 else None

    def check_usable(self) -> None:
        self.core.check_can_send()
        if self._is_ending or self._is_abandoned:
            raise WrongState("the transaction is about to end: it takes no more records")

    def prepare(self) -> Coroutine[Any, Any, None] | None:
        return self._add_partitions() if self.core.to_add and self.core.state is State.OPEN else None

    def lost(self, partition: TopicPartition, failure: KafkaError, gap: bool) -> None:
        broken = self.core.failed(failure, Step.PRODUCE, gap=gap)
        self._accumulator.fail_unsent(broken)

    # What the user asks.

    async def initialize(self) -> None:
        """Get an id and an epoch; whatever an earlier producer with this transactional id left open is aborted."""
        if self.core.state is not State.NEW:
            self.core.check_usable()
            return
        identity = self.core.identity or ProducerIdentity(-1, -1)
        request = InitProducerIdRequest(
            transactional_id=self._id,
            transaction_timeout_ms=int(self._settings.transaction_timeout * 1000),
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
        )

        async def attempt() -> InitProducerIdResponse:
            answer = await self._ask(request, InitProducerIdResponse)
            check(answer.error_code, f"transactional id {self._id!r}")
            return answer

        answer = await self._retrying(attempt, Step.INITIALIZE)
        given = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        self.core.initialized(given, await self._version())
        self._accumulator.reset()

    async def begin(self) -> None:
        """One that could not be aborted in time is aborted first."""
        if self._is_abandoned and (self.core.is_open or self.core.state is State.ABORTING):
            await self.abort()
        self._is_abandoned = False  # it may have ended, and only the next epoch was not given any more
        await self.initialize()
        self.core.begin()
        self._began = time.monotonic()

    def _overdue(self) -> str | None:
        lasted, limit = time.monotonic() - self._began, self._settings.transaction_timeout
        if not self.core.is_begun or lasted < limit:
            return None
        return f"the coordinator has aborted it: it lasted {lasted:.1f} s, and transaction_timeout is {limit:g} s"

    async def commit(self) -> None:
        """Raises TransactionFailed when it has to be aborted, TimedOut when the outcome is not known yet.

        After TimedOut, `commit` may be called again to learn it. With an error that is `in_doubt` it stays unknown.
        """
        if self.core.state is not State.COMMITTING:
            self.check_usable()
            await self._drained()
            tell = self.core.end(committed=True)
        else:
            tell = self.core.is_begun
        await self._finish(committed=True, tell=tell)

    async def prepare_transaction(self) -> PreparedTransaction:
        """Wait until all of it is stored, and leave it open. Raises what `commit` raises."""
        self.check_usable()
        await self._drained()
        return self.core.prepare()

    async def abort(self) -> None:
        """What was not sent yet fails; what was sent is never seen by a reader of committed records."""
        if self.core.state is not State.ABORTING:
            self.core.check_usable()
            self._is_abandoned = self.core.is_open
            self._accumulator.fail_unsent(self.core.failure or KafkaError("the transaction was aborted"))
            self._sender.on_progress()
            await self._drained()
            tell = self.core.end(committed=False)
        else:
            tell = self.core.is_begun
        await self._finish(committed=False, tell=tell)
        self._is_abandoned = False

    async def send_positions(self, positions: Mapping[TopicPartition, Position], member: GroupMember) -> None:
        """Commit where a group stands as part of the transaction."""
        self.check_usable()
        if not positions:
            return  # of nothing the coordinator never hears, and would not know a transaction with nothing else
        group = member.group
        if self.core.version < 2 and not self.core.has_group(group):
            await self._retrying(lambda: self._add_group(group), Step.COORDINATE)
        self.core.group_added(group)
        await self._retrying(lambda: self._commit_positions(positions, member), Step.COORDINATE)

    async def _finish(self, *, committed: bool, tell: bool) -> None:
        given: ProducerIdentity | None = None
        if tell:
            answer = await self._retrying(lambda: self._end(committed), Step.COORDINATE)
            if self.core.version >= 2 and answer.producer_id >= 0:
                given = ProducerIdentity(answer.producer_id, answer.producer_epoch)
        before = self.core.identity
        needs_epoch = self.core.ended(given)
        if needs_epoch:
            await self.initialize()
        elif self.core.identity != before:
            self._accumulator.reset()

    async def _end(self, committed: bool) -> EndTxnResponse:
        assert self.core.identity is not None
        request = EndTxnRequest(
            transactional_id=self._id,
            producer_id=self.core.identity.producer_id,
            producer_epoch=self.core.identity.epoch,
            committed=committed,
        )
        try:
            answer = await self._ask(request, EndTxnResponse, highest=END_TXN_V1 if self.core.version < 2 else None)
            check(answer.error_code, f"transactional id {self._id!r}")
        except KafkaError as error:
            if error.retriable and error.code not in NOTHING_DONE:
                self.core.end_unanswered()
            raise
        except asyncio.CancelledError:
            self.core.end_unanswered()  # also when its time was over
            raise
        return answer

    async def _add_partitions(self) -> None:
        wanted = set(self.core.to_add)
        topics = by_topic(sorted(wanted))
        assert self.core.identity is not None
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self.core.identity.producer_id,
            v3_and_below_producer_epoch=self.core.identity.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        self.core.maybe_added(wanted)

        async def attempt() -> None:
            answer = await self._ask(request, AddPartitionsToTxnResponse)
            for topic in answer.results_by_topic_v3_and_below:
                for each in topic.results_by_partition:
                    if each.partition_error_code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                        check(each.partition_error_code, f"{topic.name}[{each.partition_index}]")

        try:
            await self._retrying(attempt, Step.COORDINATE)
        except KafkaError as error:
            self.core.to_add -= wanted
            self._accumulator.fail_unsent(self.core.failed(error, Step.COORDINATE))
            raise
        self.core.added(wanted)

    async def _add_group(self, group: str) -> None:
        assert self.core.identity is not None
        request = AddOffsetsToTxnRequest(
            transactional_id=self._id,
            producer_id=self.core.identity.producer_id,
            producer_epoch=self.core.identity.epoch,
            group_id=group,
        )
        self.core.group_added(group)
        answer = await self._ask(request, AddOffsetsToTxnResponse)
        check(answer.error_code, f"group {group!r}")

    async def _commit_positions(self, positions: Mapping[TopicPartition, Position], member: GroupMember) -> None:
        assert self.core.identity is not None
        topics = positions_by_topic(positions, TxnOffsetCommitRequestPartition)
        request = TxnOffsetCommitRequest(
            transactional_id=self._id,
            group_id=member.group,
            producer_id=self.core.identity.producer_id,
            producer_epoch=self.core.identity.epoch,
            generation_id=member.generation,
            member_id=member.member_id,
            group_instance_id=member.group_instance_id,
            topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        )
        node = await self._router.coordinator(member.group, GROUP)
        connection = await self._router.connection(node, lane=LANE)
        highest = OFFSET_COMMIT_V1 if self.core.version < 2 else None
        answer = await connection.request(
            request, TxnOffsetCommitResponse, self._settings.request_timeout, highest=highest
        )
        for answered in answer.topics:
            for each in answered.partitions:
                check(each.error_code, f"group {member.group!r}, {answered.name}[{each.partition_index}]")

    async def _ask(self, request: Any, reply: type[T], *, highest: int | None = None) -> T:
        node = await self._router.coordinator(self._id, TRANSACTION)
        connection = await self._router.connection(node, lane=LANE)
        answer: T = await connection.request(
            request,
            reply,  # type: ignore[type-var]
            self._settings.request_timeout,
            highest=highest,
        )
        return answer

    async def _version(self) -> int:
        """The version of transactions that cluster and client have in common."""
        node = await self._router.coordinator(self._id, TRANSACTION)
        connection = await self._router.connection(node, lane=LANE)
        can = connection.serves(ApiKey.END_TXN, END_TXN_V1 + 1) and connection.serves(ApiKey.PRODUCE, PRODUCE_V1 + 1)
        return 2 if can and connection.features.get(FEATURE, 0) >= 2 else 1

    async def _retrying(self, attempt: Callable[[], Awaitable[T]], step: Step) -> T:
        """What cannot be mended by trying again becomes the transaction's failure."""
        try:
            return await self._router.retrying(attempt, also=AGAIN)
        except Rejected as error:
            if error.retriable or error.code in AGAIN:
                raise
            raise self.core.failed(error, step, overdue=self._overdue()) from error

    async def _drained(self) -> None:
        """All of it has an outcome, and nothing has come behind it."""
        seconds = self._router.timeout
        self._is_ending = True
        try:
            async with asyncio.timeout(seconds):
                await self._sender.drained()
        except TimeoutError:
            raise TimedOut(f"the records of the transaction were not taken within {seconds:g} s") from None
        finally:
            self._is_ending = False
