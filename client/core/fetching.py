"""Where a consumer stands in each partition, what to fetch next, and what came (KIP-227, 320, 392)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum

from raftlog.client.core.errors import DamagedRecords, NoOffset, Rejected
from raftlog.client.core.fetch_session import Wanted
from raftlog.client.core.fetched import Piece, Slice, cut, in_order, verify
from raftlog.client.core.isolation import AbortedFilter
from raftlog.client.core.metadata import NO_LEADER, ClusterMetadata, TopicPartition
from raftlog.client.core.partition_queue import LEADER_UNKNOWN
from raftlog.client.core.progress import Position
from raftlog.client.core.settings import ConsumerSettings
from raftlog.wire.batch import CorruptRecord, iterate_batches
from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.messages.fetch import PartitionData
from raftlog.wire.schema import ZERO_UUID

LATEST, EARLIEST = -1, -2
"""Timestamps that stand for the end of a log and for its start (ListOffsets)."""
COMMITTED = -1000
"""In the place of a timestamp: where the group stands. No broker is sent it."""
REPLICA_SECONDS = 300.0
"""So long is a replica that the leader preferred read from, before the leader is asked again (KIP-392)."""
RETRY_SECONDS = 0.1
NO_END = 1 << 63


class Received(Enum):
    """What a partition's part of a reply was."""

    RECORDS = "records"
    NOTHING = "nothing"
    MOVED = "another leader or replica"
    RESET = "the position is to be found anew"


class PartitionState:
    """`position`: the next record to hand out, None until that is known. `fetched_to`: the next one to fetch."""

    __slots__ = (
        "buffered",
        "end",
        "epoch",
        "failure",
        "fetched_to",
        "handed_to",
        "high_watermark",
        "last_epoch",
        "last_stable_offset",
        "leaves",
        "log_start_offset",
        "node",
        "paused",
        "pieces",
        "position",
        "refusal",
        "refused_since",
        "replica",
        "replica_until",
        "reset_to",
        "retry_at",
        "seeks",
        "topic_id",
    )

    def __init__(self, position: int | None, end: int = NO_END) -> None:
        self.position = position
        self.end = end
        self.fetched_to = position if position is not None else -1
        self.handed_to = -1
        """The end of what was handed out last; -1 if nothing was since the position was changed from outside."""
        self.epoch = -1
        """Leader epoch of the last record handed out."""
        self.last_epoch = -1
        """Leader epoch of the last record fetched."""
        self.pieces: deque[Piece] = deque()
        self.buffered = 0
        self.paused = False
        self.leaves = False
        """Whether the group takes it away: nothing more of it is handed out."""
        self.high_watermark = -1
        self.last_stable_offset = -1
        self.log_start_offset = -1
        self.reset_to: int | None = None
        """The timestamp, LATEST, EARLIEST or COMMITTED to look a position up by."""
        self.replica = -1
        self.replica_until = 0.0
        self.retry_at = 0.0
        self.seeks = 0
        """Counts changes of the position from outside: what was asked for before is not taken."""
        self.node = -1
        """Who was asked last."""
        self.failure: Exception | None = None
        self.refusal: ErrorCode | None = None
        """Why nothing can be read for now; it is tried again."""
        self.refused_since = 0.0
        self.topic_id = ZERO_UUID
        """The topic that the position is in: another one may come to be under its name."""

    @property
    def is_held(self) -> bool:
        return self.paused or self.leaves

    def refused(self, code: ErrorCode, now: float) -> None:
        """Nothing can be read for now."""
        if self.refusal is None:
            self.refused_since = now
        self.refusal = code

    def move(self, position: int | None) -> None:
        self.position = position
        self.fetched_to = position if position is not None else -1
        self.epoch = self.last_epoch = self.handed_to = -1
        self.pieces.clear()
        self.buffered = 0
        self.seeks += 1
        self.failure = None
        self.reset_to = None

    def check_invariants(self) -> None:
        """Raises InvariantViolation if positions and what is buffered do not fit together."""
        if self.buffered != sum(piece.header.size for piece in self.pieces):
            raise InvariantViolation(f"{self.buffered} bytes are counted, of {len(self.pieces)} pieces")
        if self.position is None:
            if self.pieces or self.fetched_to != -1:
                raise InvariantViolation(f"fetched to {self.fetched_to} without a position")
            return
        if self.reset_to is not None:
            raise InvariantViolation(f"the position {self.position} is to be found anew")
        reached = self.position
        for piece in self.pieces:
            if not reached <= piece.first < piece.end:
                raise InvariantViolation(f"{piece.first} to {piece.end} comes after {reached}")
            reached = piece.end
        if reached > self.fetched_to:
            raise InvariantViolation(f"fetched to {self.fetched_to}, and {reached} is reached")


class Fetching:
    """All partitions that are read. Times are seconds of any one clock."""

    def __init__(self, settings: ConsumerSettings) -> None:
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self._settings = settings
        self.set_back: list[TopicPartition] = []
        """Partitions of which something that was handed out is gone: another topic has the name, or the log was cut.
        Whoever looks takes them out.
        """

    def assign(self, partition: TopicPartition, position: int | None, end: int = NO_END) -> None:
        """`end`: nothing is wanted from this offset on."""
        self.partitions[partition] = PartitionState(position, end)

    def ask_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Where the group stands in these is to be looked up."""
        for each in partitions:
            self.partitions[each].reset_to = COMMITTED

    def begin(self, partitions: Sequence[TopicPartition], committed: Mapping[TopicPartition, Position]) -> None:
        """Read on where the group stands, and where it stands nowhere as `auto_offset_reset` says."""
        policy = self._settings.auto_offset_reset
        missing = [each for each in partitions if each not in committed]
        for each in partitions:
            state = self.partitions[each]
            if each in committed:
                state.move(committed[each].offset)
                state.last_epoch = committed[each].leader_epoch
                continue
            state.reset_to = None if policy == "none" else EARLIEST if policy == "earliest" else LATEST
            state.failure = NoOffset(missing) if policy == "none" else None

    def unassign(self, partition: TopicPartition) -> None:
        self.partitions.pop(partition, None)

    def topic_ids(self) -> dict[str, bytes]:
        """Of the topics that were read, by name: they may be gone, and others have their names."""
        states = self.partitions.items()
        return {topic: state.topic_id for (topic, _), state in states if state.topic_id != ZERO_UUID}

    def wanted(
        self, now: float, known: ClusterMetadata
    ) -> tuple[dict[int, dict[TopicPartition, Wanted]], list[TopicPartition]]:
        """What to fetch from which broker, and the partitions whose leader is not known."""
        found: dict[int, dict[TopicPartition, Wanted]] = {}
        unled: list[TopicPartition] = []
        limit = self._settings.max_partition_fetch_bytes
        for partition, state in self.partitions.items():
            if state.is_held or state.position is None or state.buffered >= limit or state.retry_at > now:
                continue
            if state.failure is not None or state.fetched_to >= state.end:
                continue
            is_there = state.replica in known.nodes and now < state.replica_until
            node = state.replica if is_there else known.leader(partition)
            if node == NO_LEADER or node not in known.nodes:
                unled.append(partition)
                if state.refusal is None:  # else whoever leads is looked up because of that
                    state.refused(ErrorCode.LEADER_NOT_AVAILABLE, now)
                continue
            topic_id = known.topic_id(partition[0])
            if state.topic_id not in (topic_id, ZERO_UUID):
                self._begin_anew(partition, state)
                continue
            state.node, state.topic_id = node, topic_id
            wanted = Wanted(state.fetched_to, known.leader_epoch(partition), state.last_epoch, limit, topic_id)
            found.setdefault(node, {})[partition] = wanted
        return found, unled

    def _begin_anew(self, partition: TopicPartition, state: PartitionState) -> None:
        """Another topic has the name: nobody has read any of it, so reading begins at its start."""
        self.set_back.append(partition)
        code = ErrorCode.UNKNOWN_TOPIC_ID
        self._reset(partition, state, Rejected(code, f"{partition[0]}[{partition[1]}]", "the topic was made anew"))
        if state.reset_to is not None:
            state.reset_to = EARLIEST
        state.topic_id = ZERO_UUID

    def unavailable(self, now: float, seconds: float) -> dict[TopicPartition, ErrorCode]:
        """Partitions of which nothing could be read for so long, and why."""
        return {
            partition: state.refusal
            for partition, state in self.partitions.items()
            if state.refusal is not None and now - state.refused_since >= seconds
        }

    def retry_at(self, now: float) -> float | None:
        """When something may be fetched again that failed before."""
        later = [state.retry_at for state in self.partitions.values() if state.retry_at > now]
        return min(later, default=None)

    def received(self, partition: TopicPartition, sent: Wanted, data: PartitionData, now: float) -> Received:
        """Take in what a broker answered. What it refuses for good is kept for `take` to raise."""
        state = self.partitions.get(partition)
        if state is None or state.fetched_to != sent.offset or state.position is None:
            return Received.NOTHING
        code = ErrorCode.of(data.error_code)
        if code != ErrorCode.NONE:
            return self._refused(partition, state, code, now)
        if data.diverging_epoch.end_offset >= 0:
            return self._diverged(partition, state, data.diverging_epoch.end_offset)
        if data.preferred_read_replica >= 0:
            state.replica, state.replica_until = data.preferred_read_replica, now + REPLICA_SECONDS
            return Received.MOVED
        state.refusal = None
        state.high_watermark = data.high_watermark
        state.last_stable_offset = data.last_stable_offset
        state.log_start_offset = data.log_start_offset
        if data.records is None or not len(data.records):
            return Received.NOTHING
        return self._unpack(partition, state, data)

    def _unpack(self, partition: TopicPartition, state: PartitionState, data: PartitionData) -> Received:
        records = memoryview(data.records or b"")
        committed = self._settings.is_read_committed
        hidden = AbortedFilter((data.aborted_transactions or ()) if committed else ())
        taken = 0
        try:
            for at, header in in_order(iterate_batches(records)):
                next_offset = header.next_offset
                if next_offset <= state.fetched_to:
                    continue
                batch = records[at : at + header.size]
                taken += 1
                if not hidden.hides(header, batch) and header.records_count:
                    state.pieces.append(Piece(header, batch, state.fetched_to, min(next_offset, state.end)))
                    state.buffered += header.size
                state.fetched_to = next_offset
                state.last_epoch = header.partition_leader_epoch
                if next_offset >= state.end:
                    break
        except CorruptRecord as error:
            state.failure = DamagedRecords(*partition, state.fetched_to, str(error))
            return Received.RECORDS
        if not taken:
            reason = f"a batch is larger than the {len(records)} bytes that came"
            state.failure = DamagedRecords(*partition, state.fetched_to, reason)
        if not state.pieces:
            state.position = state.fetched_to
        return Received.RECORDS

    def _refused(self, partition: TopicPartition, state: PartitionState, code: ErrorCode, now: float) -> Received:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            if state.replica >= 0:
                state.replica = -1  # a follower may lag: the leader knows
                return Received.MOVED
            if state.pieces:
                state.retry_at = now + RETRY_SECONDS
                return Received.NOTHING  # hand out first what is there
            return self._reset(partition, state, Rejected(code, f"{partition[0]}[{partition[1]}]"))
        if code.retriable or code in LEADER_UNKNOWN or code == ErrorCode.UNKNOWN_SERVER_ERROR:
            state.replica = -1
            state.retry_at = now + RETRY_SECONDS
            state.refused(code, now)
            return Received.MOVED
        state.failure = Rejected(code, f"{partition[0]}[{partition[1]}]")
        return Received.NOTHING

    def _reset(self, partition: TopicPartition, state: PartitionState, error: Exception) -> Received:
        policy = self._settings.auto_offset_reset
        if policy == "none":
            state.failure = error
            return Received.NOTHING
        state.move(None)
        state.reset_to = EARLIEST if policy == "earliest" else LATEST
        return Received.RESET

    def _diverged(self, partition: TopicPartition, state: PartitionState, end_offset: int) -> Received:
        """The log was cut after an unclean election: what was fetched is gone from where logs part, and is fetched
        again from there, or from before where less was handed out.
        """
        assert state.position is not None
        if end_offset < state.position:
            self.set_back.append(partition)
        state.move(min(end_offset, state.position))
        return Received.RECORDS

    def has_records(self) -> bool:
        return any(
            (state.pieces or state.failure is not None) and not state.is_held for state in self.partitions.values()
        )

    def take(self, limit: int, of: Iterable[TopicPartition] | None = None) -> list[Slice]:
        """At most `limit` records, of one partition after the other. Positions move past them.

        `of`: of these partitions; None: of all.
        Raises the error that a partition cannot go on for, when there is nothing else of it to hand out.
        """
        slices: list[Slice] = []
        for partition in list(self.partitions if of is None else of):
            state = self.partitions[partition]
            if limit <= 0 or state.is_held:
                continue
            if state.failure is not None and not state.pieces:
                if slices:
                    break  # the next call raises it
                failure = state.failure
                raise failure
            if state.pieces:
                found = self._take_from(partition, state, limit, is_first=not slices)
                if found is None:
                    break
                slices.append(found)
                limit -= sum(piece.count_max for piece in found.pieces)
                # Whoever was served goes to the end of the line.
                self.partitions[partition] = self.partitions.pop(partition)
        return slices

    def _take_from(
        self, partition: TopicPartition, state: PartitionState, limit: int, *, is_first: bool
    ) -> Slice | None:
        taken: list[Piece] = []
        while state.pieces and limit > 0:
            piece = state.pieces[0]
            try:
                if self._settings.check_crcs and piece.decoded is None:  # else it is a part of one that was checked
                    verify(*partition, piece)
                rest = None
                if piece.count_max > limit:
                    piece, rest = cut(*partition, piece, limit)
            except DamagedRecords:
                if taken or not is_first:
                    break  # the next call raises it
                raise
            state.pieces.popleft()
            state.buffered -= 0 if rest is not None else piece.header.size
            if rest is not None:
                state.pieces.appendleft(rest)
            limit -= piece.count_max
            taken.append(piece)
        if not taken:
            return None
        last = taken[-1]
        end = state.pieces[0].first if state.pieces else state.fetched_to
        state.position = state.handed_to = end
        state.epoch = last.header.partition_leader_epoch
        return Slice(*partition, taken, end, state.epoch)

    def stop_at(self, partition: TopicPartition, offset: int, error: DamagedRecords) -> None:
        """What was handed out proved to be damaged from `offset` on: `take` raises it until somebody seeks."""
        state = self.partitions[partition]
        state.move(offset)
        state.failure = error

    def give_back(self, slices: Sequence[Slice]) -> None:
        """What was taken, and not handed out after all, comes first again."""
        for each in reversed(slices):
            state = self.partitions.get((each.topic, each.partition))
            # The position may have gone on, over what nobody is to see.
            if state is not None and state.handed_to == each.end:
                state.pieces.extendleft(reversed(each.pieces))
                state.buffered += sum(piece.header.size for piece in each.pieces)
                state.position = state.handed_to = each.pieces[0].first

    def to_reset(self) -> Mapping[TopicPartition, int]:
        """Partitions whose position is to be looked up, and by which timestamp."""
        return {each: state.reset_to for each, state in self.partitions.items() if state.reset_to is not None}

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what a partition promises does not hold."""
        for state in self.partitions.values():
            state.check_invariants()
