"""Incremental fetch sessions (KIP-227): what a client fetches, remembered between its requests.

Kafka walks all partitions of a session at every fetch. Here each session is told by its partitions when they
move and keeps a list of those, so that a fetch costs what changed and not what is subscribed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from raftlog.wire.errors import ErrorCode, InvariantViolation
from raftlog.wire.ids import BrokerEpoch, BrokerId

if TYPE_CHECKING:
    from raftlog.wire.messages.fetch import FetchRequest, FetchTopic, ForgottenTopic

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
NO_SESSION = 0
CONSUMER = BrokerId(-1)
NO_BROKER_EPOCH = BrokerEpoch(-1)
_UNKNOWN = -1
_EPOCH_MAX = 2**31 - 1

_RACK_SINCE = 11
_IDS_SINCE = 13
_REPLICA_STATE_SINCE = 15

# A session that was used within this time is not evicted for a new one. Kafka:
# min.incremental.fetch.session.eviction.ms, no configuration there either.
EVICTION_MS_MIN = 120_000

# When consumers' sessions were used is known to within so much: one that polls twice a second need not move each time.
# Of followers it is known exactly, because their place in the ISR depends on it.
_ORDER_MS = 10_000

# What all sessions together may remember, at some 400 bytes a partition. A client may name partitions that do not
# exist, and no configuration bounds how many.
PARTITIONS_MAX = 500_000


class TopicKey(NamedTuple):
    """A topic as the request names it: by id since v13, by name before."""

    name: str
    topic_id: bytes


class FetchedPartition:
    """One partition of a session: where its reader is, and what it was sent.

    Of a follower: `log_start_offset` is its log's, and `acknowledged` says whether the leader has noted where it
    is.
    """

    __slots__ = (
        "acknowledged",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "leader_epoch",
        "log_start_offset",
        "partition_bytes_max",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "topic",
    )

    def __init__(self, topic: TopicKey, index: int, session: FetchSession) -> None:
        self.session = session
        self.topic = topic
        self.index = index
        self.fetch_offset = 0
        self.leader_epoch = _UNKNOWN
        self.last_fetched_epoch = _UNKNOWN
        self.partition_bytes_max = 0
        self.sent_high_watermark = _UNKNOWN
        self.sent_log_start_offset = _UNKNOWN
        self.log_start_offset = _UNKNOWN
        self.acknowledged = False

    def __repr__(self) -> str:
        return f"{self.topic.name or self.topic.topic_id.hex()}-{self.index} at {self.fetch_offset}"


class FetchSession:
    """The state of one client's fetches; without an id (NO_SESSION) it lives for one request.

    `ready` holds, oldest first, the partitions that may have something to send; a partition leaves it when a
    read found nothing, and comes back when the partition or the client's position moves. `dirty` holds the partitions
    without records to send, of which the other side does not know the high watermark or the log's start: the next
    answer says them. `is_waiting`: a request of it is delayed. A follower's session has its broker's id and epoch
    (KIP-903). `is_watched`: it hears when its partitions move; a consumer's without an id does once its request waits.
    """

    __slots__ = (
        "counted",
        "dirty",
        "epoch",
        "is_follower",
        "is_lost",
        "is_waiting",
        "is_watched",
        "last_used_ms",
        "partitions",
        "rack",
        "reads_replicas",
        "ready",
        "replica_epoch",
        "replica_id",
        "session_id",
        "uses_ids",
        "wakes_when_dirty",
    )

    def __init__(self, session_id: int, uses_ids: bool, now_ms: int, replica_id: BrokerId = CONSUMER) -> None:
        self.session_id = session_id
        self.uses_ids = uses_ids
        self.epoch = INITIAL_EPOCH
        self.last_used_ms = now_ms
        # How many of its partitions FetchSessions has counted: none when it has ended.
        self.counted = 0
        self.partitions: dict[tuple[TopicKey, int], FetchedPartition] = {}
        self.ready: dict[FetchedPartition, None] = {}
        self.dirty: dict[FetchedPartition, None] = {}
        self.replica_id = replica_id
        self.is_follower = replica_id != CONSUMER
        # Of a follower: its connection has ended.
        self.is_lost = False
        self.replica_epoch = NO_BROKER_EPOCH
        # A follower that serves consumers of its rack is told of the high watermark at once.
        self.wakes_when_dirty = False
        # A consumer that may be sent to a replica in its rack, or be served by a follower (KIP-392).
        self.rack = ""
        self.reads_replicas = False
        self.is_waiting = False
        self.is_watched = session_id != NO_SESSION or self.is_follower

    def put(self, topic: TopicKey, index: int) -> FetchedPartition:
        """The partition's entry, made if it is new, marked as ready."""
        key = (topic, index)
        partition = self.partitions.get(key)
        if partition is None:
            partition = self.partitions[key] = FetchedPartition(topic, index, self)
        self.ready[partition] = None
        return partition

    def has(self, partition: FetchedPartition) -> bool:
        """Whether it is still one of this session's."""
        return self.partitions.get((partition.topic, partition.index)) is partition

    def name_partitions(self, topics: Iterable[FetchTopic]) -> None:
        """Take the positions that a request tells."""
        follows = self.is_follower
        for topic in topics:
            key = TopicKey(topic.topic, topic.topic_id)
            for wanted in topic.partitions:
                entry = self.put(key, wanted.partition)
                entry.fetch_offset = wanted.fetch_offset
                entry.leader_epoch = wanted.current_leader_epoch
                entry.last_fetched_epoch = wanted.last_fetched_epoch
                entry.log_start_offset = wanted.log_start_offset
                entry.partition_bytes_max = wanted.partition_max_bytes
                entry.acknowledged = False
                if follows:
                    # It passes over what it was sent before it told this, the high watermark included: say it again.
                    entry.sent_high_watermark = entry.sent_log_start_offset = _UNKNOWN

    def remove(self, topic: TopicKey, index: int) -> FetchedPartition | None:
        """Forget the partition; returns what was there."""
        partition = self.partitions.pop((topic, index), None)
        if partition is not None:
            self.ready.pop(partition, None)
            self.dirty.pop(partition, None)
        return partition


def _replica_of(request: FetchRequest, version: int) -> tuple[BrokerId, BrokerEpoch]:
    """The follower that fetches, and its broker epoch (KIP-903); -1 each for a consumer. Kafka's tool that compares
    replicas says -2: it is a consumer too.
    """
    if version < _REPLICA_STATE_SINCE:
        return BrokerId(max(request.replica_id, CONSUMER)), NO_BROKER_EPOCH
    state = request.replica_state
    return BrokerId(max(state.replica_id, CONSUMER)), BrokerEpoch(state.replica_epoch)


class FetchSessions:
    """The sessions of a broker, at most `slots` (max.incremental.fetch.session.cache.slots) and
    those of followers.

    Session ids come from `new_id`, so that a client of an earlier run of the broker does not find a stranger's session.
    `released` are partitions that no session has any more: whoever calls takes them out, and watches them no more.

    Invariants: a session is found under its own id, in order of last use; what is ready or dirty is one of its
    partitions; all sessions together have as many partitions as were counted, at most PARTITIONS_MAX; a follower has
    one session.
    """

    def __init__(self, slots: int, new_id: Callable[[], int]) -> None:
        self._slots = slots
        self._new_id = new_id
        # In order of last use.
        self._sessions: dict[int, FetchSession] = {}
        # Whose clients have gone away. They may come back, but are the first to make room.
        self._left: dict[int, None] = {}
        self._of_replicas: dict[BrokerId, int] = {}
        self._partitions = 0
        self.released: list[FetchedPartition] = []

    def __len__(self) -> int:
        return len(self._sessions)

    # What a request does to its session --------------------------------------------------------------

    def apply(
        self, request: FetchRequest, version: int, now_ms: int, *, selects_replicas: bool
    ) -> FetchSession | ErrorCode:
        """The session of a request, with what the request changes about it; or why there is none.

        All requests of all clients come through here, but for those that `repeat` takes, and those that name so much
        that it takes several turns (`open`, `change`).
        """
        session = self.open(request, version, now_ms, selects_replicas=selects_replicas)
        if not isinstance(session, ErrorCode):
            self.change(session, request.topics, request.forgotten_topics_data)
        return session

    def open(
        self, request: FetchRequest, version: int, now_ms: int, *, selects_replicas: bool
    ) -> FetchSession | ErrorCode:
        """The session of a request, which has not yet taken what the request names; or why there is none.
        `selects_replicas`: consumers may be sent to, or served by, replicas in their racks.
        """
        replica_id, replica_epoch = _replica_of(request, version)
        uses_ids = version >= _IDS_SINCE
        epoch = request.session_epoch
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if request.session_id != NO_SESSION:
                self.close(request.session_id)
            # A new session is worth its memory only for a client that has partitions to fetch.
            wants_session = epoch == INITIAL_EPOCH and bool(request.topics)
            session = self._begin(replica_id, uses_ids, now_ms, wants_session)
            if session.is_follower:
                session.wakes_when_dirty = selects_replicas
            else:
                session.reads_replicas = version >= _RACK_SINCE
                session.rack = request.rack_id if selects_replicas else ""
        else:
            found = self._find(request.session_id, epoch, uses_ids, replica_id)
            if isinstance(found, ErrorCode):
                return found
            session = found
        self._accept(session, replica_epoch, now_ms)
        return session

    def change(
        self, session: FetchSession, topics: Iterable[FetchTopic], forgotten: Iterable[ForgottenTopic] = ()
    ) -> None:
        """Take what a request names, or a part of it, and what it forgets."""
        if topics:
            session.name_partitions(topics)
        for topic in forgotten:
            key = TopicKey(topic.topic, topic.topic_id)
            for index in topic.partitions:
                removed = session.remove(key, index)
                if removed is not None:
                    self.released.append(removed)
        self._count(session)

    def is_open(self, session: FetchSession) -> bool:
        """Whether it has not been closed; one without an id is as long as its request is served."""
        return session.session_id == NO_SESSION or self._sessions.get(session.session_id) is session

    def is_current(self, session: FetchSession) -> bool:
        """Whether a follower's session is its newest."""
        return self._of_replicas.get(session.replica_id) == session.session_id

    def repeat(self, session: FetchSession, now_ms: int) -> bool:
        """Take a request that says the same as the last one did, and has the epoch that the session expects. False if
        the session is not open, or has no partitions.
        """
        if not session.counted:
            return False
        self._accept(session, session.replica_epoch, now_ms)
        return True

    def _begin(self, replica_id: BrokerId, uses_ids: bool, now_ms: int, wants_session: bool) -> FetchSession:
        """A new session; one without an id when it is not wanted, or all slots are in use.

        A follower gets one always. It takes the place of the one before: a follower has one connection, and what it
        left behind would be told of every append for ever.
        """
        if not wants_session:
            return FetchSession(NO_SESSION, uses_ids, now_ms, replica_id)
        if replica_id != CONSUMER:
            self.close(self._of_replicas.get(replica_id, NO_SESSION))
        elif not self._make_room(now_ms):
            return FetchSession(NO_SESSION, uses_ids, now_ms)
        session_id = self._new_id()
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = FetchSession(session_id, uses_ids, now_ms, replica_id)
        if session.is_follower:
            self._of_replicas[replica_id] = session_id
        return session

    def _make_room(self, now_ms: int) -> bool:
        if len(self._sessions) < self._slots:
            return True
        if self._left:
            self.close(next(iter(self._left)))
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or oldest.is_waiting or now_ms - oldest.last_used_ms < EVICTION_MS_MIN:
            return False
        self.close(oldest.session_id)
        return True

    def _find(self, session_id: int, epoch: int, uses_ids: bool, replica_id: BrokerId) -> FetchSession | ErrorCode:
        session = self._sessions.get(session_id)
        if session is None or session.replica_id != replica_id:
            # A stranger's session is none: what a follower is sent depends on who it is.
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def _accept(self, session: FetchSession, replica_epoch: BrokerEpoch, now_ms: int) -> None:
        """It is now the one that was used last, and the next request carries the next epoch (1 follows the highest)."""
        # A follower may learn its epoch after its first fetches.
        session.replica_epoch = replica_epoch
        if now_ms - session.last_used_ms >= _ORDER_MS or session.is_follower or self._left:
            session.last_used_ms = now_ms
            self._left.pop(session.session_id, None)
            if self._sessions.pop(session.session_id, None) is not None:
                self._sessions[session.session_id] = session
        session.epoch = 1 if session.epoch >= _EPOCH_MAX else session.epoch + 1

    def _count(self, session: FetchSession) -> None:
        """The session's partitions have changed. If all sessions together now remember more than PARTITIONS_MAX, this
        one is remembered no longer: it becomes one that lives for its request."""
        if session.session_id == NO_SESSION:
            return
        self._partitions += len(session.partitions) - session.counted
        session.counted = len(session.partitions)
        if self._partitions > PARTITIONS_MAX:
            self._forget(session.session_id)
            session.session_id = NO_SESSION

    # Ends --------------------------------------------------------------------------------------------

    def leave(self, session: FetchSession) -> None:
        """The client is gone, and will more likely begin anew than come back for its session.

        Kafka keeps the session for EVICTION_MS_MIN: where all slots are in use, a thousand consumers that are started
        again have none for two minutes.
        """
        if not session.is_follower and session.session_id in self._sessions:
            self._left[session.session_id] = None

    def _forget(self, session_id: int) -> FetchSession | None:
        session = self._sessions.pop(session_id, None)
        self._left.pop(session_id, None)
        if session is not None:
            self._partitions -= session.counted
            session.counted = 0
            if self._of_replicas.get(session.replica_id) == session_id:
                del self._of_replicas[session.replica_id]
        return session

    def close(self, session_id: int) -> None:
        """End the session, if it is there."""
        session = self._forget(session_id)
        if session is not None:
            self.dissolve(session)

    def dissolve(self, session: FetchSession) -> None:
        """Release a session's partitions; also for one that has no id."""
        if session.is_watched:
            self.released += session.partitions.values()
        session.partitions.clear()
        session.ready.clear()
        session.dirty.clear()

    def check_invariants(self) -> None:
        """Raises InvariantViolation if what the class promises does not hold."""
        counted = 0
        for session_id, session in self._sessions.items():
            entries = set(session.partitions.values())
            if session.session_id != session_id or session.counted != len(entries):
                raise InvariantViolation(f"session {session.session_id} under {session_id}, counts {session.counted}")
            if not (session.ready.keys() | session.dirty.keys()) <= entries:
                raise InvariantViolation(f"session {session_id} waits for partitions that it does not have")
            if session.is_follower and self._of_replicas.get(session.replica_id) != session_id:
                raise InvariantViolation(f"session {session_id} is a second one of follower {session.replica_id}")
            counted += session.counted
        if counted != self._partitions or counted > PARTITIONS_MAX:
            raise InvariantViolation(f"{counted} partitions, counted as {self._partitions}")
        if not self._left.keys() | set(self._of_replicas.values()) <= self._sessions.keys():
            raise InvariantViolation("a session that is not open is kept as left or as a follower's")
