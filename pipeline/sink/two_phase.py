"""The driver's half of a two-phase commit: it decides once which transactions of its tasks are a micro-batch.

The order is what makes it safe. To take the driver's transactional id fences every earlier driver; only then is the
last decision read. What it names is committed, by whoever comes first, and once more does no harm. All else that is
open under the sinkId belongs to attempts that were given up, and is aborted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from raftlog.client.admin import Admin
from raftlog.client.core.errors import KafkaError, Rejected
from raftlog.client.core.progress import Position
from raftlog.client.core.transaction import PreparedTransaction
from raftlog.client.producer import Producer
from raftlog.client.transaction_admin import ONGOING
from raftlog.pipeline.session import Session, session
from raftlog.pipeline.sink.decision import (
    Decision,
    TransactionLost,
    check_switch,
    driver_id,
    group_of,
    is_decided,
    is_task,
    plan,
)
from raftlog.pipeline.sink.options import TWO_PHASE, SinkOptions
from raftlog.pipeline.sink.owner import Owner, find_decision, find_markers
from raftlog.pipeline.sink.tasks import Result
from raftlog.wire.errors import ErrorCode

COMMITTED = ("PrepareCommit", "CompleteCommit")


class Written(NamedTuple):
    """What the tasks of a micro-batch say."""

    sink_id: str
    query: str
    batch: int
    run: str
    results: Sequence[Result]

    @property
    def prepared(self) -> dict[str, PreparedTransaction]:
        return {each.prepared.transactional_id: each.prepared for each in self.results if each.prepared is not None}

    @property
    def decision(self) -> Decision:
        """The one that they ask for."""
        slots = sorted(int(name.rpartition(":")[2]) for name in self.prepared)
        version = max((each.version for each in self.prepared.values()), default=2)
        return Decision(self.query, self.batch, self.run, tuple(slots), version)


def commit(options: SinkOptions, written: Written) -> None:
    """Make the rows of all tasks seen. Raises KafkaError, SinkInUse, ProtocolChanged, TransactionLost, TooManyTasks."""
    if any(each.prepared is not None or each.was_written for each in written.results):
        running = session(options.connection)
        running.run(Driver(running, options, written).commit())


def abort(options: SinkOptions, written: Written) -> None:
    """Take back what tasks have prepared, unless it was decided before. Raises KafkaError, SinkInUse."""
    if written.prepared:
        running = session(options.connection)
        running.run(Driver(running, options, written).abort())


class Driver:
    """Of one micro-batch."""

    def __init__(self, running: Session, options: SinkOptions, written: Written) -> None:
        self._written = written
        self._owner = Owner(running, options, written.sink_id, written.query, written.batch)
        self._router = running.router
        self._admin: Admin = running.client.admin
        self._running = running
        self._options = options

    async def commit(self) -> None:
        written = self._written
        async with await self._producer() as producer:
            await producer.begin()
            found = await find_decision(self._router, written.sink_id)
            if found is None and written.prepared:
                await self._owner.claim(self._topic)  # it was recorded when the tasks wrote, and that has expired
            if found is None or found.run != written.run:
                await self._check_switch()
            listed = await self._admin.list_transactions(states=[ONGOING])
            ongoing = {each.transactional_id for each in listed if is_task(written.sink_id, each.transactional_id)}
            todo = plan(found, written.decision, written.sink_id, ongoing)
            for name in todo.commit_first:
                await self._complete(name, found)
            if todo.decide is not None:
                for name, prepared in written.prepared.items():
                    await self._check_open(name, prepared, ongoing)
                await self._decide(producer, todo.decide)
        for name in todo.commit:
            await self._complete(name, todo.decide or found)
        for name in todo.abort:
            await self._admin.abort_transaction(name)

    async def abort(self) -> None:
        written = self._written
        async with await self._producer() as producer:
            await producer.begin()
            found = await find_decision(self._router, written.sink_id)
            if is_decided(found, written.sink_id, written.query, written.batch):
                return
            for name in written.prepared:
                await self._admin.abort_transaction(name)

    async def _producer(self) -> Producer:
        return await self._running.producer(self._options.producer, driver_id(self._written.sink_id))

    @property
    def _topic(self) -> str:
        """One that is written to."""
        return min(each.topic for each in self._written.results if each.topic is not None)

    async def _check_switch(self) -> None:
        """Tasks have not committed this micro-batch by themselves, under the other protocol. Raises ProtocolChanged."""
        written = self._written
        for marker in await find_markers(self._admin, self._router, written.sink_id):
            check_switch(marker.batch, written.batch, written.sink_id, TWO_PHASE)

    async def _check_open(self, name: str, prepared: PreparedTransaction, ongoing: set[str]) -> None:
        """Nothing is decided that could not be committed any more. Raises TransactionLost."""
        if name in ongoing:
            return
        described, _ = await self._admin.describe_transaction(name)
        if described.transaction_state != ONGOING or described.producer_id != prepared.producer_id:
            raise TransactionLost(
                f"the transaction of task {name!r} is in state {described.transaction_state}, before the driver has "
                "decided: perhaps it took longer than kafka.transaction.timeout.ms. Nothing of this batch was written; "
                "start the query again, with a longer time-out or smaller batches"
            )

    async def _decide(self, producer: Producer, decision: Decision) -> None:
        """From here on the micro-batch is written."""
        position = Position(decision.offset, metadata=decision.metadata())
        await producer.send_positions({(self._topic, 0): position}, group_of(self._written.sink_id))
        await producer.commit()

    async def _complete(self, name: str, decision: Decision | None) -> None:
        """Commit what was decided. Raises TransactionLost when that cannot be done any more."""
        assert decision is not None
        prepared = self._written.prepared.get(name)
        if prepared is not None:
            try:
                await self._admin.complete_transaction(prepared)
            except KafkaError as error:
                if error.retriable:
                    raise
            else:
                return
        try:
            described, _ = await self._admin.describe_transaction(name)
            state = described.transaction_state
        except Rejected as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
            state = "not known"
        if state == ONGOING:
            known = PreparedTransaction(name, described.producer_id, described.producer_epoch, decision.version)
            await self._admin.complete_transaction(known)
        elif state not in COMMITTED:
            raise TransactionLost(
                f"the transaction of task {name!r} was decided to be committed, and its state is {state}: the driver "
                "was away for longer than kafka.transaction.timeout.ms, or somebody else ended it. Rows of batch "
                f"{decision.batch} are missing: read them again from the source with another query"
            )
