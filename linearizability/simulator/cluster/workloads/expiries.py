"""Transactional ids and producer ids that nobody uses for a while are forgotten, and their producers go on."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from random import Random

from raftlog.broker.core.transaction.records import decode_record
from raftlog.broker.core.transaction.state import TransactionMetadata
from raftlog.linearizability.checker.history import OK
from raftlog.linearizability.simulator.cluster.client import Producer
from raftlog.linearizability.simulator.cluster.simulated_broker import KAFKA_PORT, host_of
from raftlog.linearizability.simulator.cluster.transactional_client import (
    Failed,
    Transaction,
    TransactionalProducer,
)
from raftlog.linearizability.simulator.cluster.workloads.transfers import PARTITIONS, TRANSACTION_TOPIC, Transfers
from raftlog.linearizability.simulator.cluster.workloads.workloads import WorkloadContext
from raftlog.wire.batch import BatchHeader, decode_batch
from raftlog.wire.messages.list_transactions import ListTransactionsRequest

ID_EXPIRATION_MS = 1_500
PRODUCER_EXPIRATION_MS = 10_000
"""Longer than any request of a producer may be under way: what comes again must be known again."""
BEYOND_SECONDS = PRODUCER_EXPIRATION_MS / 1000 + 1.0
LIST_VERSION = 1
PATIENCE_SECONDS = 3.0
SETTINGS = {
    "transactional.id.expiration.ms": str(ID_EXPIRATION_MS),
    "transaction.remove.expired.transaction.cleanup.interval.ms": "100",
    "producer.id.expiration.ms": str(PRODUCER_EXPIRATION_MS),
}
EXPIRED = "INVALID_PRODUCER_ID_MAPPING"
_LOST = ("OUT_OF_ORDER_SEQUENCE_NUMBER", "UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "INVALID_TXN_STATE", EXPIRED)
"""What nobody may hear who did nothing but wait."""


class Expiries(Transfers):
    """As Transfers, with pauses. An id is forgotten when nobody has used it for long, and not before; whoever used it
    last writes nothing under it then; who has a transaction open is not forgotten however long it takes; who is
    forgotten by a partition goes on with its next sequence; in the end no id is left, in no broker and in no log.
    """

    kind = "expiries"
    timeouts_ms = (1_200, 30_000)

    def __init__(self, context: WorkloadContext, number: int) -> None:
        super().__init__(context, number)
        self._idle_topic = f"{self.topic}.idle"

    async def run(self) -> None:
        """See Workload."""
        await super().run()
        for node in self.context.nodes:
            while await self._listed(node):
                await asyncio.sleep(0.2)

    def others(self, version: int) -> Sequence[Coroutine[None, None, None]]:
        """See Transfers."""
        return self._wait_in_transaction(version), self._wait_between_batches()

    def rest_seconds(self, random: Random) -> float:
        """See Transfers: now and then about as long as ids are kept."""
        return 2 * ID_EXPIRATION_MS / 1000 * random.random() if random.random() < 0.3 else super().rest_seconds(random)

    def refused(self, producer: TransactionalProducer, transaction: Transaction, code: str) -> None:
        """See Transfers."""
        if code != EXPIRED:
            return
        self.count("ids that expired")
        after_ms = (producer.now() - producer.confirmed) // 1_000_000
        # A coordinator that was deposed and does not know it yet has never heard of an id that is new since.
        kept = self.context.invariants.coordinated(transaction.transactional_id)
        if after_ms < ID_EXPIRATION_MS and not any(one.producer_id == transaction.producer_id for one in kept):
            self.fail("expiry", f"{transaction}: its id is forgotten {after_ms} ms after it was used")

    async def _wait_in_transaction(self, version: int) -> None:
        """A transaction that is open for longer than producers are remembered."""
        ways = self.context.ways(f"{self.topic}.waiting")
        name = f"{self.topic}-waiting"
        producer = TransactionalProducer(ways, name, self.topic, version=version, timeout_ms=self.timeouts_ms[-1])
        while True:
            if not producer.is_ready and not await producer.initialize():
                await asyncio.sleep(0.1)
                continue
            transaction = producer.begin()
            self.transactions.append(transaction)
            try:
                await producer.send(transaction, ways.random.randrange(PARTITIONS), self.log.values(1))
                break
            except Failed:
                await producer.end(transaction, commit=False)
                producer.give_up()
        await asyncio.sleep(BEYOND_SECONDS)
        await producer.end(transaction, commit=ways.random.random() < 0.5)
        if producer.refused in _LOST:
            self.fail("expiry", f"{transaction} was open for {BEYOND_SECONDS} s: {producer.refused}")
        self.counts["transactions open for long"] = not producer.refused

    async def _wait_between_batches(self) -> None:
        """An idempotent producer that has nothing to send for longer than it is remembered."""
        await self.create({}, topic=self._idle_topic)
        ways = self.context.ways(f"{self._idle_topic}.producer")
        producer = Producer(ways, self.log, self._idle_topic, idempotent=True)
        while (await producer.append(0, ways.random.randint(1, 3), PATIENCE_SECONDS)).outcome is not OK:
            pass
        await asyncio.sleep(BEYOND_SECONDS)
        operation = await producer.append(0, 1, PATIENCE_SECONDS)
        if operation.error in _LOST:
            self.fail("expiry", f"{operation} after {BEYOND_SECONDS} s without a batch: {operation.error}")
        self.counts["producers idle for long"] = operation.outcome is OK

    async def _listed(self, node: int) -> bool:
        """Whether a broker knows of one of the ids, or does not say."""
        client = await self.connected(self.ways, (host_of(node), KAFKA_PORT))
        answer = await self.ask(ListTransactionsRequest(), LIST_VERSION, client) if client is not None else None
        if answer is None or answer.error_code:
            return True
        names = self._names()
        return any(state.transactional_id in names for state in answer.transaction_states)

    def _names(self) -> set[str]:
        """The ids; other workloads have their own, and may use them still."""
        return {transaction.transactional_id for transaction in self.transactions}

    def judge(self) -> None:
        """See Workload."""
        super().judge()
        self._judge_log()
        operations = [op for op in self.log.operations if op.process == f"{self._idle_topic}.producer"]
        _, values = self.context.invariants.values(self._idle_topic, 0)
        self.judge_log(operations, values, 0)

    def _judge_log(self) -> None:
        """Whoever reads the coordinators' log knows no id any more, either."""
        for topic, partition in self.hunted:
            if topic == TRANSACTION_TOPIC:
                for name in self._names().intersection(_left_in(self.context.invariants.batches(topic, partition))):
                    self.fail("expiry", f"{name} is forgotten by all brokers, and not in {topic}-{partition}")


def _left_in(batches: Iterable[tuple[BatchHeader, bytes]]) -> list[str]:
    """The ids of which a new coordinator would know."""
    last: dict[str, TransactionMetadata | None] = {}
    for header, data in batches:
        records = [] if header.is_control else decode_batch(data)
        last.update(found for each in records if (found := decode_record(each.key or b"", each.value)) is not None)
    return [name for name, value in last.items() if value is not None]
