"""One partition of `__transaction_state` that this broker leads, with the transactional ids in it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TypeVar

from raftlog.broker.core.coordinator.shared import NEVER, TRANSACTION_TOPIC, Now
from raftlog.broker.core.transaction.config import TransactionConfig
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.core.transaction.end import complete
from raftlog.broker.core.transaction.expiry import abort_timed_out, expire_id, has_timed_out
from raftlog.broker.core.transaction.markers import EndingTransaction
from raftlog.broker.core.transaction.records import TransactionRecord, decode_record, encode_record
from raftlog.broker.core.transaction.shard import TransactionCoordinatorShard
from raftlog.broker.core.transaction.state import IS_ENDING, TopicPartition, TransactionMetadata, TransactionState
from raftlog.broker.runtime.coordinator_host import CoordinatorHost, CoordinatorPartition
from raftlog.broker.runtime.timer_wheel import TimedWait, TimerWheel
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId

log = logging.getLogger("raftlog.transactions")

COMMIT_TIMEOUT_MS = 30_000
"""How long an answer waits for its record to be replicated: as long as clients wait for an answer."""

RETRY_SECONDS = 0.1
"""How long to wait when the log takes no record, or does not commit one in time."""

REMOVALS_TOGETHER = 100
"""How many expired ids are removed with one append."""

D = TypeVar("D")


class TransactionHost(CoordinatorHost[TransactionRecord]):
    """The shard, its requests, and what follows from its decisions.

    Invariant: once loaded, each transaction that is ending waits for its record to be committed, or its markers are
    being written (`begin_markers` was called), or its completion is about to be written.
    """

    def __init__(
        self,
        index: int,
        partition: CoordinatorPartition,
        clock: Callable[[], Now],
        timers: TimerWheel,
        *,
        config: TransactionConfig,
        transaction_version: Callable[[], int],
        begin_markers: Callable[[EndingTransaction], None],
        cancel_markers: Callable[[int], None],
        remaining_partitions: Callable[[str, int], Iterable[TopicPartition] | None],
    ) -> None:
        """`transaction_version` is the cluster's. `begin_markers` has markers written in all partitions of a
        transaction, after which `complete` is called.
        """
        self.index = index
        self.shard = TransactionCoordinatorShard()
        super().__init__(
            f"{TRANSACTION_TOPIC}-{index}",
            partition,
            clock,
            timers,
            next_look_ms=lambda: NEVER,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
        )
        self._config = config
        self.transaction_version = transaction_version
        self._begin_markers = begin_markers
        self._cancel_markers = cancel_markers
        self._remaining_partitions = remaining_partitions
        # Who waits for a transaction to end. They need no limit: each is a request, and its connection has one.
        self._until_ended: dict[str, dict[TimedWait, None]] = {}
        self._to_resume: list[tuple[str, TransactionMetadata]] = []

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────

    def execute(
        self, decision: Decision[D], respond: Callable[[D], None], refuse: Callable[[ErrorCode], None]
    ) -> None:
        """Write what was decided and answer when it is committed; then write the markers of what has ended."""
        known = self.shard.transactions
        ending = [
            (transactional_id, value)
            for transactional_id, value in decision.records
            if value is not None and value.state in IS_ENDING and known.get(transactional_id) is not value
        ]
        self.commit(decision, respond, refuse)
        for transactional_id, value in ending:
            self.end_when_committed(transactional_id, value)

    def end_when_committed(self, transactional_id: str, decided: TransactionMetadata) -> None:
        """Write the markers of a transaction as soon as nobody can undo the decision. Does nothing if the record was
        not written.
        """
        if self.shard.transactions.get(transactional_id) is decided and not self.is_closed:
            self.on_committed(partial(self._end, transactional_id, decided))

    def _end(self, transactional_id: str, decided: TransactionMetadata, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            # It may yet be committed, even if the client was told that this takes too long.
            self._later(partial(self.end_when_committed, transactional_id, decided))
            return
        self._begin_markers(
            EndingTransaction(
                self.index,
                transactional_id,
                decided.partitions,
                producer_id=decided.producer_id,
                producer_epoch=decided.producer_epoch,
                committed=decided.state is TransactionState.PREPARE_COMMIT,
                coordinator_epoch=self.leader_epoch,
                transaction_version=decided.client_version,
            )
        )

    def _later(self, work: Callable[[], None]) -> None:
        """Try again in a while, unless this broker leads the partition no more by then."""

        def done(error: ErrorCode) -> None:
            if error is ErrorCode.REQUEST_TIMED_OUT:
                work()

        if not self.is_closed:
            self._wait(RETRY_SECONDS, done)

    def complete(self, transaction: EndingTransaction) -> None:
        """All its markers are written."""
        transactional_id = transaction.transactional_id
        known = self.shard.transactions.get(transactional_id)
        if known is None or known.state not in IS_ENDING or known.producer_epoch != transaction.producer_epoch:
            return
        error = self.append([complete(transactional_id, known, self.now())])
        if error is not ErrorCode.NONE:
            self._later(partial(self.complete, transaction))
            return
        for wait in list(self._until_ended.pop(transactional_id, ())):
            wait.done(ErrorCode.NONE)

    def on_ended(self, transactional_id: str, seconds: float, callback: Callable[[ErrorCode], None]) -> None:
        """Call back when the transaction that is ending has ended, with NONE if well; at the latest after so many
        seconds.
        """
        waits = self._until_ended.setdefault(transactional_id, {})

        def done(error: ErrorCode) -> None:
            waits.pop(wait, None)
            callback(error)

        wait = self._wait(seconds, done)
        waits[wait] = None

    def unfinished_partitions(self, transactional_id: str) -> Iterable[TopicPartition]:
        """The partitions of an id's transaction, without those that have its marker already."""
        remaining = self._remaining_partitions(transactional_id, self.index)
        return self.shard.transactions[transactional_id].partitions if remaining is None else remaining

    # ── what a coordinator's host asks ────────────────────────────────────────────────────────────────────

    def encode(self, record: TransactionRecord) -> tuple[bytes, bytes | None]:
        """See CoordinatorHost."""
        return encode_record(record, self.transaction_version())

    decode = staticmethod(decode_record)

    def replay(self, record: TransactionRecord) -> None:
        """See CoordinatorHost."""
        if self.is_loaded:
            self.shard.replay(record)
        else:
            self.shard.load(record)

    def restore(self) -> Iterator[None]:
        """See CoordinatorHost. From here on new decisions take care of themselves; see `resume` for these."""
        self._to_resume = [(name, self.shard.transactions[name]) for name in self.shard.ending]
        yield from ()

    def tick(self) -> None:
        """See CoordinatorHost. Deadlines are in the records; see `TransactionCoordinator`."""

    def too_large(self, record: TransactionRecord) -> str:
        """See CoordinatorHost."""
        return (
            f"transactional.id={record.transactional_id} has too many partitions in one transaction to be stored. Use"
            f" fewer, or raise max.message.bytes of the topic {TRANSACTION_TOPIC}"
        )

    def contents(self) -> str:
        """See CoordinatorHost."""
        return f"transactional_ids={len(self.shard.transactions)}"

    def close(self, error: ErrorCode) -> None:
        """See CoordinatorHost. Who leads the partition next goes on with the markers."""
        self._cancel_markers(self.index)
        super().close(error)

    # ── upkeep ────────────────────────────────────────────────────────────────────────────────────────────

    def resume(self) -> Iterator[None]:
        """Go on with the transactions that another coordinator was ending, one at each step."""
        to_resume, self._to_resume = self._to_resume, []
        for transactional_id, decided in to_resume:
            self.end_when_committed(transactional_id, decided)
            yield

    def timed_out(self) -> list[str]:
        """The ids whose transactions have taken too long."""
        now, transactions = self.now(), self.shard.transactions
        return [name for name in self.shard.ongoing if has_timed_out(transactions[name], now)]

    def abort_timed_out(self, transactional_id: str, new_producer_id: ProducerId | None) -> Decision[bool] | Undecided:
        """Decide to abort a transaction, if it has taken too long."""
        return abort_timed_out(
            self.shard,
            transactional_id,
            self.now(),
            transaction_version=self.transaction_version(),
            new_producer_id=new_producer_id,
        )

    def remove_expired(self) -> Iterator[None]:
        """Forget the ids that have expired by now, a few at each step."""
        ids = list(self.shard.transactions)
        for first in range(0, len(ids), REMOVALS_TOGETHER):
            if self.is_closed:
                return
            now = self.now()
            removals: list[TransactionRecord] = []
            for transactional_id in ids[first : first + REMOVALS_TOGETHER]:
                removals += expire_id(self._config, self.shard, transactional_id, now)
            if removals and self.append(removals) is ErrorCode.NONE:
                log.info("partition=%s transactional ids expired: %d", self.name, len(removals))
            yield
