"""Faults put back into partitions, replicas and elections on purpose; see `mutants` for those of the consensus."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from raftlog.broker.api import list_offsets
from raftlog.broker.core.replica.leadership import Follower, Leadership
from raftlog.broker.ports import Disk
from raftlog.broker.runtime import follower_reads, membership
from raftlog.broker.runtime.delayed_operation import Mark
from raftlog.broker.runtime.last_run import LastRun, read_last_run
from raftlog.broker.runtime.partition import Partition
from raftlog.broker.runtime.replication.partition_fetch_state import PartitionFetchState
from raftlog.linearizability.simulator.mutants.mutants import Mutant, patch
from raftlog.metadata import elections, partition_records, snapshot
from raftlog.metadata.image import MetadataImage
from raftlog.metadata.records import FeatureLevelRecord, Record
from raftlog.wire.errors import ErrorCode


@contextmanager
def isr_of_one() -> Iterator[None]:
    """min.insync.replicas is not looked at: the leader alone is enough."""

    def committed_end(self: Leadership, end_offset: int, high_watermark: int, now_ms: int) -> int:
        kept, self.min_isr = self.min_isr, 1
        try:
            return real_committed(self, end_offset, high_watermark, now_ms)
        finally:
            self.min_isr = kept

    def apply_state(self: Partition, state: Any) -> None:
        real_apply(self, state)
        self.isr_size = len(state.replicas)

    real_committed, real_apply = Leadership.committed_end, Partition.apply_state
    with patch(Leadership, "committed_end", committed_end), patch(Partition, "apply_state", apply_state):
        yield


def ack_before_replication() -> AbstractContextManager[None]:
    """acks=all is answered when the leader alone has the records."""

    def wait(self: Partition, mark: Mark, offset: int, callback: Callable[[ErrorCode], None]) -> None:
        callback(self.error)

    return patch(Partition, "wait", wait)


def election_outside_the_isr() -> AbstractContextManager[None]:
    """Any replica that is there may be elected, in sync or not, and nobody says that it was unclean."""

    def elect(state: Any, electorate: Any, election: Any, choice: Any) -> Any:
        leader, isr, unclean = real(state, electorate, election, choice)
        if leader != state.leader:
            there = [b for b in choice.replicas if electorate.may_lead(state, b) and b not in isr]
            if there:
                return there[0], (there[0],), False
        return leader, isr, unclean

    real = elections._elect
    return patch(elections, "_elect", elect)


def lost_power_is_not_told() -> AbstractContextManager[None]:
    """A broker whose host lost power says that its logs survived."""

    def read(disk: Disk, directory: str) -> LastRun:
        found = read_last_run(disk, directory)
        return found._replace(boot_id=_AnyBoot(found.boot_id)) if found.boot_id else found

    return patch(membership, "read_last_run", read)


class _AnyBoot(str):
    """Equal to every start of the host."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = str.__hash__


def truncation_to_the_high_watermark() -> AbstractContextManager[None]:
    """A new follower cuts its log to its own high watermark, as before leader epochs were compared (KIP-101)."""

    def made(self: Any, partition: Partition, leader_id: Any, leader_epoch: Any, backoff: Any) -> None:
        if partition.log.is_open and partition.log.high_watermark < partition.log.log_end_offset:
            partition.log.truncate_to(partition.log.high_watermark)
        real(self, partition, leader_id, leader_epoch, backoff)

    real = PartitionFetchState.__init__
    return patch(PartitionFetchState, "__init__", made)


@contextmanager
def truncation_by_a_stale_leader() -> Iterator[None]:
    """Leader epochs are compared nowhere: a deposed leader's word cuts the logs of who asks it, and who was deposed
    keeps what nobody else has.
    """

    def same(self: Partition, epoch: int) -> ErrorCode:
        return ErrorCode.NONE

    def never(*_: object) -> bool:
        return False


    with patch(Partition, "check_leader_epoch", same), patch(follower_reads, "is_diverging", never):
        yield


def high_watermark_too_early() -> AbstractContextManager[None]:
    """A new leader takes all that it has for committed, before its followers have said what they have."""

    def become_leader(self: Partition, state: Any, leadership: Leadership | None) -> None:
        real(self, state, leadership)
        if self.error is ErrorCode.NONE:
            self.advance(self.log.log_end_offset)

    real = Partition.become_leader
    return patch(Partition, "become_leader", become_leader)


def sent_is_acknowledged() -> AbstractContextManager[None]:
    """A follower is taken to have what was sent to it, before it says so."""

    def fetched(
        self: Leadership, follower: Follower, offset: int, log_start_offset: int, leader_end: int, now_ms: int
    ) -> None:
        real(self, follower, offset, log_start_offset, leader_end, now_ms)
        follower.end_offset = leader_end

    real = Leadership.fetched
    return patch(Leadership, "fetched", fetched)


def proposal_counts_at_once() -> AbstractContextManager[None]:
    """A follower that is to leave the ISR is not waited for any more, before the controller has agreed (KIP-497)."""

    def shrink(self: Any, end_offset: int, now_ms: int) -> Any:
        proposal = real(self, end_offset, now_ms)
        if proposal is not None:
            self.isr = tuple(member.broker_id for member in proposal.isr)
            self._count()
        return proposal

    real = Leadership.shrink
    return patch(Leadership, "shrink", shrink)


def overtaken_answers() -> AbstractContextManager[None]:
    """A follower takes an answer to an earlier request for one to its latest."""

    def position(self: PartitionFetchState, bytes_max: int) -> Any:
        told = real(self, bytes_max)
        self.sent_in = 0
        return told

    real = PartitionFetchState.position
    return patch(PartitionFetchState, "position", position)


def end_before_it_is_vouched_for() -> AbstractContextManager[None]:
    """A new leader tells where its high watermark is, though the one before may have told more (KIP-207)."""
    return patch(Partition, "is_reestablishing", property(lambda _: False))


def end_beyond_what_is_committed() -> AbstractContextManager[None]:
    """Consumers are told of the log's end, and of the times of records, whether these are committed or not."""

    def find(partition: Partition, timestamp: int, _: int, known: Any) -> Any:
        return real(partition, timestamp, partition.log.log_end_offset, known)

    real = list_offsets._find
    return patch(list_offsets, "_find", find)


def eligible_beside_one() -> AbstractContextManager[None]:
    """Who is elected from the eligible leaders and is enough alone leaves the others eligible."""

    def change(state: Any, electorate: Any, min_isr: int, wanted: Any = elections.NOTHING) -> Any:
        after = real(state, electorate, min_isr, wanted)
        if after is None or state.isr or len(after.isr) != 1:
            return after
        still = tuple([b for b in state.eligible_leader_replicas if b not in after.isr])
        return after._replace(eligible_leader_replicas=still)

    real = elections.change
    return patch(partition_records, "change", change)


def snapshots_without_levels() -> AbstractContextManager[None]:
    """Snapshots of the metadata do not say at which levels features are."""

    def records(image: MetadataImage) -> Iterator[Record]:
        return (record for record in real(image) if not isinstance(record, FeatureLevelRecord))

    real = snapshot.snapshot_records
    return patch(snapshot, "snapshot_records", records)


_ALL: tuple[tuple[str, Callable[[], AbstractContextManager[None]]], ...] = (
    ("isr-of-one", isr_of_one),
    ("ack-before-replication", ack_before_replication),
    ("election-outside-isr", election_outside_the_isr),
    ("truncate-to-high-watermark", truncation_to_the_high_watermark),
    ("truncation-by-stale-leader", truncation_by_a_stale_leader),
    ("high-watermark-too-early", high_watermark_too_early),
    ("sent-is-acknowledged", sent_is_acknowledged),
    ("proposal-counts-at-once", proposal_counts_at_once),
    ("overtaken-answers", overtaken_answers),
)
CLUSTER_MUTANTS: tuple[Mutant, ...] = (
    *(Mutant(name, ("cluster",), str(put.__doc__), put) for name, put in _ALL),
    Mutant(
        "lost-power-not-told",
        ("cluster",),
        str(lost_power_is_not_told.__doc__),
        lost_power_is_not_told,
        scenario="amnesia",
    ),
    Mutant(
        "eligible-beside-one",
        ("cluster",),
        str(eligible_beside_one.__doc__),
        eligible_beside_one,
        workload="single-copies",
        scenario="turns",
    ),
    Mutant(
        "end-before-vouched",
        ("cluster",),
        str(end_before_it_is_vouched_for.__doc__),
        end_before_it_is_vouched_for,
        workload="ends",
    ),
    Mutant(
        "end-beyond-committed",
        ("cluster",),
        str(end_beyond_what_is_committed.__doc__),
        end_beyond_what_is_committed,
        workload="ends",
    ),
    Mutant(
        "snapshots-without-levels",
        ("cluster",),
        str(snapshots_without_levels.__doc__),
        snapshots_without_levels,
        workload="versions",
    ),
)
