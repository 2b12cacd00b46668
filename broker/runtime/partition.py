"""One partition that this broker hosts: its log, its role, and who waits for it to move.

With one replica the high watermark follows the log's end (or, with flush.messages, what is on the disk); with followers
it follows the slowest of the in-sync replicas, as `broker/core/replica/leadership.py` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from raftlog.broker.core.log.producers import TransactionEnd
from raftlog.broker.core.log.results import AppendOrigin, AppendResult, LogUnavailable
from raftlog.broker.core.log.verification import VerificationGuard
from raftlog.broker.core.traffic import Traffic
from raftlog.broker.runtime.delayed_operation import DelayedOperation, Mark, OffsetWait
from raftlog.metadata.records import NO_LEADER
from raftlog.wire.control import TransactionMarker, encode_transaction_marker
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import LeaderEpoch, ProducerEpoch, ProducerId

if TYPE_CHECKING:
    from raftlog.broker.core.log.validation import BatchVerdict
    from raftlog.broker.core.replica.leadership import Follower, Leadership
    from raftlog.broker.store.partition_log import PartitionLog
    from raftlog.metadata.cluster_commands import IsrProposal
    from raftlog.metadata.records import PartitionState

_MARKS = tuple(Mark)
# An enum's attribute costs more than a call.
_NONE = ErrorCode.NONE


class PartitionOwner(Protocol):
    """What a partition asks of the one that manages it."""

    def flush(self, partition: Partition) -> None:
        """Bring the log to the disk, and call `flushed` as that goes on."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some moment; never goes back."""

    def propose(self, partition: Partition, proposal: IsrProposal) -> None:
        """Ask the controller for another ISR."""

    def is_in_contact(self) -> bool:
        """Whether the quorum was heard a moment ago, so that this broker would know if others led."""


class Partition:
    """A hosted partition.

    Invariants: log_start_offset <= last_stable_offset <= high_watermark <= log_end_offset; `error` is NONE exactly
    when this broker leads the partition and its log can be used, `read_error` when its log can be read; `leadership` is
    None unless this broker leads and there are followers.
    """

    __slots__ = (
        "_owner",
        "_safe_end",
        "_watchers",
        "error",
        "error_message",
        "flushing",
        "index",
        "internal",
        "isr",
        "isr_size",
        "leader_epoch",
        "leader_id",
        "leadership",
        "log",
        "min_isr",
        "read_error",
        "topic",
        "topic_id",
        "traffic",
    )

    def __init__(self, topic: str, topic_id: bytes, index: int, log: PartitionLog, owner: PartitionOwner) -> None:
        self.topic = topic
        self.topic_id = topic_id
        self.index = index
        self.log = log
        # That of the topic, once somebody counts it as a whole.
        self.traffic = Traffic()
        self.leader_epoch = LeaderEpoch(0)
        self.leader_id = NO_LEADER
        self.leadership: Leadership | None = None
        # A topic of the broker's own, which clients read and do not write.
        self.internal = False
        self.isr: tuple[int, ...] = ()
        self.isr_size = 1
        self.min_isr = 1
        # A flush is under way, and what was appended is not acknowledged before it ends.
        self.flushing = False
        self.error = _NONE
        self.read_error = _NONE
        self.error_message: str | None = None
        # By mark; in order, so that who waits longest is told first.
        self._watchers: tuple[dict[DelayedOperation, None], ...] = ({}, {}, {}, {})
        # Below this our own copy counts: the log end, or what is on the disk while flush.messages asks for that.
        self._safe_end = log.log_end_offset
        self._owner = owner

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    # Appending ---------------------------------------------------------------------------------------

    def append_from_client(
        self,
        records: memoryview,
        now_ms: int,
        guard: VerificationGuard | None = None,
        *,
        checked: BatchVerdict | None = None,
    ) -> AppendResult:
        """Append what a produce request brought; it is readable once it is committed. A batch that begins a
        transaction needs the `guard` that it was verified with; after TAKES_LONG it comes again `checked`.

        An I/O error takes the partition offline and is answered with KAFKA_STORAGE_ERROR.
        """
        result = self.log.append_as_leader(records, self.leader_epoch, now_ms, guard=guard, checked=checked)
        if result.error is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not self.leads_for_certain:
            # The new leader may have what this log lacks, and the producer would take this for the end.
            return AppendResult.refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if result.error is _NONE:
            traffic = self.traffic
            traffic.bytes_in += len(records)
            traffic.records_in += result.last_offset - result.base_offset + 1
            self._appended(result)
        return result

    def append(
        self,
        records: bytes,
        now_ms: int,
        *,
        guard: VerificationGuard | None = None,
        transaction_version: int = 0,
    ) -> AppendResult:
        """Append for a coordinator of this broker: as with acks=all, enough replicas must be in sync. For `guard` see
        `append_from_client`; `transaction_version` is that of a transaction marker.
        """
        if self.error is not _NONE or self.isr_size < self.min_isr:
            error = self.error if self.error is not _NONE else ErrorCode.NOT_ENOUGH_REPLICAS
            return AppendResult.refused(error)
        result = self.log.append_as_leader(
            records,
            self.leader_epoch,
            now_ms,
            origin=AppendOrigin.COORDINATOR,
            transaction_version=transaction_version,
            guard=guard,
        )
        if result.error is _NONE:
            self.traffic.bytes_in += len(records)
            self.traffic.records_in += result.last_offset - result.base_offset + 1
            self._appended(result)
        return result

    def append_marker(self, end: TransactionEnd, now_ms: int) -> AppendResult:
        """Append the marker that ends a producer's transaction here; it counts once it is committed."""
        marker = TransactionMarker(end.committed, end.coordinator_epoch)
        batch = encode_transaction_marker(
            marker, producer_id=end.producer_id, producer_epoch=end.producer_epoch, timestamp=now_ms
        )
        return self.append(batch, now_ms, transaction_version=end.transaction_version)

    # Verifying -----------------------------------------------------------------------------------------

    def knows_producer(self, producer_id: ProducerId) -> bool:
        """Whether its sequence is known here."""
        try:
            return self.log.opened.producers.get(producer_id) is not None
        except LogUnavailable:
            return False

    def has_open_transaction(self, producer_id: ProducerId, epoch: ProducerEpoch) -> bool:
        """Whether the producer's batches of this epoch go into a transaction that is open here."""
        opened = self.log.storage.opened
        entry = opened.producers.entries.get(producer_id) if opened is not None else None
        return entry is not None and entry.transaction_start >= 0 and entry.epoch == epoch

    def begin_verification(
        self, producer_id: ProducerId, epoch: ProducerEpoch, sequence: int, now_ms: int, *, bumps_epoch: bool
    ) -> VerificationGuard | ErrorCode:
        """See ProducerStates."""
        try:
            producers = self.log.opened.producers
        except LogUnavailable as failure:
            return failure.error
        return producers.begin_verification(producer_id, epoch, sequence, now_ms, bumps_epoch=bumps_epoch)

    def _appended(self, result: AppendResult) -> None:
        log = self.log
        leadership = self.leadership
        if leadership is not None:
            if not result.duplicate:
                self._append_replicated(leadership, result.base_offset)
        elif log.storage.flush_due:
            self._owner.flush(self)
        elif self.error is _NONE:
            # If not, the log has failed behind the batch, and whether there are followers is not known any more.
            self.advance(log.log_end_offset)

    def _append_replicated(self, leadership: Leadership, end_offset_before: int) -> None:
        log = self.log
        leadership.appended(end_offset_before)
        if log.flush_due or self.flushing:
            self._owner.flush(self)
        else:
            self._safe_end = log.log_end_offset
            if len(leadership.isr) == 1:
                self.maybe_advance_high_watermark()
        self.try_complete_delayed(Mark.LOG_END)

    def flushed(self, recovery_point: int) -> None:
        """All below `recovery_point` is on the disk."""
        if self.leadership is None:
            if self.error is _NONE:
                self.advance(recovery_point)
        else:
            # What came during the last sync may be less than flush.messages asks to sync: it counts as it is.
            rest_counts = not self.flushing and not self.log.flush_due
            self._safe_end = self.log.log_end_offset if rest_counts else max(self._safe_end, recovery_point)
            self.maybe_advance_high_watermark()
        self.try_complete_delayed(Mark.FLUSHED)

    # Waiting -----------------------------------------------------------------------------------------

    def watch(self, mark: Mark, operation: DelayedOperation) -> None:
        """Have `operation` tried each time that `mark` moves, until it is complete or `unwatch` is called."""
        self._watchers[mark][operation] = None

    def unwatch(self, mark: Mark, operation: DelayedOperation) -> None:
        """No more."""
        self._watchers[mark].pop(operation, None)

    def watchers(self, mark: Mark) -> int:
        """How many operations watch it."""
        return len(self._watchers[mark])

    def wait(self, mark: Mark, offset: int, callback: Callable[[ErrorCode], None]) -> OffsetWait:
        """Call back with NONE once `mark` is at least `offset`, or with why it never will be; at once if that is known.
        Who waits no more has to `unwatch` what is returned.

        Below min.insync.replicas nothing is committed, perhaps for long (KIP-966): a producer hears so at once.
        """
        if mark is Mark.FLUSHED:
            self._owner.flush(self)
        operation = OffsetWait(offset, self._reached, callback)
        if not operation.try_complete(mark):
            self._watchers[mark][operation] = None
        return operation

    def _reached(self, mark: Mark, offset: int) -> ErrorCode | None:
        if mark is Mark.FLUSHED:
            # Until all is on the disk: of what came during the last sync it may be less than flush.messages asks for.
            is_over = not self.flushing or self.log.recovery_point >= offset or self.read_error is not _NONE
            return self.error if is_over else None
        if self.error is not _NONE:
            return self.error
        if mark is Mark.LOW_WATERMARK:
            return _NONE if self.low_watermark >= offset else None
        if self.isr_size < self.min_isr:
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return _NONE if self.log.high_watermark >= offset else None

    def try_complete_delayed(self, mark: Mark = Mark.HIGH_WATERMARK) -> None:
        """The mark may have moved: who waits for it may go on."""
        watchers = self._watchers[mark]
        if watchers:
            for operation in list(watchers):
                if operation.try_complete(mark):
                    watchers.pop(operation, None)

    def _try_complete_all(self) -> None:
        """The role or the state has changed."""
        for mark in _MARKS:
            self.try_complete_delayed(mark)

    # Committing --------------------------------------------------------------------------------------

    def advance(self, committed_offset: int) -> None:
        """Move the high watermark to what is committed and tell who waits."""
        self.log.update_high_watermark(committed_offset)
        self.try_complete_delayed()

    def maybe_advance_high_watermark(self) -> None:
        """Followers, the ISR or the own disk have moved: so may the high watermark."""
        leadership = self.leadership
        if leadership is not None:
            high_watermark = self.log.high_watermark
            committed = leadership.committed_end(self._safe_end, high_watermark, self._owner.monotonic_ms())
            if committed > high_watermark:
                self.advance(committed)
        self.try_complete_delayed(Mark.LOW_WATERMARK)

    def timestamp_at(self, offset: int) -> int:
        """The largest timestamp of the batch that holds the first record from `offset` on, -1 if there is none: how
        old that record is, within a batch. Costs the reading of a few headers. Raises LogUnavailable.
        """
        with self.log.storage.failing():
            return self.log.opened.segments.timestamp_at(max(offset, self.log.log_start_offset))

    # Roles -------------------------------------------------------------------------------------------

    def become_leader(self, state: PartitionState, leadership: Leadership | None) -> None:
        """Lead in a new epoch. `leadership` is None without followers."""
        self.apply_state(state)
        if self.log.offline_reason is not None:
            return
        self.leadership = leadership
        self.log.assign_epoch(state.leader_epoch)
        self.error = self.read_error = _NONE
        self.error_message = None
        self._safe_end = self.log.recovery_point if self.flushing else self.log.log_end_offset
        if leadership is None:
            self.advance(self._safe_end)
        else:
            self.maybe_advance_high_watermark()
        self._try_complete_all()

    def become_follower(self, state: PartitionState) -> None:
        """Another broker leads, or none: who waits for a commit has to ask there."""
        self.apply_state(state)
        self.leadership = None
        if self.log.offline_reason is None:
            self.log.forget_empty_epoch()
            self.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            self.read_error = _NONE
            self.error_message = None
        self._try_complete_all()

    def apply_state(self, state: PartitionState) -> None:
        """The metadata have changed, and the role has not."""
        self.leader_epoch = state.leader_epoch
        self.leader_id = state.leader
        self.isr = state.isr
        self.isr_size = len(state.isr)

    def fail(self, error: ErrorCode, message: str) -> None:
        """Take it out of service; everybody who waits hears why."""
        self.error = self.read_error = error
        self.error_message = message
        self.leadership = None
        self._try_complete_all()

    @property
    def is_reestablishing(self) -> bool:
        """Whether this new leader cannot vouch yet for all that it had when its epoch began (KIP-207)."""
        leadership = self.leadership
        return leadership is not None and leadership.start_offset > self.log.high_watermark

    @property
    def leads_for_certain(self) -> bool:
        """False for a follower, and for a leader that may have been deposed without hearing of it."""
        return self.error is _NONE and self._owner.is_in_contact()

    def check_leader_epoch(self, epoch: int) -> ErrorCode:
        """Compare an epoch that a client knows (-1: none) with ours (KIP-320)."""
        if epoch in (-1, self.leader_epoch):
            return _NONE
        return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.leader_epoch else ErrorCode.UNKNOWN_LEADER_EPOCH

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        log = self.log
        if self.read_error is _NONE and log.is_open:
            start, stable, high, end = marks = (
                log.log_start_offset,
                log.last_stable_offset,
                log.high_watermark,
                log.log_end_offset,
            )
            if not start <= stable <= high <= end:
                raise InvariantViolation(f"{self!r}: log start, stable, committed and end are {marks}")
        if self.leadership is not None and self.error is not _NONE:
            raise InvariantViolation(f"{self!r} has followers and does not lead: {self.error.name}")

    # Followers ---------------------------------------------------------------------------------------

    def acknowledged(self, follower: Follower, offset: int, log_start_offset: int) -> None:
        """A follower fetches from `offset`: it has all below, and the epochs agree."""
        leadership = self.leadership
        assert leadership is not None
        log = self.log
        leadership.fetched(follower, offset, log_start_offset, log.log_end_offset, self._owner.monotonic_ms())
        if offset > log.high_watermark or self._watchers[Mark.LOW_WATERMARK]:
            self.maybe_advance_high_watermark()
        if not follower.counts:
            proposal = leadership.expand(follower, log.high_watermark)
            if proposal is not None:
                self._owner.propose(self, proposal)

    @property
    def low_watermark(self) -> int:
        """The least log start of all replicas that can be reached (KIP-107); -1 if one is not known."""
        leadership, start = self.leadership, self.log.log_start_offset
        return start if leadership is None else leadership.low_watermark(start)

    def follow_leader(self, high_watermark: int, log_start_offset: int) -> None:
        """Take over what the leader says of its log. Raises LogUnavailable."""
        log = self.log
        if high_watermark > log.high_watermark:
            log.update_high_watermark(high_watermark)
            self.try_complete_delayed()
        if log_start_offset > log.log_start_offset:
            log.delete_records_before(min(log_start_offset, log.high_watermark))
