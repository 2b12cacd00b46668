"""A shard with a log, and the requests that are made of it."""

from __future__ import annotations

from raftlog.broker.core.coordinator.shared import Now
from raftlog.broker.core.transaction.config import TransactionConfig
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.end import EndedTransaction, EndTxn, complete, end_transaction
from raftlog.broker.core.transaction.expiry import abort_timed_out, expire_id
from raftlog.broker.core.transaction.initialize import InitializedProducer, InitProducerId, initialize
from raftlog.broker.core.transaction.partitions import add_partitions, verify_partitions
from raftlog.broker.core.transaction.records import TransactionRecord, decode_record, encode_record
from raftlog.broker.core.transaction.shard import TransactionCoordinatorShard
from raftlog.broker.core.transaction.state import (
    NO_PARTITIONS,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    ProducerIdentity,
    TopicPartition,
    TransactionMetadata,
    TransactionState,
)
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerEpoch, ProducerId

CONFIG = TransactionConfig(
    max_timeout_ms=900_000, id_expiration_ms=604_800_000, abort_interval_ms=10_000, expiry_interval_ms=3_600_000
)
ID = "transfers"
TIMEOUT_MS = 60_000
P0, P1, P2 = ("accounts", 0), ("accounts", 1), ("audit", 0)


def identity(producer_id: int, epoch: int) -> ProducerIdentity:
    return ProducerIdentity(ProducerId(producer_id), ProducerEpoch(epoch))


def metadata(
    state: TransactionState,
    *,
    producer_id: int = 7,
    epoch: int = 3,
    previous_producer_id: int | None = None,
    last_epoch: int = NO_PRODUCER_EPOCH,
    next_producer_id: int = NO_PRODUCER_ID,
    partitions: frozenset[TopicPartition] | None = None,
    start_ms: int = 1_000,
    client_version: int = 2,
) -> TransactionMetadata:
    has_partitions = state not in (
        TransactionState.EMPTY,
        TransactionState.COMPLETE_COMMIT,
        TransactionState.COMPLETE_ABORT,
    )
    return TransactionMetadata(
        state=state,
        producer_id=ProducerId(producer_id),
        previous_producer_id=ProducerId(producer_id if previous_producer_id is None else previous_producer_id),
        next_producer_id=ProducerId(next_producer_id),
        producer_epoch=ProducerEpoch(epoch),
        last_producer_epoch=ProducerEpoch(last_epoch),
        timeout_ms=TIMEOUT_MS,
        partitions=(frozenset({P0}) if has_partitions else NO_PARTITIONS) if partitions is None else partitions,
        start_ms=start_ms if state is not TransactionState.EMPTY else NO_TIME,
        last_update_ms=1_000,
        client_version=client_version,
    )


class World:
    """One shard. What is decided goes to the log, as bytes, and is replayed."""

    def __init__(self, transaction_version: int = 2) -> None:
        self.shard = TransactionCoordinatorShard()
        self.log: list[tuple[bytes, bytes | None]] = []
        self.now = Now(0, 1_000_000)
        self.transaction_version = transaction_version
        self.last_id = 100

    @property
    def known(self) -> TransactionMetadata:
        return self.shard.transactions[ID]

    def set(self, value: TransactionMetadata) -> None:
        """Make the id be like this, whatever was before."""
        self.shard = TransactionCoordinatorShard()
        self.shard.load(TransactionRecord(ID, value))

    def pass_ms(self, milliseconds: int) -> None:
        self.now = Now(self.now.monotonic_ms + milliseconds, self.now.wall_ms + milliseconds)

    def write(self, record: TransactionRecord) -> None:
        self.log.append(encode_record(record, self.transaction_version))
        self.shard.replay(record)
        self.shard.check_invariants()

    def _carry_out(self, decision: Decision[object]) -> None:
        for record in decision.records:
            self.write(record)

    def _new_id(self) -> ProducerId:
        self.last_id += 1
        return ProducerId(self.last_id)

    def init(self, expected: ProducerIdentity | None = None, timeout_ms: int = TIMEOUT_MS) -> InitializedProducer:
        request, version = InitProducerId(ID, timeout_ms, expected), self.transaction_version
        decision = initialize(self.shard, request, self.now, transaction_version=version)
        if isinstance(decision, Undecided):
            new_id = self._new_id()
            decision = initialize(self.shard, request, self.now, transaction_version=version, new_producer_id=new_id)
        assert not isinstance(decision, Undecided)
        self._carry_out(decision)
        return decision.response

    def add(self, producer: ProducerIdentity, *partitions: TopicPartition, client_version: int = 2) -> ErrorCode:
        decision = add_partitions(self.shard, ID, producer, partitions, self.now, client_version=client_version)
        self._carry_out(decision)
        return decision.response

    def verify(self, producer: ProducerIdentity, *partitions: TopicPartition) -> dict[TopicPartition, ErrorCode]:
        decision = verify_partitions(self.shard, ID, producer, partitions)
        self._carry_out(decision)
        return decision.response

    def end(self, producer: ProducerIdentity, committed: bool, client_version: int = 2) -> EndedTransaction:
        request = EndTxn(ID, producer, committed, client_version)
        decision = end_transaction(self.shard, request, self.now)
        if isinstance(decision, Undecided):
            decision = end_transaction(self.shard, request, self.now, new_producer_id=self._new_id())
        assert not isinstance(decision, Undecided)
        self._carry_out(decision)
        return decision.response

    def time_out(self) -> bool:
        version = self.transaction_version
        decision = abort_timed_out(self.shard, ID, self.now, transaction_version=version, new_producer_id=None)
        if isinstance(decision, Undecided):
            new_id = self._new_id()
            decision = abort_timed_out(self.shard, ID, self.now, transaction_version=version, new_producer_id=new_id)
        assert not isinstance(decision, Undecided)
        self._carry_out(decision)
        return decision.response

    def complete(self) -> None:
        """All markers are written."""
        self.write(complete(ID, self.known, self.now))

    def expire(self) -> bool:
        records = expire_id(CONFIG, self.shard, ID, self.now)
        for record in records:
            self.write(record)
        return bool(records)


def loaded(log: list[tuple[bytes, bytes | None]]) -> TransactionCoordinatorShard:
    """What the next coordinator makes of a log: of each key the last record."""
    shard = TransactionCoordinatorShard()
    for key, value in dict(log).items():
        if value is not None:
            record = decode_record(key, value)
            assert record is not None
            shard.load(record)
    shard.check_invariants()
    return shard
