"""A partition that this broker follows: what was sent to its leader, and what is done with a response."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.core.replica.following import (
    UNDEFINED,
    Backoff,
    ReplicaState,
    handle_out_of_range,
    state_after,
    truncation_offset,
)
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import BrokerId, LeaderEpoch
from raftlog.wire.messages.fetch import EpochEndOffset, FetchPartition, PartitionData

if TYPE_CHECKING:
    from raftlog.broker.core.log.producers import ProducerStates
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.store.truncation_plan import TruncationPlan

log = logging.getLogger("raftlog.replication")

FAILURES_TOLD = 6
"""So often in a row a leader may not be ready, some 300 ms, before it is worth a line in the log."""


TRUNCATE_AT_ONCE_BYTES = 1 << 20
"""Up to this size what a truncation needs is read and synced at once; more of it would hold up the event loop."""


def is_diverging(fetched: PartitionData) -> bool:
    """Whether the leader says, in place of records, where the logs part (KIP-595)."""
    return fetched.diverging_epoch.epoch != UNDEFINED


class PendingTruncation(NamedTuple):
    """Where the log is to be truncated, and why, once the plan has been carried out."""

    plan: TruncationPlan
    target: int
    why: str


class PartitionFetchState:
    """One partition under one leader, in one leader epoch.

    `sent` is the position that the leader knows since the request `sent_in`: log end and epoch of the last record. A
    response counts only while both are what they were, and if it is to that request or a later one, because a request
    may have overtaken the response to the one before it.

    Invariants: only what is FETCHING is in the session; a timer is set exactly while WAITING, and `truncation` while
    TRUNCATING.
    """

    __slots__ = (
        "backoff",
        "in_session",
        "leader_epoch",
        "leader_id",
        "partition",
        "sent",
        "sent_in",
        "state",
        "timer",
        "truncation",
    )

    def __init__(self, partition: Partition, leader_id: BrokerId, leader_epoch: LeaderEpoch, backoff: Backoff) -> None:
        self.partition = partition
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.backoff = backoff
        self.state = ReplicaState.FETCHING
        self.in_session = False
        self.timer: asyncio.TimerHandle | None = None
        self.truncation: PendingTruncation | None = None
        self.sent = FetchPartition(partition=partition.index, current_leader_epoch=leader_epoch, fetch_offset=UNDEFINED)
        self.sent_in = 0

    def __repr__(self) -> str:
        return f"{self.partition!r} of {self.leader_id} in epoch {self.leader_epoch}"

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and index."""
        return self.partition.topic_id, self.partition.index

    def position(self, bytes_max: int) -> FetchPartition:
        """What to tell the leader now; from here on it counts as sent."""
        sent, partition_log = self.sent, self.partition.log
        self.in_session = True
        sent.fetch_offset = partition_log.log_end_offset
        sent.last_fetched_epoch = partition_log.latest_epoch
        sent.log_start_offset = partition_log.log_start_offset
        sent.partition_max_bytes = bytes_max
        return sent

    @property
    def is_dirty(self) -> bool:
        """Whether the leader knows less than there is."""
        return self._has_moved or self.partition.log.log_start_offset != self.sent.log_start_offset

    @property
    def _has_moved(self) -> bool:
        sent, partition_log = self.sent, self.partition.log
        return (
            sent.fetch_offset != partition_log.log_end_offset or sent.last_fetched_epoch != partition_log.latest_epoch
        )

    def process(self, fetched: PartitionData) -> ReplicaState:
        """Do what the response asks; the state afterwards. FETCHING, and another position than sent: send it."""
        partition_log = self.partition.log
        if self._has_moved:
            return ReplicaState.FETCHING
        if fetched.error_code:
            return self._refused(ErrorCode.of(fetched.error_code))
        try:
            if is_diverging(fetched):
                # What is left may part from the leader's log still, below its high watermark: that counts, as in Kafka,
                # once the leader has nothing more to cut.
                return self._truncate_diverging(fetched.diverging_epoch)
            if fetched.records:
                result = partition_log.append_as_follower(fetched.records, self.leader_epoch)
                if result.error is not ErrorCode.NONE:
                    return self._not_appended(result.error, result.message)
                self.partition.traffic.replication_bytes_in += len(fetched.records)
            self.partition.follow_leader(fetched.high_watermark, fetched.log_start_offset)
        except LogUnavailable as failure:
            return self._failed(str(failure))
        if self.backoff.failures:
            self.backoff.reset()
        return ReplicaState.FETCHING

    def _refused(self, error: ErrorCode) -> ReplicaState:
        state = state_after(error)
        if self.backoff.failures == FAILURES_TOLD or state is not ReplicaState.WAITING:
            log.info("partition=%r the leader answers %s: %s", self, error.name, state.value)
        return state

    def _not_appended(self, error: ErrorCode, message: str | None) -> ReplicaState:
        # A full disk is told of once for all its logs.
        level = logging.DEBUG if self.partition.log.storage.full_reason is not None else logging.ERROR
        log.log(level, "partition=%r cannot append what the leader sent: %s %s", self, error.name, message)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # Offsets that do not go on where our log ends are a bug of one of the two; more of them will not help.
            return self._failed(message or error.name)
        if self.partition.log.offline_reason is not None:
            return ReplicaState.FAILED
        return ReplicaState.WAITING

    def _failed(self, reason: str) -> ReplicaState:
        log.error("partition=%r is not followed any more: %s", self, reason)
        return ReplicaState.FAILED

    def _truncate_diverging(self, leaders: EpochEndOffset) -> ReplicaState:
        partition_log = self.partition.log
        target = truncation_offset(partition_log, partition_log.log_end_offset, leaders.epoch, leaders.end_offset)
        return self._truncate(target, f"the leader's epoch {leaders.epoch} ends at {leaders.end_offset}")

    def _truncate(self, target: int, why: str) -> ReplicaState:
        """Drop what the leader has not, now or, if much is to be read for that, when the plan was carried out."""
        partition_log = self.partition.log
        plan = partition_log.plan_truncation(target) if target < partition_log.log_end_offset else None
        if plan is not None and plan.size > TRUNCATE_AT_ONCE_BYTES:
            self.truncation = PendingTruncation(plan, target, why)
            return ReplicaState.TRUNCATING
        self._truncate_now(target, why, None)
        return ReplicaState.FETCHING

    def finish_truncation(self, producers: ProducerStates) -> ReplicaState:
        """The plan was carried out: truncate, unless the log has changed meanwhile, and the leader is asked again."""
        truncation, self.truncation = self.truncation, None
        if truncation is not None and truncation.plan.holds and self.partition.log.offline_reason is None:
            try:
                self._truncate_now(truncation.target, truncation.why, producers)
            except LogUnavailable as failure:
                return self._failed(str(failure))
        return ReplicaState.FETCHING

    def truncation_failed(self, error: Exception) -> ReplicaState:
        """The plan could not be carried out."""
        truncation, self.truncation = self.truncation, None
        if truncation is None or not truncation.plan.holds:
            # Retention or the cleaner took what was to be read.
            log.info("partition=%r the log changed while it was read: %s", self, error)
            return ReplicaState.WAITING
        return self._failed(str(self.partition.log.fail(error)))

    def _truncate_now(self, target: int, why: str, producers: ProducerStates | None) -> None:
        """What is below the high watermark is lost, which only an unclean election causes."""
        partition_log = self.partition.log
        before, high_watermark = partition_log.log_end_offset, partition_log.high_watermark
        partition_log.truncate_to(target, producers)
        after = partition_log.log_end_offset
        if after < high_watermark:
            log.error(
                "partition=%r committed records at offsets %d to %d are lost: %s", self, after, high_watermark - 1, why
            )
        if after < before:
            log.warning("partition=%r truncated from %d to %d: %s", self, before, after, why)

    def located(self, leader_start: int, leader_end: int) -> ReplicaState:
        """The leader has said where its log begins and ends."""
        partition_log = self.partition.log
        own_end = partition_log.log_end_offset
        outcome = handle_out_of_range(leader_start, leader_end, own_end)
        try:
            if outcome.truncate_to != UNDEFINED:
                return self._truncate(outcome.truncate_to, f"the leader's log ends at {leader_end}")
            if outcome.restart_at != UNDEFINED:
                log.warning(
                    "partition=%r begins again at %d: the leader's log begins behind ours, which ends at %d",
                    self,
                    leader_start,
                    own_end,
                )
                partition_log.truncate_fully_and_start_at(outcome.restart_at)
                return ReplicaState.FETCHING
        except LogUnavailable as failure:
            return self._failed(str(failure))
        # It may answer the same again: it does, if it knows nothing of the epoch of our last record.
        return ReplicaState.WAITING

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        if self.in_session and self.state is not ReplicaState.FETCHING:
            raise InvariantViolation(f"{self!r} is in the session while it is {self.state.value}")
        if (self.state is ReplicaState.WAITING) is not (self.timer is not None):
            raise InvariantViolation(f"{self!r} is {self.state.value}, with the timer {self.timer}")
        if (self.state is ReplicaState.TRUNCATING) is not (self.truncation is not None):
            raise InvariantViolation(f"{self!r} is {self.state.value}, and is to be truncated: {self.truncation}")

    def stop(self) -> None:
        """Nothing more is to be done."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
