"""Replicas of one partition without disks, sockets or clocks: the cores, a list for a log, and a metadata controller.

Every message and every piece of metadata arrives when the test says so, or never.
"""

from __future__ import annotations

from typing import NamedTuple

from raftlog.broker.core.log.leader_epochs import LeaderEpochs
from raftlog.broker.core.replica.following import (
    UNDEFINED,
    ReplicaState,
    handle_out_of_range,
    is_diverging,
    state_after,
    truncation_offset,
)
from raftlog.broker.core.replica.leadership import Leadership, LeaderTerms, Reaction
from raftlog.metadata.cluster_commands import IsrProposal
from raftlog.metadata.records import NO_LEADER, PartitionState
from raftlog.wire.errors import ErrorCode

LAG_MS_MAX = 1000


class Record(NamedTuple):
    epoch: int
    value: str

    def __repr__(self) -> str:
        return f"{self.value}@{self.epoch}"


class ListLog:
    """What a partition log is to replication."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.records: list[Record] = []
        self.epochs = LeaderEpochs()
        self.high_watermark = 0

    @property
    def log_end_offset(self) -> int:
        return self.log_start_offset + len(self.records)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def append(self, record: Record) -> None:
        self.epochs.assign(record.epoch, self.log_end_offset)
        self.records.append(record)

    def truncate_to(self, end_offset: int) -> list[Record]:
        """Cut; what went."""
        end_offset = min(max(end_offset, self.log_start_offset), self.log_end_offset)
        keep = end_offset - self.log_start_offset
        gone = self.records[keep:]
        del self.records[keep:]
        self.epochs.truncate_from(end_offset)
        self.high_watermark = min(self.high_watermark, end_offset)
        return gone

    def restart_at(self, offset: int) -> None:
        self.records.clear()
        self.epochs.clear()
        self.log_start_offset = self.high_watermark = offset

    def delete_before(self, offset: int) -> None:
        offset = min(offset, self.high_watermark)
        if offset > self.log_start_offset:
            del self.records[: offset - self.log_start_offset]
            self.log_start_offset = offset
            self.epochs.truncate_before(offset)

    def read(self, offset: int, count: int) -> list[Record]:
        at = offset - self.log_start_offset
        return self.records[at : at + count]

    def advance(self, high_watermark: int) -> None:
        self.high_watermark = max(self.high_watermark, min(high_watermark, self.log_end_offset))


class Fetch(NamedTuple):
    replica: int
    broker_epoch: int
    leader: int
    leader_epoch: int
    offset: int
    last_epoch: int
    log_start: int


class Answer(NamedTuple):
    error: ErrorCode
    records: tuple[Record, ...] = ()
    high_watermark: int = UNDEFINED
    log_start: int = UNDEFINED
    diverging: tuple[int, int] | None = None
    log_end: int = UNDEFINED  # only behind OFFSET_OUT_OF_RANGE, in place of ListOffsets


class Contact:
    def __init__(self) -> None:
        self.last_used_ms = 0
        self.is_lost = False


class Node:
    """One broker: what it has, what it knows, and what it is in its newest epoch."""

    def __init__(self, world: World, node_id: int) -> None:
        self.world = world
        self.node_id = node_id
        self.log = ListLog()
        self.is_alive = True
        self.broker_epoch = node_id
        self.known = world.metadata
        self.leadership: Leadership | None = None
        self.follows = ReplicaState.FETCHING
        self.fetch_offset = 0
        self.checkpoint = 0
        self.contacts = {number: Contact() for number in world.ids}

    # Roles ---------------------------------------------------------------------------------------------

    def learn(self) -> None:
        """Take the newest metadata."""
        before, self.known = self.known, self.world.metadata
        if self.known.leader_epoch != before.leader_epoch or (self.leadership is None and self.leads):
            self._take_role()
        elif self.leadership is not None:
            self.leadership.change(self.known, self.world.now_ms)
            self._advance()

    @property
    def leads(self) -> bool:
        return self.known.leader == self.node_id

    def _take_role(self) -> None:
        self.leadership = None
        self.follows = ReplicaState.FETCHING
        self.fetch_offset = self.log.log_end_offset
        if not self.leads:
            return
        end = self.log.log_end_offset
        self.log.epochs.assign(self.known.leader_epoch, end)
        terms = LeaderTerms(self.node_id, LAG_MS_MAX, self.world.eligible, self.world.broker_epoch)
        self.leadership = Leadership(terms, b"t" * 16, self.known, end, self.world.now_ms)
        self.leadership.min_isr = min(self.world.min_insync, len(self.known.replicas))
        self._advance()

    def kill(self) -> None:
        """Everything in memory is gone."""
        self.is_alive = False
        self.leadership = None
        self.log.high_watermark = min(self.checkpoint, self.log.log_end_offset)

    def start(self) -> None:
        self.is_alive = True
        self.known = self.world.metadata._replace(leader=NO_LEADER)
        self._take_role()

    # Leading -------------------------------------------------------------------------------------------

    def append(self, value: str) -> int:
        """The offset, or an error as a negative number's place: -1 when this node does not lead, as it knows."""
        if self.leadership is None:
            return -1
        before = self.log.log_end_offset
        self.log.append(Record(self.leadership.leader_epoch, value))
        self.leadership.appended(before)
        self._advance()
        return before

    def _advance(self) -> None:
        leadership = self.leadership
        assert leadership is not None
        end = leadership.committed_end(self.log.log_end_offset, self.log.high_watermark, self.world.now_ms)
        self.log.advance(end)
        self.world.committed(self)

    def answer(self, fetch: Fetch) -> Answer:
        leadership, log = self.leadership, self.log
        if leadership is None or fetch.leader_epoch > leadership.leader_epoch:
            return Answer(ErrorCode.UNKNOWN_LEADER_EPOCH if leadership else ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if fetch.leader_epoch < leadership.leader_epoch:
            return Answer(ErrorCode.FENCED_LEADER_EPOCH)
        follower = leadership.follower(fetch.replica, fetch.broker_epoch)
        if isinstance(follower, ErrorCode):
            return Answer(follower)
        out_of_range = Answer(ErrorCode.OFFSET_OUT_OF_RANGE, log_start=log.log_start_offset, log_end=log.log_end_offset)
        if fetch.last_epoch >= 0:
            epoch, end = log.end_offset_for_epoch(fetch.last_epoch)
            if epoch == UNDEFINED or fetch.offset < log.log_start_offset:
                return out_of_range
            if is_diverging(epoch, end, fetch.last_epoch, fetch.offset):
                return Answer(ErrorCode.NONE, (), log.high_watermark, log.log_start_offset, (epoch, end))
        if not log.log_start_offset <= fetch.offset <= log.log_end_offset:
            return out_of_range
        self.contacts[fetch.replica].last_used_ms = self.world.now_ms
        follower.heard(self.contacts[fetch.replica], fetch.broker_epoch)
        leadership.fetched(follower, fetch.offset, fetch.log_start, log.log_end_offset, self.world.now_ms)
        self._advance()
        self.world.submit(self, leadership.expand(follower, log.high_watermark))
        leadership.check_invariants()
        records = tuple(log.read(fetch.offset, self.world.records_max))
        return Answer(ErrorCode.NONE, records, log.high_watermark, log.log_start_offset)

    def look_for_laggards(self) -> None:
        if self.leadership is not None:
            self.world.submit(self, self.leadership.shrink(self.log.log_end_offset, self.world.now_ms))
            self.world.submit(self, self.leadership.recover())

    def answered(self, proposal: IsrProposal, error: ErrorCode, state: PartitionState | None) -> None:
        leadership = self.leadership
        if leadership is None or leadership.leader_epoch != proposal.leader_epoch:
            return
        reaction = leadership.answered(proposal, error, state, self.world.now_ms)
        leadership.check_invariants()
        if reaction is Reaction.RETRY:
            self.world.submit(self, proposal)
        self._advance()

    # Following -----------------------------------------------------------------------------------------

    def fetch(self) -> Fetch | None:
        """The request that it would send now."""
        if self.leadership is not None or self.known.leader in (NO_LEADER, self.node_id):
            return None
        if self.follows not in (ReplicaState.FETCHING, ReplicaState.WAITING):
            return None
        last_epoch = self.log.epochs.latest
        return Fetch(
            self.node_id,
            self.broker_epoch,
            self.known.leader,
            self.known.leader_epoch,
            self.fetch_offset,
            last_epoch,
            self.log.log_start_offset,
        )

    def take(self, fetch: Fetch, answer: Answer) -> str:
        """What it does about an answer, told in words."""
        if self.leadership is not None or fetch.leader_epoch != self.known.leader_epoch:
            return "of another epoch: passed over"
        if (fetch.offset, fetch.last_epoch) != (self.fetch_offset, self.log.epochs.latest):
            return "of another position: passed over"
        log = self.log
        if answer.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            meeting = handle_out_of_range(answer.log_start, answer.log_end, log.log_end_offset)
            if meeting.truncate_to != UNDEFINED:
                self._cut(meeting.truncate_to)
            elif meeting.restart_at != UNDEFINED:
                log.restart_at(meeting.restart_at)
            self.fetch_offset = meeting.fetch_offset
            return f"begins again at {self.fetch_offset}"
        if answer.error is not ErrorCode.NONE:
            self.follows = state_after(answer.error)
            return f"{answer.error.name}: {self.follows.value}"
        self.follows = ReplicaState.FETCHING
        if answer.diverging is not None:
            self._cut(truncation_offset(log, self.fetch_offset, *answer.diverging))
            self.fetch_offset = log.log_end_offset
            return f"cut to {self.fetch_offset}"
        for record in answer.records:
            log.append(record)
        self.fetch_offset = log.log_end_offset
        log.advance(answer.high_watermark)
        log.delete_before(answer.log_start)
        return f"at {self.fetch_offset} high watermark {log.high_watermark}"

    def _cut(self, end_offset: int) -> None:
        self.world.truncated(self, end_offset)
        self.log.truncate_to(end_offset)


class World:
    """The nodes, and the truth about who leads: `metadata`, which the nodes learn when they are told to."""

    def __init__(self, ids: tuple[int, ...] = (1, 2, 3), *, min_insync: int = 1, records_max: int = 10) -> None:
        self.ids = ids
        self.min_insync = min_insync
        self.records_max = records_max
        self.now_ms = 1_000_000
        self.metadata = PartitionState(0, ids[0], 0, 0, ids, ids)
        self.proposals: list[tuple[Node, IsrProposal]] = []
        # offset -> record, of everything that was ever committed.
        self.history: dict[int, Record] = {}
        self.nodes = {number: Node(self, number) for number in ids}
        for node in self.nodes.values():
            node.learn()

    # What the metadata say of brokers ------------------------------------------------------------------

    def eligible(self, broker_id: int, broker_epoch: int) -> bool:
        node = self.nodes[broker_id]
        return node.is_alive and broker_epoch == node.broker_epoch

    def broker_epoch(self, broker_id: int) -> int:
        return self.nodes[broker_id].broker_epoch

    # The controller ------------------------------------------------------------------------------------

    def submit(self, node: Node, proposal: IsrProposal | None) -> None:
        if proposal is not None:
            self.proposals.append((node, proposal))

    def decide(self, *, lose_answer: bool = False) -> str:
        """Decide on the oldest proposal."""
        node, proposal = self.proposals.pop(0)
        error = self._judge(node, proposal)
        if error is ErrorCode.NONE:
            isr = tuple(member.broker_id for member in proposal.isr)
            self.metadata = self.metadata._replace(
                isr=isr, partition_epoch=self.metadata.partition_epoch + 1, leader_recovering=proposal.leader_recovering
            )
        if node.is_alive and lose_answer:
            node.answered(proposal, ErrorCode.REQUEST_TIMED_OUT, None)
        elif node.is_alive:
            node.answered(proposal, error, self.metadata if error is ErrorCode.NONE else None)
        return error.name

    def _judge(self, node: Node, proposal: IsrProposal) -> ErrorCode:
        now = self.metadata
        if proposal.leader_epoch < now.leader_epoch or node.node_id != now.leader:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch != now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for member in proposal.isr:
            known = self.nodes[member.broker_id]
            if not known.is_alive or (member.broker_epoch >= 0 and member.broker_epoch != known.broker_epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        return ErrorCode.NONE

    def elect(self, leader: int, *, unclean: bool = False) -> None:
        """Make it the leader; unclean: alone in the ISR."""
        now = self.metadata
        assert unclean or leader in now.isr
        isr = (leader,) if unclean else now.isr
        if unclean:
            # What is lost now is lost; from here on it is as if it had never been.
            end = self.nodes[leader].log.log_end_offset
            self.history = {offset: record for offset, record in self.history.items() if offset < end}
        self.metadata = now._replace(
            leader=leader,
            isr=isr,
            leader_epoch=now.leader_epoch + 1,
            partition_epoch=now.partition_epoch + 1,
            leader_recovering=unclean,
        )

    def fence(self, node_id: int) -> None:
        """A dead broker leaves the ISR unless it is the last, and its partition gets another leader if it can."""
        now = self.metadata
        isr = tuple(member for member in now.isr if member != node_id) or now.isr
        leader = now.leader
        if leader == node_id:
            leader = next((member for member in isr if self.nodes[member].is_alive), NO_LEADER)
        if (isr, leader) == (now.isr, now.leader):
            return
        self.metadata = now._replace(
            leader=leader,
            isr=isr,
            leader_epoch=now.leader_epoch + (leader != now.leader),
            partition_epoch=now.partition_epoch + 1,
        )

    def register(self, node_id: int) -> None:
        """A broker is back, in a new life."""
        node = self.nodes[node_id]
        node.broker_epoch += 100
        node.start()
        if self.metadata.leader == NO_LEADER and node_id in self.metadata.isr:
            self.elect(node_id)

    # What is checked -----------------------------------------------------------------------------------

    def committed(self, leader: Node) -> None:
        """A leader's high watermark says that all below is committed: for ever, and the same for everybody."""
        log = leader.log
        for offset in range(max(log.log_start_offset, len(self.history)), log.high_watermark):
            self.history[offset] = log.records[offset - log.log_start_offset]
        self.check_log(leader)

    def check_log(self, node: Node) -> None:
        log = node.log
        for offset in range(log.log_start_offset, min(log.high_watermark, log.log_end_offset)):
            record = log.records[offset - log.log_start_offset]
            assert record == self.history.get(offset), (
                f"node {node.node_id} has {record} at {offset}, and {self.history.get(offset)} was committed"
            )

    def truncated(self, node: Node, end_offset: int) -> None:
        """Nothing to check here; property tests look."""
