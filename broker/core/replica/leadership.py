"""A partition's leader in one leader epoch: where its followers are, who is in sync, what is committed.

It has the followers' positions as their fetches told them, the in-sync replicas (ISR) that the metadata hold and the
change to it that is proposed (KIP-497, KIP-841, KIP-903, KIP-966).

    state         event                                             next
    Committed     a follower is in sync and eligible                Expanding   (its proposal goes out)
    Committed     a follower of the ISR lags                        Shrinking   (its proposal goes out)
    Committed     elected uncleanly, and recovered                  Recovering  (its proposal goes out)
    any pending   newer partition epoch in the metadata             Committed   (with what it says)
    any pending   answer: not attempted, or ineligible              Committed   (as before the proposal)
    any pending   answer: refused for what is newer than we know    the same    (until the metadata catch up)
    any pending   answer: anything else                             the same    (the same proposal goes out again)

While a proposal is pending nobody knows whether it holds, so the high watermark waits for everybody who may be in
the ISR: the *maximal* ISR, with who joins and with who leaves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from raftlog.metadata.cluster_commands import IsrMember, IsrProposal
from raftlog.metadata.records import PartitionState
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import BrokerEpoch, BrokerId, PartitionEpoch

HEARD_MS_MAX = 1500
"""A follower fetches twice a second, and more often when there is something to fetch."""

NO_OFFSET = -1
NO_EPOCH = BrokerEpoch(-1)


class Contact(Protocol):
    """Through which a follower is heard: when it last fetched anything, in the milliseconds of `now_ms`; `is_lost`: its
    connection has ended, and it has not come back since."""

    last_used_ms: int
    is_lost: bool


class NeverHeard:
    """The contact of a follower that has not fetched yet."""

    last_used_ms = 0
    is_lost = False


_NEVER_HEARD = NeverHeard()


def _is_heard(contact: Contact, now_ms: int) -> bool:
    return now_ms - contact.last_used_ms <= HEARD_MS_MAX and not contact.is_lost


class Follower:
    """What is known of one follower. `end_offset` is where it fetches, which says that it has all below.

    `counts` tells whether it belongs to the maximal ISR.
    """

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "contact",
        "counts",
        "end_offset",
        "fetched_ms",
        "leader_end_then",
        "log_start_offset",
    )

    def __init__(self, broker_id: BrokerId, caught_up_ms: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = NO_EPOCH
        self.end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.caught_up_ms = caught_up_ms
        self.fetched_ms = 0
        # Where the leader's log ended when it last fetched: if its next fetch is from there, it was caught up then.
        self.leader_end_then = NO_OFFSET
        self.contact: Contact = _NEVER_HEARD
        self.counts = False

    def __repr__(self) -> str:
        return f"Follower({self.broker_id} at {self.end_offset})"

    def heard(self, contact: Contact, broker_epoch: BrokerEpoch) -> None:
        """It tells where it is, which `fetched` notes. A fetch that is refused tells nothing: what is known of the
        follower is of an earlier life of its broker still (KIP-903).
        """
        self.contact = contact
        self.broker_epoch = broker_epoch

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """Whether it has, or within `lag_ms_max` had, all that its leader has."""
        return self.end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_ms_max


class Committed:
    """No change of the ISR is under way: what Kafka calls a committed partition state."""

    __slots__ = ()


class Expanding(NamedTuple):
    """`joining` shall enter the ISR."""

    proposal: IsrProposal
    joining: BrokerId


class Shrinking(NamedTuple):
    """`leaving` shall leave the ISR."""

    proposal: IsrProposal
    leaving: tuple[BrokerId, ...]


class Recovering(NamedTuple):
    """An unclean election is to be noted as recovered; the ISR stays."""

    proposal: IsrProposal


IsrState: TypeAlias = Committed | Expanding | Shrinking | Recovering

COMMITTED = Committed()


class Reaction(Enum):
    """What a leader does about the answer to its proposal."""

    DONE = "nothing more"
    WAIT = "wait for the metadata"
    RETRY = "propose the same again"


REFUSALS = (ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA)
"""The controller knows of something that this broker does not, such as a failed directory: given up, for a while."""
_WAITS = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.NEW_LEADER_ELECTED,
)

Eligible: TypeAlias = Callable[[BrokerId, BrokerEpoch], bool]
"""Whether a broker (its id, the epoch under which it fetches) may be in an ISR now: registered under that epoch,
neither fenced nor shutting down (KIP-841, KIP-903)."""

CurrentEpoch: TypeAlias = Callable[[BrokerId], BrokerEpoch]
"""The epoch under which the metadata have a broker registered, -1 if it is not."""


class LeaderTerms(NamedTuple):
    """What all leaderships of a broker share: its id, replica.lag.time.max.ms, and what the metadata say of brokers."""

    node_id: BrokerId
    lag_ms_max: int
    eligible: Eligible
    broker_epoch: CurrentEpoch


class Leadership:
    """Invariants: this broker is in the ISR; the ISR is within the replicas; a follower counts exactly when it is in
    the maximal ISR; at most one proposal is pending.
    """

    __slots__ = (
        "_terms",
        "followers",
        "index",
        "isr",
        "leader_epoch",
        "min_isr",
        "partition_epoch",
        "recovering",
        "start_offset",
        "state",
        "topic_id",
    )

    def __init__(
        self, terms: LeaderTerms, topic_id: bytes, partition: PartitionState, start_offset: int, now_ms: int
    ) -> None:
        """`start_offset` is where the log ended when the epoch began: what a new leader has, but cannot call committed
        before its followers have confirmed it.
        """
        self._terms = terms
        self.topic_id = topic_id
        self.index = partition.partition_id
        self.leader_epoch = partition.leader_epoch
        self.start_offset = start_offset
        # The least ISR with which the high watermark moves: min.insync.replicas, but not more than there are replicas.
        self.min_isr = 1
        self.state: IsrState = COMMITTED
        self.partition_epoch = PartitionEpoch(-1)
        self.isr: tuple[BrokerId, ...] = ()
        self.recovering = False
        self.followers: dict[BrokerId, Follower] = {}
        self.change(partition, now_ms)

    # What the metadata say ---------------------------------------------------------------------------

    def change(self, partition: PartitionState, now_ms: int) -> bool:
        """Take the partition as the metadata hold it now, in the same leader epoch; whether that is a newer state."""
        if partition.leader_epoch != self.leader_epoch:
            raise InvariantViolation(f"epoch {partition.leader_epoch} is not that of this leadership")
        if partition.partition_epoch <= self.partition_epoch:
            return False
        before, self.isr = self.isr, partition.isr
        self.partition_epoch = partition.partition_epoch
        self.recovering = partition.leader_recovering
        self.state = COMMITTED
        known, self.followers = self.followers, {}
        for broker_id in partition.replicas:
            if broker_id == self._terms.node_id:
                continue
            in_sync = broker_id in self.isr
            follower = known.get(broker_id) or Follower(broker_id, now_ms if in_sync else 0)
            if in_sync and broker_id not in before:
                follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
            self.followers[broker_id] = follower
        self._count()
        return True

    def _count(self) -> None:
        joining = self.state.joining if isinstance(self.state, Expanding) else None
        for broker_id, follower in self.followers.items():
            follower.counts = broker_id in self.isr or broker_id == joining

    @property
    def maximal_isr(self) -> tuple[BrokerId, ...]:
        """Everybody who may be in the ISR, whatever becomes of the proposal."""
        return (*self.isr, self.state.joining) if isinstance(self.state, Expanding) else self.isr

    # What the followers say --------------------------------------------------------------------------

    def follower(self, broker_id: BrokerId, broker_epoch: BrokerEpoch) -> Follower | ErrorCode:
        """The follower that a fetch in our leader epoch comes from, or why it is refused.

        A fetch of an earlier life of the broker (KIP-903) says nothing about what it has now. Who is not among the
        replicas may be in newer metadata, and comes again.
        """
        follower = self.followers.get(broker_id)
        if follower is None:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if broker_epoch != NO_EPOCH and self._terms.broker_epoch(broker_id) > broker_epoch:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return follower

    def fetched(self, follower: Follower, offset: int, log_start_offset: int, leader_end: int, now_ms: int) -> None:
        """A follower fetches from `offset`, which was checked: its epoch is ours and so are its records below that."""
        if offset >= leader_end:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif offset >= follower.leader_end_then:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        follower.end_offset = offset
        follower.log_start_offset = log_start_offset
        follower.fetched_ms = now_ms
        if leader_end > follower.leader_end_then:
            follower.leader_end_then = leader_end

    def appended(self, end_offset_before: int) -> None:
        """The log has grown. Who had all of it before was caught up as long as it was heard: followers name a
        partition only when something about it has changed, so that their silence says nothing.
        """
        for follower in self.followers.values():
            if follower.end_offset >= end_offset_before:
                heard_ms = follower.contact.last_used_ms
                if heard_ms > follower.caught_up_ms:
                    follower.caught_up_ms = heard_ms
                if heard_ms > follower.fetched_ms:
                    follower.fetched_ms = heard_ms

    def committed_end(self, end_offset: int, high_watermark: int, now_ms: int) -> int:
        """What the high watermark may be, when the leader's own records are safe up to `end_offset`.

        The least end among the maximal ISR, and among those who are about to join it: they would be out again if
        the high watermark ran away from them. Who is about to join is waited for only while it is heard.
        """
        if len(self.isr) < self.min_isr:
            return high_watermark
        committed = end_offset
        for follower in self.followers.values():
            end = follower.end_offset
            if end < committed and (follower.counts or self._is_about_to_join(follower, end_offset, now_ms)):
                committed = end
        return committed if committed > high_watermark else high_watermark

    def _is_about_to_join(self, follower: Follower, end_offset: int, now_ms: int) -> bool:
        lag_ms_max, contact = self._terms.lag_ms_max, follower.contact
        return (
            follower.end_offset >= 0
            and _is_heard(contact, now_ms)
            and follower.is_caught_up(end_offset, now_ms, lag_ms_max)
            and self._terms.eligible(follower.broker_id, follower.broker_epoch)
        )

    def low_watermark(self, log_start_offset: int) -> int:
        """The least log start of all replicas that can be reached (DeleteRecords, KIP-107); -1: one is not known."""
        starts = [
            follower.log_start_offset
            for follower in self.followers.values()
            if self._terms.eligible(follower.broker_id, follower.broker_epoch)
        ]
        return min([log_start_offset, *starts])

    # Proposals ---------------------------------------------------------------------------------------

    def expand(self, follower: Follower, high_watermark: int) -> IsrProposal | None:
        """The proposal that takes a follower in, when it has all that is committed and all that this leader began
        with; None when it is not to be, or not now.
        """
        end = follower.end_offset
        if follower.counts or end < high_watermark or end < self.start_offset:
            return None
        if not isinstance(self.state, Committed) or follower.contact.is_lost:
            return None
        if not self._terms.eligible(follower.broker_id, follower.broker_epoch):
            return None
        proposal = self._proposal((*self.isr, follower.broker_id))
        self.state = Expanding(proposal, follower.broker_id)
        follower.counts = True
        return proposal

    def lost(self) -> list[BrokerId]:
        """Who is in sync, and has lost its connection."""
        return [follower.broker_id for follower in self._in_sync() if follower.contact.is_lost]

    def never_heard(self) -> list[BrokerId]:
        """Who is in sync, and has not fetched in this leader epoch."""
        return [follower.broker_id for follower in self._in_sync() if follower.contact is _NEVER_HEARD]

    def unheard(self, now_ms: int) -> list[BrokerId]:
        """Who is in sync, and has not fetched for a while or ever: cut off, or slow."""
        return [follower.broker_id for follower in self._in_sync() if not _is_heard(follower.contact, now_ms)]

    def heard(self, now_ms: int) -> list[BrokerId]:
        """Who has fetched a moment ago."""
        followers = self.followers.values()
        return [each.broker_id for each in followers if _is_heard(each.contact, now_ms)]

    def _in_sync(self) -> Iterator[Follower]:
        followers = (self.followers.get(broker_id) for broker_id in self.isr)
        return (follower for follower in followers if follower is not None)

    def shrink(
        self, end_offset: int, now_ms: int, lost: frozenset[BrokerId] = frozenset()
    ) -> IsrProposal | None:
        """The proposal that leaves out who lags, and those of the `lost` who have not everything; None when there is
        nobody, or a proposal is pending.
        """
        if not isinstance(self.state, Committed):
            return None
        lagging = tuple(self._lagging(end_offset, now_ms, lost))
        if not lagging:
            return None
        proposal = self._proposal(tuple(member for member in self.isr if member not in lagging))
        self.state = Shrinking(proposal, lagging)
        return proposal

    def _lagging(self, end_offset: int, now_ms: int, lost: frozenset[BrokerId]) -> Iterator[BrokerId]:
        for broker_id in self.isr:
            follower = self.followers.get(broker_id)
            if follower is None:
                continue
            lag_ms_max = 0 if broker_id in lost else self._terms.lag_ms_max
            if not follower.is_caught_up(end_offset, now_ms, lag_ms_max):
                yield broker_id

    def recover(self) -> IsrProposal | None:
        """The proposal that says that a leader elected uncleanly has recovered (KIP-704)."""
        if not self.recovering or not isinstance(self.state, Committed):
            return None
        proposal = self._proposal(self.isr)
        self.state = Recovering(proposal)
        return proposal

    def _proposal(self, isr: tuple[BrokerId, ...]) -> IsrProposal:
        return IsrProposal(
            topic_id=self.topic_id,
            partition_id=self.index,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            isr=tuple(IsrMember(broker_id, self._epoch_of(broker_id)) for broker_id in isr),
        )

    def _epoch_of(self, broker_id: BrokerId) -> BrokerEpoch:
        if broker_id == self._terms.node_id:
            return self._terms.broker_epoch(broker_id)
        follower = self.followers.get(broker_id)
        return NO_EPOCH if follower is None else follower.broker_epoch

    def answered(
        self, proposal: IsrProposal, error: ErrorCode, partition: PartitionState | None, now_ms: int
    ) -> Reaction:
        """What became of a proposal. One that is no longer pending changes nothing."""
        if not self.awaits(proposal):
            return Reaction.DONE
        if error is ErrorCode.NONE:
            if partition is None or partition.leader_epoch != self.leader_epoch or self.change(partition, now_ms):
                # What is not in the answer the metadata will bring.
                return Reaction.DONE if isinstance(self.state, Committed) else Reaction.WAIT
            if partition.partition_epoch == self.partition_epoch:
                # Nothing was to be changed.
                self._clear_proposal()
            return Reaction.DONE
        if error in REFUSALS:
            self._clear_proposal()
            return Reaction.DONE
        return Reaction.WAIT if error in _WAITS else Reaction.RETRY

    def awaits(self, proposal: IsrProposal) -> bool:
        """Whether this proposal is pending."""
        return not isinstance(self.state, Committed) and self.state.proposal is proposal

    def _clear_proposal(self) -> None:
        self.state = COMMITTED
        self._count()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        if self._terms.node_id not in self.isr:
            raise InvariantViolation(f"the leader {self._terms.node_id} is not in the ISR {self.isr}")
        replicas = {self._terms.node_id, *self.followers}
        if not set(self.isr) <= replicas:
            raise InvariantViolation(f"ISR {self.isr} outside the replicas {sorted(replicas)}")
        counted = {broker_id for broker_id, follower in self.followers.items() if follower.counts}
        if counted != set(self.maximal_isr) - {self._terms.node_id}:
            raise InvariantViolation(f"{sorted(counted)} count, and {self.maximal_isr} is the maximal ISR")
