"""The transaction coordinator of a running broker: transactional ids, kept in `__transaction_state`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from raftlog.broker.core.coordinator.shared import TRANSACTION_TOPIC, coordinator_error
from raftlog.broker.core.transaction.config import TransactionConfig
from raftlog.broker.core.transaction.decision import Decision, Undecided
from raftlog.broker.runtime.coordinator_runtime import CoordinatorRuntime, Metadata, Partitions
from raftlog.metadata.feature_levels import TRANSACTION_VERSION
from raftlog.wire.errors import ErrorCode
from raftlog.wire.ids import ProducerId

if TYPE_CHECKING:
    from raftlog.broker.core.transaction.markers import EndingTransaction
    from raftlog.broker.ports import Clock
    from raftlog.broker.runtime.broker_requests import BrokerRequests
    from raftlog.broker.runtime.coordinator_host import CoordinatorPartition
    from raftlog.broker.runtime.timer_wheel import TimerWheel
    from raftlog.broker.runtime.transaction_host import TransactionHost
    from raftlog.broker.runtime.transaction_markers import TransactionMarkers
    from raftlog.metadata.delta import MetadataDelta
    from raftlog.metadata.image import MetadataImage

log = logging.getLogger("raftlog.transactions")

MARKERS_TIMEOUT_SECONDS = 40.0
"""How long a broker may take to write markers before they are sent again: longer than it waits for their commit."""

CLIENT_WAIT_SECONDS = 0.2
"""How long a client may wait for the markers of its transaction before."""

BROKER_WAIT_SECONDS = 0.02
"""The same for a broker, whose request may be for the transactions of others, too."""

D = TypeVar("D")

Decide = Callable[["TransactionHost", ProducerId | None], Decision[D] | Undecided]
"""Decides on the state of a host, with a producer id that nobody has had if one was asked for."""


class TransactionCoordinator(CoordinatorRuntime["TransactionHost"]):
    """All transactional ids of this broker. Requests come through `decide`, or `run` if they change nothing."""

    host_module = "raftlog.broker.runtime.transaction_host"

    def __init__(
        self,
        config: Mapping[str, Any],
        *,
        metadata: Metadata,
        partitions: Partitions,
        clock: Clock,
        loop: asyncio.AbstractEventLoop,
        timers: TimerWheel,
        requests: BrokerRequests,
        new_producer_id: Callable[[], Coroutine[Any, Any, tuple[ErrorCode, int]]],
    ) -> None:
        """`config` has Kafka's names. `new_producer_id` gives one that nobody has had."""
        super().__init__(
            TRANSACTION_TOPIC, config["node.id"], metadata=metadata, partitions=partitions, clock=clock, loop=loop
        )
        self.config = transaction_config(config)
        self._timers = timers
        self._requests = requests
        self._new_producer_id = new_producer_id
        self._markers: TransactionMarkers | None = None

    def start(self) -> None:
        """See CoordinatorRuntime. Transactions time out, and ids expire, from now on."""
        super().start()
        self.spawn(self.look_for_ever(self.config.abort_interval_ms, self._abort_timed_out))
        self.spawn(self.look_for_ever(self.config.expiry_interval_ms, lambda host: host.remove_expired()))

    @property
    def transaction_version(self) -> int:
        """The cluster's."""
        return self._metadata.image.features.get(TRANSACTION_VERSION, 0)

    @property
    def markers(self) -> TransactionMarkers:
        """What has markers written; made when it is first needed."""
        if self._markers is None:
            from raftlog.broker.runtime.transaction_markers import TransactionMarkers

            self._markers = TransactionMarkers(
                self._requests.sender("transaction-markers", MARKERS_TIMEOUT_SECONDS),
                self._loop,
                self._timers,
                image=lambda: self._metadata.image,
                now_ms=lambda: self.now().monotonic_ms,
                written=self._written,
            )
        return self._markers

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────

    def decide(
        self,
        transactional_id: str,
        decide: Decide[D],
        respond: Callable[[D], None],
        refuse: Callable[[ErrorCode], None],
        *,
        new_producer_id: ProducerId | None = None,
        wait_seconds: float = 0.0,
    ) -> None:
        """Decide on an id where it is kept, and respond when the decision is committed; or refuse, as `run` does.

        With `wait_seconds` it waits until a transaction that is ending has ended. Kafka says CONCURRENT_TRANSACTIONS
        at once, and the client comes again after 20 ms or more, when the markers have long been written.
        """

        def operation(host: TransactionHost) -> None:
            if wait_seconds and transactional_id in host.shard.ending:
                host.on_ended(transactional_id, wait_seconds, again)
                return
            decision = decide(host, new_producer_id)
            if isinstance(decision, Undecided):
                self.spawn(self._decide_with_id(transactional_id, decide, respond, refuse))
            else:
                host.execute(decision, respond, refuse)

        def again(error: ErrorCode) -> None:
            if error in (ErrorCode.NONE, ErrorCode.REQUEST_TIMED_OUT):
                self.decide(transactional_id, decide, respond, refuse, new_producer_id=new_producer_id)
            else:
                refuse(coordinator_error(error))

        self.run(transactional_id, operation, refuse)

    async def _decide_with_id(
        self,
        transactional_id: str,
        decide: Decide[D],
        respond: Callable[[D], None],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        error, producer_id = await self._new_producer_id()
        if error is not ErrorCode.NONE:
            # The client tries again: a disk that is full or a quorum without a leader may recover.
            refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        else:
            self.decide(transactional_id, decide, respond, refuse, new_producer_id=ProducerId(producer_id))

    def _written(self, transaction: EndingTransaction) -> None:
        host = self.hosts.get(transaction.index)
        if host is not None and host.is_loaded and host.leader_epoch == transaction.coordinator_epoch:
            host.complete(transaction)

    # ── what a coordinator's runtime asks ─────────────────────────────────────────────────────────────────

    def make_host(self, index: int, partition: CoordinatorPartition) -> TransactionHost:
        """See CoordinatorRuntime."""
        # Imported here, with the protocol of transactions: a broker that has none starts without it.
        from raftlog.broker.runtime.transaction_host import TransactionHost

        return TransactionHost(
            index,
            partition,
            self.now,
            self._timers,
            config=self.config,
            transaction_version=lambda: self.transaction_version,
            begin_markers=self.markers.begin,
            cancel_markers=self.markers.cancel,
            remaining_partitions=self.markers.queues.remaining,
        )

    def after_load(self, host: TransactionHost) -> Iterator[None]:
        """See CoordinatorRuntime."""
        return host.resume()

    def follow(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """See CoordinatorRuntime."""
        if self._markers is not None and (delta.changed_topics or delta.deleted_topics):
            self._markers.leaders_changed()

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────

    def _abort_timed_out(self, host: TransactionHost) -> Iterator[None]:
        """Abort the transactions that take too long, one at each step."""
        for transactional_id in host.timed_out():
            self.decide(
                transactional_id,
                partial(_decide_abort, transactional_id),
                partial(_log_abort, transactional_id),
                partial(_log_failed_abort, transactional_id),
            )
            yield

    def check_invariants(self) -> None:
        """Raises InvariantViolation if hosts, shards and markers contradict each other."""
        for host in self.hosts.values():
            host.shard.check_invariants()
        if self._markers is not None:
            self._markers.queues.check_invariants()


def _decide_abort(
    transactional_id: str, host: TransactionHost, new_producer_id: ProducerId | None
) -> Decision[bool] | Undecided:
    return host.abort_timed_out(transactional_id, new_producer_id)


def _log_abort(transactional_id: str, has_timed_out: bool) -> None:
    if has_timed_out:
        log.info("transactional.id=%s its transaction is aborted: it took longer than its time-out", transactional_id)


def _log_failed_abort(transactional_id: str, error: ErrorCode) -> None:
    log.warning("transactional.id=%s its transaction cannot be aborted yet: %s", transactional_id, error.name)


def transaction_config(config: Mapping[str, Any]) -> TransactionConfig:
    """The limits of transactions from the broker's settings."""
    return TransactionConfig(
        max_timeout_ms=config["transaction.max.timeout.ms"],
        id_expiration_ms=config["transactional.id.expiration.ms"],
        abort_interval_ms=config["transaction.abort.timed.out.transaction.cleanup.interval.ms"],
        expiry_interval_ms=config["transaction.remove.expired.transaction.cleanup.interval.ms"],
    )
