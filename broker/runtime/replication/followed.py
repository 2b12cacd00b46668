"""A partition that this broker follows: what was told to its leader, and what is done with an answer."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, NamedTuple

from raftlog.broker.core.log.results import LogUnavailable
from raftlog.broker.core.replica.following import UNDEFINED, Backoff, Follows, meet, reaction_to, truncation_offset
from raftlog.broker.runtime.replication.fetch_codec import FetchedRecords, WantedPartition
from raftlog.wire.errors import ErrorCode

if TYPE_CHECKING:
    from raftlog.broker.core.log.producers import ProducerStates
    from raftlog.broker.runtime.partition import Partition
    from raftlog.broker.store.partition_log import PartitionLog
    from raftlog.broker.store.truncation_plan import TruncationPlan

log = logging.getLogger("raftlog.replication")

FAILURES_TOLD = 6
"""So often in a row a leader may not be ready, some 300 ms, before it is worth a line in the log."""


CUT_AT_ONCE_BYTES = 1 << 20
"""Up to this size what a cut needs is read and synced at once; more of it would hold up the event loop."""


class PendingCut(NamedTuple):
    """Where the log is to be cut, and why, once the plan has been carried out."""

    plan: TruncationPlan
    target: int
    why: str


class Followed:
    """One partition under one leader, in one leader epoch.

    `told` is the position that the leader knows: log end and epoch of the last record, since the request `told_in`. An
    answer counts only while both are what they were, and if it is to that request or a later one, because a request
    may have overtaken the answer to the one before it.
    """

    __slots__ = (
        "backoff",
        "cut",
        "in_session",
        "leader_epoch",
        "leader_id",
        "partition",
        "state",
        "timer",
        "told_end_offset",
        "told_epoch",
        "told_in",
        "told_start_offset",
    )

    def __init__(self, partition: Partition, leader_id: int, leader_epoch: int, backoff: Backoff) -> None:
        self.partition = partition
        self.leader_id = leader_id
        self.leader_epoch = leader_epoch
        self.backoff = backoff
        self.state = Follows.FETCHING
        self.in_session = False
        self.timer: asyncio.TimerHandle | None = None
        self.cut: PendingCut | None = None
        self.told_end_offset = UNDEFINED
        self.told_epoch = UNDEFINED
        self.told_in = 0
        self.told_start_offset = UNDEFINED

    def __repr__(self) -> str:
        return f"{self.partition!r} of {self.leader_id} in epoch {self.leader_epoch}"

    @property
    def key(self) -> tuple[bytes, int]:
        """Topic id and index."""
        return self.partition.topic_id, self.partition.index

    def wanted(self, bytes_max: int) -> WantedPartition:
        """What to tell the leader now; from here on it counts as told."""
        partition_log = self.partition.log
        self.told_end_offset = end = partition_log.log_end_offset
        self.told_epoch = epoch = partition_log.latest_epoch
        self.in_session = True
        self.told_start_offset = start = partition_log.log_start_offset
        return WantedPartition(self.partition.index, self.leader_epoch, end, epoch, start, bytes_max)

    @property
    def has_news(self) -> bool:
        """Whether the leader knows less than there is."""
        partition_log = self.partition.log
        return (
            partition_log.log_end_offset != self.told_end_offset
            or partition_log.log_start_offset != self.told_start_offset
            or partition_log.latest_epoch != self.told_epoch
        )

    def take(self, fetched: FetchedRecords) -> Follows:
        """Do what the answer asks; the state afterwards. FETCHING, and another position than told: tell it."""
        partition_log = self.partition.log
        if self.told_end_offset != partition_log.log_end_offset or self.told_epoch != partition_log.latest_epoch:
            return Follows.FETCHING
        if fetched.error:
            return self._refused(ErrorCode.of(fetched.error))
        try:
            if fetched.diverging is not None:
                if self._diverged(partition_log, *fetched.diverging) is Follows.CUTTING:
                    return Follows.CUTTING
            elif len(fetched.records):
                result = partition_log.append_as_follower(fetched.records, self.leader_epoch)
                if result.error is not ErrorCode.NONE:
                    return self._not_appended(result.error, result.message)
        except LogUnavailable as failure:
            return self._failed(str(failure))
        if self.backoff.failures:
            self.backoff.reset()
        self.partition.follow_leader(fetched.high_watermark, fetched.log_start_offset)
        return Follows.FETCHING

    def _refused(self, error: ErrorCode) -> Follows:
        state = reaction_to(error)
        if self.backoff.failures == FAILURES_TOLD or state is not Follows.WAITING:
            log.info("partition=%r the leader answers %s: %s", self, error.name, state.value)
        return state

    def _not_appended(self, error: ErrorCode, message: str | None) -> Follows:
        log.error("partition=%r cannot append what the leader sent: %s %s", self, error.name, message)
        if error is ErrorCode.OFFSET_OUT_OF_RANGE:
            # Offsets that do not go on where our log ends are a bug of one of the two; more of them will not help.
            return self._failed(message or error.name)
        if self.partition.log.offline_reason is not None:
            return Follows.FAILED
        return Follows.WAITING

    def _failed(self, reason: str) -> Follows:
        log.error("partition=%r is not followed any more: %s", self, reason)
        return Follows.FAILED

    def _diverged(self, partition_log: PartitionLog, epoch: int, end_offset: int) -> Follows:
        before = partition_log.log_end_offset
        target = truncation_offset(partition_log, before, epoch, end_offset)
        return self._cut(target, f"the leader's epoch {epoch} ends at {end_offset}")

    def _cut(self, target: int, why: str) -> Follows:
        """Drop what the leader has not, now or, if much is to be read for that, after `cut.plan` was carried out."""
        partition_log = self.partition.log
        plan = partition_log.plan_truncation(target) if target < partition_log.log_end_offset else None
        if plan is not None and plan.size > CUT_AT_ONCE_BYTES:
            self.cut = PendingCut(plan, target, why)
            return Follows.CUTTING
        self._cut_now(target, why, None)
        return Follows.FETCHING

    def end_cut(self, producers: ProducerStates) -> Follows:
        """The plan was carried out: cut, unless the log has changed meanwhile, and the leader is asked again."""
        cut, self.cut = self.cut, None
        if cut is not None and cut.plan.holds and self.partition.log.offline_reason is None:
            try:
                self._cut_now(cut.target, cut.why, producers)
            except LogUnavailable as failure:
                return self._failed(str(failure))
        return Follows.FETCHING

    def cut_failed(self, error: Exception) -> Follows:
        """The plan could not be carried out."""
        cut, self.cut = self.cut, None
        if cut is None or not cut.plan.holds:
            # Retention or the cleaner took what was to be read.
            log.info("partition=%r the log changed while it was read: %s", self, error)
            return Follows.WAITING
        return self._failed(str(self.partition.log.fail(error)))

    def _cut_now(self, target: int, why: str, producers: ProducerStates | None) -> None:
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
            log.warning("partition=%r cut from %d to %d: %s", self, before, after, why)

    def located(self, leader_start: int, leader_end: int) -> Follows:
        """The leader has said where its log begins and ends."""
        partition_log = self.partition.log
        own_end = partition_log.log_end_offset
        meeting = meet(leader_start, leader_end, own_end)
        try:
            if meeting.truncate_to != UNDEFINED:
                return self._cut(meeting.truncate_to, f"the leader's log ends at {leader_end}")
            if meeting.restart_at != UNDEFINED:
                log.warning(
                    "partition=%r begins again at %d: the leader's log begins behind ours, which ends at %d",
                    self,
                    leader_start,
                    own_end,
                )
                partition_log.truncate_fully_and_start_at(meeting.restart_at)
        except LogUnavailable as failure:
            return self._failed(str(failure))
        return Follows.FETCHING

    def stop(self) -> None:
        """Nothing more is to be done."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
